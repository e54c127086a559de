// The entry _prepare of kernels for groups: looks for the first number that does not fit and
// reports it. The kernel computes nothing where there is one.
#pragma once

#include "tessera/device/cuda/gemm/group_arguments.h"
#include "tessera/device/cuda/types.h"

namespace tessera::device {

// Whether an earlier step found a number that does not fit.
__device__ __forceinline__ bool found_bad_group(const GroupArguments& x) {
  return x.bad_group != nullptr && x.bad_group[0] != 0;
}

// What a thread found; the first of all is reported. `first` is kNoPlace for all threads before any
// is here.
inline constexpr u64 kNoPlace = ~u64{0};
__device__ __forceinline__ void report_first(const GroupArguments& x, const BadGroup& bad,
                                             u64& first) {
  if (bad.found) atomicMin(&first, static_cast<u64>(bad.place));
  __syncthreads();
  if (first == kNoPlace) {
    if (threadIdx.x == 0) report(no_bad_group(), x.bad_group);
  } else if (bad.found && static_cast<u64>(bad.place) == first) {
    report(bad, x.bad_group);
  }
}

// One block; each thread looks at an equal part of the numbers.
struct GroupCheck {
  static constexpr int kThreads = 1024;
  static constexpr int kWarps = kThreads / 32;

  static __device__ __forceinline__ void run(const GroupArguments& x) {
    __shared__ int maxima[kWarps];
    __shared__ u64 first;
    const i64 count = group_rule(x).count;
    const i64 each = (count + kThreads - 1) / kThreads;
    const i64 from = min(i64{threadIdx.x} * each, count);
    const i64 to = min(from + each, count);
    if (threadIdx.x == 0) first = kNoPlace;
    const int before = most_before(x, from, to, maxima);
    report_first(x, first_bad_between(x, from, to, before), first);
  }

 private:
  // The largest number of the parts of earlier threads, at least 0. Ahead of the first number that
  // does not fit, that is the last number of a group.
  static __device__ __forceinline__ int most_before(const GroupArguments& x, i64 from, i64 to,
                                                    int (&maxima)[kWarps]) {
    const u32 lane = threadIdx.x % 32;
    int most = 0;
#pragma unroll 8
    for (i64 i = from; i < to; ++i) most = max(most, number_at(x, i));
    for (u32 distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffU, most, distance);
      if (lane >= distance) most = max(most, other);
    }
    if (lane == 31) maxima[threadIdx.x / 32] = most;
    __syncthreads();
    int before = __shfl_up_sync(0xffffffffU, most, 1);
    if (lane == 0) before = 0;
    for (u32 warp = 0; warp < threadIdx.x / 32; ++warp) before = max(before, maxima[warp]);
    return before;
  }
};

// The same for lists. Sizes do not depend on each other, so that threads look at neighbours.
struct ListCheck {
  static constexpr int kThreads = GroupCheck::kThreads;

  static __device__ __forceinline__ void run(const GroupArguments& x) {
    __shared__ u64 first;
    if (threadIdx.x == 0) first = kNoPlace;
    __syncthreads();
    BadGroup bad = no_bad_group();
    for (i64 i = threadIdx.x; i < 3 * x.groups && !bad.found; i += kThreads) bad = bad_size(x, i);
    report_first(x, bad, first);
  }
};

}  // namespace tessera::device
