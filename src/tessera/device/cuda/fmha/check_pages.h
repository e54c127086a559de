// The entry that a checked launch runs first.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

// One block looks at the entries of one sequence after the other. It stops at the first sequence
// with a bad page, of which its threads have found the least.
template <FmhaLengths kLengths, FmhaPages kPages, class Arguments>
__device__ __forceinline__ void check_pages(const Arguments& g) {
  constexpr int kNone = 0x7fffffff;
  __shared__ int least;
  if (threadIdx.x == 0) report(no_bad_page(), g.bad_page);
#pragma unroll 1
  for (i64 batch = 0; batch < g.batch; ++batch) {
    const auto s = sequence_of<kLengths, kPages>(g, batch);
    if (threadIdx.x == 0) least = kNone;
    __syncthreads();
#pragma unroll 1
    for (i64 entry = first_entry(g, s) + threadIdx.x; entry < entries_of(g, s);
         entry += blockDim.x) {
      if (!is_bad_page(g, s, entry)) continue;
      atomicMin(&least, static_cast<int>(entry));
      break;
    }
    __syncthreads();
    if (least != kNone) {
      if (threadIdx.x == 0) report(bad_page_at(g, s, batch, least), g.bad_page);
      return;
    }
    __syncthreads();  // before the next sequence sets `least`
  }
}

}  // namespace tessera::device
