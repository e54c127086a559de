// The arguments of the flash kernels of attention's gradients. Plain C layout; a change here raises
// the family's ABI number (kAbi in src/tessera/families/fmha/fmha.h).
#pragma once

#include "tessera/device/cuda/abi.h"
#include "tessera/device/fmha_backward.h"

namespace tessera::device {

// The windows are {element, token, head, sequence} with boxes of 64 elements by a block of queries
// or of keys, or by 16 rows of dk and dv. Packed sequences are one sequence to the copy engine.
//
// The workspace holds, behind the counters, for each block of queries of each head and sequence:
// the sums of dq in the order of the consumers' registers; what is known of its queries, see
// flash_backward_sizes.h; for each consumer how many blocks of keys have added to its sums; and
// the sums of dbias in fp32.
struct FlashBackwardArguments {
  CudaTensorMap q_map, k_map, v_map, dout_map, dk_map, dv_map;
  FmhaBackwardArguments backward;
  void* workspace;           // two counters: items that blocks took, blocks that are done
  i64 stats, turns, slices;  // where these begin in the workspace, in bytes
  i64 bias_sums;             // likewise; 0: nothing shares an element of dbias
  int query_blocks;          // of the longest sequence, and
  int key_blocks;
  int items;    // blocks of keys of all key-value heads and sequences, where all are equally long
  int section;  // key-value heads whose items are computed side by side
  // Masked: query i sees the keys from i + left on and below i + right. Where sequences have
  // lengths of their own and the diagonal ends at the last key, keys - queries comes on top.
  // The first `sink` keys have no last query.
  int left, right, sink;
};

}  // namespace tessera::device
