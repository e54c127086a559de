// New keys and values into a cache on a CPU, and attention over it when all of them are there.
#pragma once

#include "tessera/device/cpu/fmha/append_fmha.h"
#include "tessera/device/cpu/fmha/flash_fmha.h"

namespace tessera::device {

// C is the configuration of the attention, C::Append configures the appending.
template <class C>
struct ExtendFmha {
  using Arguments = FmhaExtendArguments<FmhaArguments>;
  using Attention = FmhaKernel<C>;
  using Append = FmhaAppendKernel<typename C::Append>;

  static void run(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const Arguments*>(arguments);
    Append::run(&g.append, thread);
    thread->barrier(thread->barrier_context);
    Attention::run(&g.attention, thread);
  }

  static i64 workspace_bytes(const void* arguments, int threads) {
    return Attention::workspace_bytes(&static_cast<const Arguments*>(arguments)->attention,
                                      threads);
  }

  static constexpr CpuKernel kernel() {
    CpuKernel kernel = Attention::kernel();
    kernel.entries[0] = {workspace_bytes, run};
    return kernel;
  }
};

}  // namespace tessera::device
