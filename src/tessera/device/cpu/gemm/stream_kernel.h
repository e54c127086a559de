// A bandwidth-bound kernel: the code that depends on its configuration, besides the shared code.
#pragma once

#include "tessera/device/cpu/epilogue.h"
#include "tessera/device/cpu/gemm/stream_gemm.h"

namespace tessera::device {

template <class C>
struct StreamKernel {
  using A = typename C::A;
  using B = typename C::B;
  using Math = typename C::Math;
  using Types = OperandTypes<A, B, Math, C::kAKContiguous, C::kBKContiguous>;

  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(C::kTileN % kLanes == 0, "tile_n must be a multiple of the vector's lanes");
  static_assert(C::kWarpTileN % kLanes == 0,
                "warp_tile_n must be a multiple of the vector's lanes");
  static_assert(C::kTileK % Math::kPerWord == 0, "tile_k must be a multiple of warp_tile_k");
  static_assert(C::kWaveK == 1, "threads share the wide side only");
  static_assert(!C::kPackA && !C::kPackB && !C::kPreshuffled, "operands are read in place");
  static_assert(C::kNumD >= 0 && C::kNumD <= 4, "at most 4 D tensors");

  static constexpr StreamShape<Types> kShape = {
      C::kTileN,
      C::kWaveM == 1 && C::kWaveN == 1,
      sizes_of<C>(),
      multiply_strip<B, Math, C::kBKContiguous>,
      multiply_strip<A, Math, C::kAKContiguous>,
      finish_rectangle<C>,
  };

  static i64 workspace_bytes(const void* arguments, int threads) {
    return stream_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    stream_run(kShape, arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
