// K in slices: blocks that multiply different slices of K for the same tile add up through device
// memory. Whoever comes last holds the sum. Groups of 128 threads do so on their own.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// Where a group's sums go: [slice][place][vector of 4 accumulators][thread], one slice for all of
// them when they are added atomically.
template <class Acc, int kVectors, bool kAtomic, int kThreads = 128>
struct SliceSums {
  static constexpr i64 kPlaceBytes = i64{kVectors} * kThreads * 16;

  char* sums;     // of slice 0
  u32* counters;  // of the groups that have come, by place; 0 before and after
  int place, places;
  int slice, slices;
  int barrier;  // a named one of the group
  int thread;

  __device__ __forceinline__ char* at(int of_slice) const {
    const i64 group = (kAtomic ? 0 : i64{of_slice} * places) + place;
    return sums + group * kPlaceBytes + thread * 16;
  }

  // True for the last group, whose `own` then are the sums over all slices. Slices are added in
  // their order, whoever does it, unless atomically.
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

  // Several slices are on their way at a time: one after the other, each would wait for L2.
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
