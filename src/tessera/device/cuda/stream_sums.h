// For stream-K: the blocks that share the steps of K of a tile add up their sums through device
// memory. No block waits for another one; the last to arrive gets the total. Each group of 128
// threads does so independently.
#pragma once

#include "tessera/device/cuda/ptx.h"
#include "tessera/device/stream_work.h"

namespace tessera::device {

// The place of a group's sums: [place of stream_place()][group][vector of 4 accumulators][thread].
// Groups of all blocks of a cluster count.
template <class Acc, int kVectors, int kGroups, int kThreads = kGroupThreads>
struct StreamSums {
  static constexpr i64 kPlaceBytes = i64{kVectors} * kThreads * 16;

  char* sums;    // of the group at the first place
  u32* counter;  // the parts of the tile that have been stored for this group; 0 before and after
  StreamParts parts;
  int part;     // this block's one
  int barrier;  // the group's named barrier
  int thread;

  __device__ __forceinline__ char* at(int of_part) const {
    return sums + stream_place(parts, of_part) * (kPlaceBytes * kGroups) + thread * 16;
  }

  // True for the last group; `own` then holds the sums of all parts. Whichever group is last, parts
  // are added in their order. A group that finds all others there need not store its own sums.
  __device__ __forceinline__ bool add(Acc (&own)[kVectors][4]) const {
    const u32 others = static_cast<u32>(parts.count) - 1;
    bool last = thread == 0 && load_counter() == others;
    last = any_of_threads(barrier, kThreads, last);
    if (!last) {
      store(own);
      last = thread == 0 && count_global(counter) == others;
      last = any_of_threads(barrier, kThreads, last);
      if (!last) return false;
    }
    if (thread == 0) *counter = 0;
    device_fence();
    add_others(own);
    return true;
  }

 private:
  __device__ __forceinline__ u32 load_counter() const {
    u32 now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    return now;
  }

  __device__ __forceinline__ void store(const Acc (&own)[kVectors][4]) const {
    char* const mine = at(part);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) store_global(mine + i * kThreads * 16, own[i]);
    device_fence();
    threads_sync(barrier, kThreads);
  }

  // How many vectors are loaded at a time. One by one, each load would wait for L2.
  static constexpr int kAhead = kVectors > 32 ? 4 : 8;

  __device__ __forceinline__ void add_others(Acc (&own)[kVectors][4]) const {
#pragma unroll
    for (int first = 0; first < kVectors; first += kAhead) {
      Acc total[kAhead][4];
      take(0, first, own, total);
#pragma unroll 1
      for (int other = 1; other < parts.count; ++other) {
        Acc next[kAhead][4];
        take(other, first, own, next);
#pragma unroll
        for (int i = 0; i < kAhead * 4; ++i) total[i / 4][i % 4] += next[i / 4][i % 4];
      }
#pragma unroll
      for (int i = 0; i < kAhead * 4; ++i) {
        if (first + i / 4 < kVectors) own[first + i / 4][i % 4] = total[i / 4][i % 4];
      }
    }
  }

  // Vectors of a part from `first` on: this block's are still in its registers.
  __device__ __forceinline__ void take(int of_part, int first, const Acc (&own)[kVectors][4],
                                       Acc (&to)[kAhead][4]) const {
    const char* const from = at(of_part) + first * (kThreads * 16);
    const bool is_own = of_part == part;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= kVectors) continue;
      if (is_own) {
#pragma unroll
        for (int j = 0; j < 4; ++j) to[i][j] = own[first + i][j];
      } else {
        load_global(from + i * kThreads * 16, to[i]);
      }
    }
  }
};

}  // namespace tessera::device
