// For K in slices: blocks that multiply different slices of K for the same tile add up their sums
// through device memory. The last one to arrive gets the total. Each group of 128 threads does so
// independently.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// The place of a group's sums: [slice][place][vector of 4 accumulators][thread]. With atomic adds
// there is only one slice.
template <class Acc, int kVectors, bool kAtomic, int kThreads = 128>
struct SliceSums {
  static constexpr i64 kPlaceBytes = i64{kVectors} * kThreads * 16;

  char* sums;     // of slice 0
  u32* counters;  // the number of groups that have arrived, for each place; 0 before and after
  int place, places;
  int slice, slices;
  int barrier;  // the group's named barrier
  int thread;

  __device__ __forceinline__ char* at(int of_slice) const {
    const i64 group = (kAtomic ? 0 : i64{of_slice} * places) + place;
    return sums + group * kPlaceBytes + thread * 16;
  }

  // True for the last group; `own` then holds the sums over all slices. Whichever group is last,
  // slices are added in their order, except with atomic adds.
  __device__ __forceinline__ bool add(Acc (&own)[kVectors][4]) const {
    char* const mine = at(slice);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if constexpr (kAtomic) {
        add_global(mine + i * kThreads * 16, own[i]);
      } else {
        store_global(mine + i * kThreads * 16, own[i]);
      }
    }
    device_fence();
    threads_sync(barrier, kThreads);
    bool last = thread == 0 && count_global(counters + place) == static_cast<u32>(slices) - 1;
    last = any_of_threads(barrier, kThreads, last);
    if (!last) return false;
    if (thread == 0) counters[place] = 0;
    device_fence();
    load_sums(own);
    return true;
  }

  // How many slices are loaded at a time. One by one, each load would wait for L2.
  static constexpr int kAhead = kVectors >= 8 ? 1 : 8 / kVectors;

  __device__ __forceinline__ void load_sums(Acc (&own)[kVectors][4]) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) load_global(at(0) + i * kThreads * 16, own[i]);
#pragma unroll 1
    for (int first = 1; !kAtomic && first < slices; first += kAhead) {
      Acc next[kAhead][kVectors][4] = {};
#pragma unroll
      for (int i = 0; i < kAhead * kVectors; ++i) {
        const int other = first + i / kVectors;
        const char* from = at(other) + i % kVectors * kThreads * 16;
        if (other < slices) load_global(from, next[i / kVectors][i % kVectors]);
      }
#pragma unroll
      for (int i = 0; i < kAhead * kVectors * 4; ++i) {
        own[i / 4 % kVectors][i % 4] += next[i / 4 / kVectors][i / 4 % kVectors][i % 4];
      }
    }
  }
};

}  // namespace tessera::device
