// A kernel of the blocked GEMM on groups whose register blocks are tiles of Intel AMX.
#pragma once

#include "tessera/device/cpu/gemm/grouped_gemm.h"
#include "tessera/device/cpu/gemm/tile_kernel.h"

namespace tessera::device {

template <class C>
struct GroupedTileKernel {
  static constexpr auto kShape = TileKernel<C>::shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return grouped_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    Tiles::configure();
    grouped_run(kShape, arguments, *thread);
    Tiles::release();
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
