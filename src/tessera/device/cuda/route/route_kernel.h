// The router of a mixture of experts on an NVIDIA GPU: what lanes of a warp do for route_lanes.h,
// and the entries. One launch chooses, one puts slots in order; few tokens take one block for both.
#pragma once

#include "tessera/device/cuda/math.h"
// Behind the types that it uses.
#include "tessera/device/route_lanes.h"

namespace tessera::device {

struct WarpLanes {
  static constexpr int kLanes = 32;
  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int lane() { return thread() % kLanes; }
  static __device__ __forceinline__ int warp() { return thread() / kLanes; }
  static __device__ __forceinline__ int not_ahead(int x) { return x; }
  static __device__ __forceinline__ void meet_warp() { __syncwarp(); }
  static __device__ __forceinline__ void meet_block() { __syncthreads(); }

  static __device__ __forceinline__ u32 bits(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ float of_bits(u32 x) { return __uint_as_float(x); }
  static __device__ __forceinline__ float minus_infinity() { return device::minus_infinity(); }

  static __device__ __forceinline__ u32 most(u32 x) { return __reduce_max_sync(~0U, x); }
  static __device__ __forceinline__ u32 least(u32 x) { return __reduce_min_sync(~0U, x); }
  static __device__ __forceinline__ float most_number(float x) { return most_of_warp(x); }
  static __device__ __forceinline__ float sum(float x) { return sum_of_warp(x); }
  // The sum over the lanes before this one.
  static __device__ __forceinline__ u32 sum_before(u32 x) {
    u32 all = x;
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const u32 more = __shfl_up_sync(~0U, all, static_cast<unsigned>(distance));
      all += lane() >= distance ? more : 0;
    }
    return all - x;
  }
  static __device__ __forceinline__ u64 lanes_with(bool holds) { return __ballot_sync(~0U, holds); }
  static __device__ __forceinline__ int count_bits(u64 x) { return __popcll(x); }
  static __device__ __forceinline__ void add(u32* to, u32 x) { atomicAdd(to, x); }
};

template <class C>
struct RouteKernel {
  using Lanes = RouteLanes<C, WarpLanes>;

  static __device__ __forceinline__ u32* words() {
    __shared__ u32 all[Lanes::kWords];
    return all;
  }
  static __device__ __forceinline__ void choose(const RouteArguments& g) {
    Lanes::choose(g, words(), blockIdx.x, g.blocks);
  }
  static __device__ __forceinline__ void order(const RouteArguments& g) {
    Lanes::order(g, words(), blockIdx.x);
  }
  static __device__ __forceinline__ void run_all(const RouteArguments& g) {
    Lanes::run_all(g, words());
  }
};

}  // namespace tessera::device
