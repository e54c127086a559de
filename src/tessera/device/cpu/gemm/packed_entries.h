// What kernels of the blocked GEMM share: the fields of their shape that the configuration gives as
// they are, and their entries.
#pragma once

#include "tessera/device/cpu/epilogue.h"
#include "tessera/device/cpu/gemm/packed_gemm.h"

namespace tessera::device {

template <class C, class Types>
constexpr PackedShape<Types> configured_shape() {
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(C::kTileM % C::kWarpTileM == 0, "tile_m must be a multiple of warp_tile_m");
  static_assert(C::kTileN % C::kWarpTileN == 0, "tile_n must be a multiple of warp_tile_n");
  static_assert(C::kNumD >= 0 && C::kNumD <= 4, "at most 4 D tensors");
  PackedShape<Types> s{};
  s.rows = C::kWarpTileM, s.columns = C::kWarpTileN;
  s.tile_m = C::kTileM, s.tile_n = C::kTileN, s.tile_k = C::kTileK;
  s.wave_m = C::kWaveM, s.wave_n = C::kWaveN, s.wave_k = C::kWaveK;
  s.packs_a = C::kPackA, s.packs_b = C::kPackB;
  s.sizes = sizes_of<C>();
  s.sums_are_output = sums_are_output<C>();
  s.finish = finish_rectangle<C>;
  return s;
}

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
