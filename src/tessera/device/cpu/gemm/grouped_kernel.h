// A kernel of a GEMM on groups: the register blocks or strips of a dense kernel, whose shape it
// has.
#pragma once

#include "tessera/device/cpu/gemm/grouped_gemm.h"
#include "tessera/device/cpu/gemm/packed_kernel.h"

namespace tessera::device {

// `Blocks` is the kernel whose shape it has.
template <class C, template <class> class Blocks>
struct GroupedOf {
  static constexpr auto kShape = Blocks<C>::shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return grouped_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    grouped_run(kShape, arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

template <class C>
using GroupedKernel = GroupedOf<C, AskingKernel>;

}  // namespace tessera::device
