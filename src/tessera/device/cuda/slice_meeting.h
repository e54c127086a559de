// For sums in slices: the groups of threads that left the slices of the same sums in device memory
// meet at a counter, and then each of them adds up a share of these sums.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// The shares from `first` up to, but not including, `last`, and in thread 0 whether it saw that all
// groups have arrived.
struct SliceShares {
  int first, last;
  bool saw_all;
};

// A group waits for the others only for a while, because their blocks may not be running yet. Once
// a group has left, the last group to arrive adds up all shares.
template <int kThreads, int kFieldBits>
struct Meeting {
  // Fields of the counter: the groups that have arrived, the ones among them that left before the
  // last one came, and those that have seen that all are here.
  static constexpr u32 kArrived = 1, kLeft = 1 << kFieldBits, kSaw = 1 << 2 * kFieldBits;
  static constexpr int kMostSlices = (1 << kFieldBits) - 1;
  static constexpr u32 kPatience = 1 << 15;  // clock cycles, about 18 us

  u32* counter;  // 0 before and after
  int slice, slices;
  int barrier;  // the group's named barrier
  int thread;
  bool waits;  // whether all groups run at the same time; equal for all of them

  static __device__ __forceinline__ int arrived(u32 count) { return count & kMostSlices; }
  static __device__ __forceinline__ int left(u32 count) { return count / kLeft & kMostSlices; }
  static __device__ __forceinline__ int saw(u32 count) { return count / kSaw & kMostSlices; }

  // What this group adds up: its own share, or none, or all. Call it when the group has stored its
  // sums; then the sums of all groups can be loaded. Thread 0 releases and acquires for its group,
  // because the named barrier orders the accesses of all threads before and after its own.
  __device__ __forceinline__ SliceShares shares() const {
    threads_sync(barrier, kThreads);
    bool own = false, all = false, saw_all = false;
    if (thread == 0) {
      const u32 before = count_global(counter);
      const u32 now = waits ? wait(before + kArrived) : before + kArrived;
      saw_all = arrived(now) == slices;
      own = waits && saw_all && left(now) == 0;
      all = !own && arrived(before) == slices - 1;
    }
    __syncwarp();
    own = any_of_threads(barrier, kThreads, own);
    all = any_of_threads(barrier, kThreads, all);
    if (own) return {slice, slice + 1, saw_all};
    return {0, all ? slices : 0, saw_all};
  }

  // Call it when the shares have been added up. The last group that saw all others sets the counter
  // to 0. Where groups do not wait, only the last one sees all others.
  __device__ __forceinline__ void end(const SliceShares& shares) const {
    if (thread != 0 || !shares.saw_all) return;
    if (waits) {
      const u32 before = atomicAdd(counter, kSaw);
      if (saw(before) + left(before) < slices - 1) return;
    }
    *counter = 0;
  }

 private:
  // The counter when all groups have arrived, or when this one leaves.
  __device__ __forceinline__ u32 wait(u32 now) const {
    const u32 begin = clock_cycles();
#pragma unroll 1
    while (arrived(now) < slices) {
      if (clock_cycles() - begin < kPatience) {
        now = load_counter();
      } else {
        const u32 found = replace_counter(now, now + kLeft);
        if (found == now) return now + kLeft;
        now = found;
      }
    }
    return now;
  }

  static __device__ __forceinline__ u32 clock_cycles() {
    u32 cycles;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles));
    return cycles;
  }
  __device__ __forceinline__ u32 load_counter() const {
    u32 now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    return now;
  }
  __device__ __forceinline__ u32 replace_counter(u32 from, u32 to) const {
    u32 found;
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(found)
                 : "l"(counter), "r"(from), "r"(to)
                 : "memory");
    return found;
  }
};

// Where the groups of 128 threads meet that multiply slices of a depth.
using SliceMeeting = Meeting<kGroupThreads, 8>;

}  // namespace tessera::device
