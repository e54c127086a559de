// The router of a mixture of experts on an AMD GPU: what lanes of a wave do for route_lanes.h, and
// the entries. One launch chooses, one puts slots in order; few tokens take one workgroup for both.
#pragma once

#include "tessera/device/hip/lanes.h"
#include "tessera/device/hip/math.h"
#include "tessera/device/hip/memory.h"
#pragma clang force_cuda_host_device begin
#include "tessera/device/route.h"
#pragma clang force_cuda_host_device end
// Behind the types that it uses.
#include "tessera/device/route_lanes.h"

namespace tessera::device {

struct WaveLanes {
  static constexpr int kLanes = device::kLanes;
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(__builtin_amdgcn_workitem_id_x());
  }
  static __device__ __forceinline__ int lane() { return lane_of_wave(); }
  static __device__ __forceinline__ int warp() {
    return __builtin_amdgcn_readfirstlane(thread() / kLanes);
  }
  static __device__ __forceinline__ int not_ahead(int x) { return device::not_ahead(x); }
  static __device__ __forceinline__ void meet_warp() { wave_barrier(); }
  static __device__ __forceinline__ void meet_block() { barrier(); }

  static __device__ __forceinline__ u32 bits(float x) { return device::bits<u32>(x); }
  static __device__ __forceinline__ float of_bits(u32 x) { return device::bits<float>(x); }
  static __device__ __forceinline__ float minus_infinity() { return of_bits(0xff800000U); }

  static __device__ __forceinline__ u32 most(u32 x) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      const u32 other = from_lane(x, lane() ^ distance);
      x = other > x ? other : x;
    }
    return x;
  }
  static __device__ __forceinline__ u32 least(u32 x) { return ~most(~x); }
  static __device__ __forceinline__ float most_number(float x) { return most_of_lanes(x); }
  static __device__ __forceinline__ float sum(float x) { return sum_of_lanes(x); }
  // The sum over the lanes before this one.
  static __device__ __forceinline__ u32 sum_before(u32 x) {
    u32 all = x;
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const u32 more = from_lane(all, (lane() - distance) & (kLanes - 1));
      all += lane() >= distance ? more : 0;
    }
    return all - x;
  }
  static __device__ __forceinline__ u64 lanes_with(bool holds) { return device::lanes_with(holds); }
  static __device__ __forceinline__ int count_bits(u64 x) { return __builtin_popcountll(x); }
  static __device__ __forceinline__ void add(u32* to, u32 x) {
    __hip_atomic_fetch_add(to, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  }
};

template <class C>
struct RouteKernel {
  using Lanes = RouteLanes<C, WaveLanes>;

  static __device__ __forceinline__ u32* words() {
    __shared__ static u32 all[Lanes::kWords];
    return all;
  }
  static __device__ __forceinline__ i64 block() { return __builtin_amdgcn_workgroup_id_x(); }
  // blocks: as many as the launch has.
  static __device__ __forceinline__ void choose(const RouteArguments& g) {
    Lanes::choose(g, words(), block(), g.blocks);
  }
  static __device__ __forceinline__ void order(const RouteArguments& g) {
    Lanes::order(g, words(), block());
  }
  static __device__ __forceinline__ void run_all(const RouteArguments& g) {
    Lanes::run_all(g, words());
  }
};

}  // namespace tessera::device
