// The arguments of the general kernels of attention's gradients. Plain C layout; a change here
// raises the family's ABI number, as in arguments.h.
#pragma once

#include "tessera/device/fmha_backward.h"
#include "tessera/device/hip/fmha/arguments.h"

namespace tessera::device {

// What a workspace begins with, see kHipCounterBytes.
inline constexpr int kHipBackwardCounters = 1 << 16;

// The workspace holds, behind the counters, QueryRows of all queries. Grids: of the steps with
// blocks of queries, of keys, and of elements of dbias.
struct HipBackwardArguments {
  FmhaBackwardArguments backward;
  void* workspace;
  HipGrid queries, keys, biases;
};

}  // namespace tessera::device
