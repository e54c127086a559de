// What the lanes of a wave tell each other. The words go through the crossbar of LDS and need no
// room in it. All lanes must take part.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

__device__ __forceinline__ int lane_of_wave() {
  return static_cast<int>(__builtin_amdgcn_workitem_id_x()) % kLanes;
}

// The lanes that are on and for which the words hold, a bit for each.
__device__ __forceinline__ u64 lanes_with(bool holds) {
#if defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_ballot_w32(holds);
#else
  return __builtin_amdgcn_ballot_w64(holds);
#endif
}

// The word of another lane.
template <class T>
__device__ __forceinline__ T from_lane(T x, int lane) {
  static_assert(sizeof(T) == sizeof(int), "lanes exchange words of 32 bits");
  return bits<T>(__builtin_amdgcn_ds_bpermute(lane * static_cast<int>(sizeof(int)), bits<int>(x)));
}

// The maximum and the sum of the numbers of so many neighbouring lanes, which all of them get.
template <int kCount = kLanes>
__device__ __forceinline__ float most_of_lanes(float x) {
#pragma unroll
  for (int distance = kCount / 2; distance > 0; distance /= 2) {
    x = __builtin_fmaxf(x, from_lane(x, lane_of_wave() ^ distance));
  }
  return x;
}
template <int kCount = kLanes>
__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
  for (int distance = kCount / 2; distance > 0; distance /= 2) {
    x += from_lane(x, lane_of_wave() ^ distance);
  }
  return x;
}

}  // namespace tessera::device
