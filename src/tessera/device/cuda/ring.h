// A ring of stages in shared memory that producers fill and consumers empty.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// The next stage of a ring, and the parity of its barriers' phase.
template <int kStages>
struct Ring {
  u32 stage = 0, phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ void skip(u32 count) {
    const u32 to = stage + count;
    phase ^= to / kStages & 1;
    stage = to % kStages;
  }
};

// Tells the producers of a stage that the stage is empty. One thread tells one producing block; the
// threads are in different warps.
template <bool kRemote>
struct Release {
  u32 barrier;  // stage 0's barrier
  bool chosen;
  __device__ __forceinline__ void operator()(u32 stage) const {
    if (!chosen) return;
    if constexpr (kRemote) {
      barrier_arrive_remote(barrier + stage * 8);
    } else {
      barrier_arrive(barrier + stage * 8);
    }
  }
};

}  // namespace tessera::device
