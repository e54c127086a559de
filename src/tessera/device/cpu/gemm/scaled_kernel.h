// A kernel of the blocked GEMM on operands with scales of blocks: the register blocks of a dense
// kernel, whose shape it has, or those that scale the sums of pairs of bf16.
#pragma once

#include "tessera/device/cpu/gemm/packed_kernel.h"
#include "tessera/device/cpu/gemm/scaled_gemm.h"
#include "tessera/device/cpu/scaled_block.h"

namespace tessera::device {

template <class C>
struct ScaledKernel {
  static_assert(C::kPackA && C::kPackB && !C::kPreshuffled, "scales need both operands packed");

  static constexpr auto shape() {
    if constexpr (C::Math::kPerWord == 1) {
      return AskingKernel<C>::shape();
    } else {
      using Math = typename C::Math;
      static_assert(C::kTileK % C::kScaledK == 0, "blocks of k are whole runs");
      auto s = configured_shape<C, typename PackedKernel<C>::Types>();
      s.scaled_k = C::kScaledK;
      s.multiply = multiply_scaled<Math, C::kWarpTileM, C::kWarpTileN / kLanes, C::kScaledK / 2>;
      s.pack_a = pack_a_panel<typename C::A, Math, C::kWarpTileM, true, C::kAKContiguous>;
      s.pack_b = pack_b_panel<typename C::B, Math, C::kWarpTileN, C::kBKContiguous>;
      return s;
    }
  }
  static constexpr auto kShape = shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return scaled_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    scaled_run(kShape, arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
