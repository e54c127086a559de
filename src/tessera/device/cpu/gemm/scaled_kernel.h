// A kernel of the blocked GEMM on operands with scales of blocks: the register blocks of a dense
// kernel, whose shape it has.
#pragma once

#include "tessera/device/cpu/gemm/packed_kernel.h"
#include "tessera/device/cpu/gemm/scaled_gemm.h"

namespace tessera::device {

template <class C>
struct ScaledKernel {
  static_assert(C::kPackA && C::kPackB && !C::kPreshuffled, "scales need both operands packed");
  static constexpr auto kShape = AskingKernel<C>::shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return scaled_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    scaled_run(kShape, arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
