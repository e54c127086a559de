// For K in slices: workgroups that multiply different slices of K for the same tile add up their
// sums through device memory. The last one to arrive gets the total.
#pragma once

#include "tessera/device/hip/memory.h"

namespace tessera::device {

// The place of a workgroup's sums: [place][vector of 4 sums][thread]. Parts of a tile are slices of
// K, whose places are [slice][tile], or the parts of stream-K. With atomic adds there is only one
// place, which is zero before the launch.
template <class Acc, int kVectors, bool kAtomic, int kThreads>
struct HipSliceSums {
  using Vector = Vec<Acc, 4>;
  static constexpr i64 kPlaceBytes = i64{kVectors} * kThreads * 16;

  u64 sums;      // address of the first place
  u32* counter;  // the number of workgroups that have arrived at the tile; 0 before and after
  // The places of the tile's parts: of the first, from one to the next, and as many further of all
  // but the first.
  int first, distance, further;
  int slice, slices;  // this workgroup's part, and how many there are
  int thread;

  using Place = __attribute__((address_space(1))) Vector*;
  // The place of the next vector. Addresses that lie apart are not computed ahead of their use, or
  // they would take the registers that sums leave.
  static __device__ __forceinline__ Place next(Place place) {
    auto address = reinterpret_cast<u64>(place + kThreads);
    asm volatile("" : "+v"(address));
    return reinterpret_cast<Place>(address);
  }
  __device__ __forceinline__ Place at(int of_slice) const {
    const i64 place =
        (kAtomic ? 0 : i64{of_slice} * distance + (of_slice > 0 ? further : 0)) + first;
    const u64 address = sums + static_cast<u64>(place * kPlaceBytes + thread * 16);
    return reinterpret_cast<Place>(address);
  }

  // True in the last workgroup; `own` then holds the sums over all slices. Whichever workgroup is
  // last, slices are added in their order, except with atomic adds. `flag` is a word of LDS.
  template <class Sum, int kSums>
  __device__ __forceinline__ bool add(Sum (&own)[kSums], Shared* flag) const {
    constexpr int kEach = kVectors / kSums;
    Place mine = at(slice);
#pragma unroll
    for (int i = 0; i < kVectors; ++i, mine = next(mine)) {
      const Sum& sum = own[i / kEach];
      const int j = i % kEach * 4;
      const Vector vector = {sum[j], sum[j + 1], sum[j + 2], sum[j + 3]};
      if constexpr (kAtomic) {
        add_to(reinterpret_cast<__attribute__((address_space(1))) Acc*>(mine), vector);
      } else {
        *mine = vector;
      }
    }
    if (!is_last(flag)) return false;
    load(own);
    return true;
  }

 private:
  static __device__ __forceinline__ void add_to(__attribute__((address_space(1))) Acc* to,
                                                const Vector& vector) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kSame<Acc, float>) {
        __builtin_amdgcn_global_atomic_fadd_f32(to + i, vector[i]);
      } else {
        __hip_atomic_fetch_add((Acc*)(to + i), vector[i], __ATOMIC_RELAXED,
                               __HIP_MEMORY_SCOPE_AGENT);
      }
    }
  }

  // Every thread makes its sums visible to the device, and sees the sums of others afterwards.
  __device__ __forceinline__ bool is_last(Shared* flag) const {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    barrier();
    if (thread == 0) {
      const u32 before =
          __hip_atomic_fetch_add(counter, 1U, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
      const u32 last = before == static_cast<u32>(slices) - 1;
      if (last) __hip_atomic_store(counter, 0U, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
      store_shared(flag, last);
    }
    barrier();
    const u32 last = __builtin_amdgcn_readfirstlane(load_shared<u32>(flag));
    barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    return last != 0;
  }

  template <class Sum, int kSums>
  __device__ __forceinline__ void load(Sum (&own)[kSums]) const {
    constexpr int kEach = kVectors / kSums;
#pragma unroll
    for (int i = 0; i < kSums; ++i) own[i] = Sum(0);
#pragma unroll 1
    for (int other = 0; other < (kAtomic ? 1 : slices); ++other) {
      Place from = at(other);
#pragma unroll
      for (int i = 0; i < kVectors; ++i, from = next(from)) {
        const Vector vector = *from;
        Sum& sum = own[i / kEach];
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i % kEach * 4 + j] += vector[j];
      }
    }
  }
};

}  // namespace tessera::device
