// A kernel of the blocked GEMM where out has a gate, rows by index or 8 bits: the register blocks
// of a dense kernel, whose sums it finishes in its own way.
#pragma once

#include "tessera/device/cpu/gemm/outputs_gemm.h"
#include "tessera/device/cpu/gemm/packed_kernel.h"

namespace tessera::device {

// A configuration whose output is the sums.
template <class C>
struct SumsOf : C {
  static constexpr bool kIsInteger = __is_same(typename C::Math::Acc, i32v);
  template <bool kInteger, class Integer, class Other>
  struct Either {
    using Type = Integer;
  };
  template <class Integer, class Other>
  struct Either<false, Integer, Other> {
    using Type = Other;
  };
  using Out = typename Either<kIsInteger, int, float>::Type;
  static constexpr int kNumSteps = 0;
};

// `Blocks` is the kernel whose register blocks it has.
template <class C, template <class> class Blocks>
struct OutputsOf {
  static constexpr auto shape() {
    auto s = Blocks<SumsOf<C>>::shape();
    s.sizes = sizes_of<C>();
    s.finish = nullptr;
    return s;
  }
  static constexpr auto kShape = shape();
  static constexpr OutputsShape kOutputs = {C::kGate, C::kGateInterleaved, C::kIndexing, C::kQuant,
                                            OutputsFinish<C>::run};

  static i64 workspace_bytes(const void* arguments, int threads) {
    return outputs_workspace_bytes(kShape, kOutputs, arguments, threads);
  }
  static void run_team(const void* arguments, const CpuThread& thread) {
    outputs_run(kShape, kOutputs, arguments, thread);
  }
};

template <class C, template <class> class Blocks>
struct OutputsEntries : OutputsOf<C, Blocks> {
  using Base = OutputsOf<C, Blocks>;
  static void run(const void* arguments, const CpuThread* thread) {
    Base::run_team(arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{Base::workspace_bytes, run}}}; }
};

template <class C>
using OutputsKernel = OutputsEntries<C, AskingKernel>;

}  // namespace tessera::device
