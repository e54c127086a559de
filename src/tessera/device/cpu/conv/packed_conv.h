// A kernel of convolutions as blocked products of matrices: the code that depends on its
// configuration, besides the shared code.
#pragma once

#include "tessera/device/cpu/conv/packed_driver.h"

namespace tessera::device {

template <class C>
struct PackedConv {
  using Math = typename C::Math;
  using Types = PackedConvTypes<C::kDirection, C::kChannelsLast, typename C::X, typename C::W,
                                typename C::Y, Math>;
  using Factors = ConvFactors<Types>;
  using Column = typename Factors::Column;
  using Out = typename ConvTypes<C>::Out;
  static constexpr int kRows = C::kWarpTileM, kColumns = C::kWarpTileN;
  static constexpr int kPer = Math::kPerWord;
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(kColumns % kLanes == 0, "warp_tile_n must be a multiple of the vector's lanes");
  static_assert(kColumns <= kMostConvColumns, "warp_tile_n is at most 64");
  static_assert(C::kTileM % kRows == 0, "tile_m must be a multiple of warp_tile_m");
  static_assert(C::kTileN % kColumns == 0, "tile_n must be a multiple of warp_tile_n");
  static_assert(C::kTileK % kPer == 0, "tile_k must be a multiple of warp_tile_k");

  static constexpr PackedConvShape<Types> shape() {
    constexpr bool kIsInt = __is_same(typename Math::Acc, i32v);
    PackedConvShape<Types> s{};
    s.rows = kRows, s.columns = kColumns;
    s.tile_m = C::kTileM, s.tile_n = C::kTileN, s.tile_k = C::kTileK;
    s.wave_m = C::kWaveM, s.wave_n = C::kWaveN;
    s.sums_are_output = C::kNumSteps == 0 && (kIsInt ? __is_same(Out, int) : __is_same(Out, float));
    s.has_steps = C::kNumSteps > 0;
    s.multiply = multiply_any<Math, kRows, kColumns / kLanes, 0>;
    if constexpr (Factors::Pixels::kMayBeInPlace) {
      s.multiply_runs = multiply_runs<Math, kRows, kColumns / kLanes>;
    }
    s.pack_b = pack_part<Column, Math, kColumns, Factors::kBKContiguous>;
    if (Math::kBiased) s.correct = column_corrections<Math, kColumns>;
    s.finish = finish_conv<C>;
    return s;
  }
  static constexpr PackedConvShape<Types> kShape = shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return packed_conv_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    packed_conv_run(kShape, arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
