// The kernel of outputs_kernel.h whose register blocks are tiles of Intel AMX.
#pragma once

#include "tessera/device/cpu/gemm/outputs_kernel.h"
#include "tessera/device/cpu/gemm/tile_kernel.h"

namespace tessera::device {

template <class C>
struct OutputsTileKernel : OutputsOf<C, TileKernel> {
  using Base = OutputsOf<C, TileKernel>;
  static void run(const void* arguments, const CpuThread* thread) {
    Tiles::configure();
    Base::run_team(arguments, *thread);
    Tiles::release();
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{Base::workspace_bytes, run}}}; }
};

}  // namespace tessera::device
