// The arguments of the flash kernels of attention. Plain C layout; a change here raises the
// family's ABI number (kAbi in src/tessera/families/fmha/fmha.h).
#pragma once

#include "tessera/device/cuda/abi.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

// The windows are {element, token, head, sequence} with boxes of 64 elements by 64 queries, a block
// of keys, or 16 rows of the output. Packed sequences are one sequence to the copy engine.
struct FlashArguments {
  CudaTensorMap q_map, k_map, v_map, out_map;
  FmhaArguments fmha;
  void* workspace;  // two counters: tiles that blocks took, blocks that are done
  int query_tiles;  // of a head, and
  int tiles;        // of all heads and sequences, where all sequences are equally long
  int section;      // heads whose tiles are computed side by side, so that L2 holds what they read
  // Masked: query i sees the keys from i + left on and below i + right. Where sequences have
  // lengths of their own and the diagonal ends at the last key, keys - queries comes on top.
  int left, right;
};

}  // namespace tessera::device
