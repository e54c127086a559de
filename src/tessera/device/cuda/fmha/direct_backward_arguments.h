// The arguments of the gradients of attention on the ordinary cores of a GPU. Plain C layout; a
// change here raises the family's ABI number (kAbi in src/tessera/families/fmha/fmha.h).
#pragma once

#include "tessera/device/cuda/abi.h"
#include "tessera/device/fmha_backward.h"

namespace tessera::device {

// The workspace holds, behind the counters, QueryRows of all queries.
struct DirectBackwardArguments {
  FmhaBackwardArguments backward;
  void* workspace;
};

}  // namespace tessera::device
