// The counters of a launch of flash kernels, at the workspace's begin: of tiles or items, from
// which blocks take the next one, and of blocks that have ended.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// The last block to end clears the counters.
__device__ __forceinline__ void end_block(void* workspace) {
  auto* const counters = static_cast<u32*>(workspace);
  __threadfence();
  if (atomicAdd(counters + 1, 1U) == gridDim.x - 1) {
    counters[0] = 0;
    counters[1] = 0;
    __threadfence();
  }
}

}  // namespace tessera::device
