// Fills the ring of tma_main_loop.h where threads copy a part of each stage themselves.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/tma_main_loop.h"

namespace tessera::device {

// All threads of the warps that copy call this, which the ring counts as copiers. A thread that is
// `chosen` asks the copy engine by ask(stage, step), and all of them copy by copy(stage, step).
template <class Loop, class Ask, class Copy>
__device__ __forceinline__ void fill_with_copies(const Loop& loop, typename Loop::Ring& ring,
                                                 const StepRange& range, bool chosen,
                                                 const Ask& ask, const Copy& copy) {
#pragma unroll 1
  for (int step = range.first; step < range.last; ++step) {
    barrier_wait(loop.empty(ring.stage), ring.phase ^ 1);
    if (chosen) ask(ring.stage, step);
    __syncwarp();
    copy(ring.stage, step);
    copies_arrive(loop.full(ring.stage));
    ring.next();
  }
}

}  // namespace tessera::device
