// What the host calls of a kernel of the blocked GEMM.
#pragma once

#include "tessera/device/cpu/gemm/packed_gemm.h"

namespace tessera::device {

// The entries of `Kernel`, which has a shape, kShape, and what a thread does, run_shape().
template <class C, class Kernel>
struct PackedEntries {
  static i64 workspace_bytes(const void* arguments, int threads) {
    return packed_workspace_bytes(Kernel::kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    Kernel::run_shape(arguments, *thread);
  }
  // The second entry of preshuffle kernels: one thread packs B to the address of the output.
  static i64 no_bytes(const void*, int) { return 0; }
  static void pack(const void* arguments, const CpuThread* thread) {
    if (thread->index != 0) return;
    packed_b(Kernel::kShape, arguments, static_cast<const GemmArguments*>(arguments)->out);
  }

  static constexpr CpuKernel kernel() {
    if (C::kPreshuffled) return {C::kAbiVersion, {{workspace_bytes, run}, {no_bytes, pack}}};
    return {C::kAbiVersion, {{workspace_bytes, run}}};
  }
};

}  // namespace tessera::device
