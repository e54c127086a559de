// A kernel of the blocked GEMM on groups: the register blocks of a dense kernel, whose shape it
// has.
#pragma once

#include "tessera/device/cpu/gemm/grouped_gemm.h"
#include "tessera/device/cpu/gemm/packed_kernel.h"

namespace tessera::device {

template <class C>
struct GroupedKernel {
  static constexpr auto kShape = AskingKernel<C>::shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return grouped_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    grouped_run(kShape, arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
