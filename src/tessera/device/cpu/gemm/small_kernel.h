// A kernel for short calls: the code that depends on its configuration, besides the shared code.
#pragma once

#include "tessera/device/cpu/epilogue.h"
#include "tessera/device/cpu/gemm/small_gemm.h"
#include "tessera/device/cpu/row_starts.h"

namespace tessera::device {

template <class C>
struct SmallKernel {
  using Math = typename C::Math;

  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(sizeof(typename C::A) * Math::kPerWord == 4 &&
                    sizeof(typename C::B) == sizeof(typename C::A),
                "A and B are read in place as words of 32 bits");
  static_assert(C::kWarpTileN <= kSmallVectors * kLanes || C::kKind == SmallKind::rows,
                "a register block has more vectors than registers");
  static_assert(C::kNumD >= 0 && C::kNumD <= 4, "at most 4 D tensors");

  // The functions of a panel of V vectors.
  template <int V>
  static constexpr SmallShape::Blocks blocks_of_vectors() {
    constexpr int kRows = small_rows(V, false, kLanes);
    constexpr bool kKeeps = C::kTileM > C::kWarpTileM;
    SmallShape::Blocks x{};
    if constexpr (C::kBKContiguous) {
      constexpr int kFirst = small_rows(V, true, kLanes);
      x.rows = kFirst;
      x.multiply = small_block<Math, ColumnWords, V, kFirst>;
      x.words = ColumnWords<Math, V>::kWords;
    } else if constexpr (Math::kPerWord == 1) {
      x.rows = kRows;
      x.multiply = small_block<Math, PackedWords, V, kRows>;
      x.words = PackedWords<Math, V>::kWords;
    } else {
      x.rows = kRows;
      x.multiply = small_block<Math, RowWords, V, kRows>;
      x.words = RowWords<Math, V>::kWords;
    }
    if constexpr (kKeeps) {
      x.kept_rows = kRows;
      x.multiply_kept = small_block<Math, PackedWords, V, kRows>;
      x.kept_words = PackedWords<Math, V>::kWords;
    }
    return x;
  }

  static constexpr SmallShape shape() {
    SmallShape s{};
    s.element = sizeof(typename C::A);
    s.per_word = Math::kPerWord;
    s.k_contiguous = C::kBKContiguous;
    s.one_thread = C::kWaveM == 1 && C::kWaveN == 1;
    s.sizes = sizes_of<C>();
    s.sums_are_output = sums_are_output<C>();
    s.narrows = sums_convert<C>() && Math::kPerWord == 2 && __is_same(typename C::Out, bf16);
    s.finish = finish_rectangle<C>;
    if constexpr (Math::kBiased) s.row_sums = row_starts<Math>;
    if constexpr (C::kKind == SmallKind::blocks) {
      constexpr int kVectors = C::kWarpTileN / kLanes;
      s.vectors = kVectors;
      s.panel_rows = C::kTileM > C::kWarpTileM ? C::kTileM : 0;
      s.blocks[0] = blocks_of_vectors<1>();
      if constexpr (kVectors > 1) s.blocks[1] = blocks_of_vectors<2>();
      if constexpr (kVectors > 2) s.blocks[2] = blocks_of_vectors<3>();
      if constexpr (kVectors > 3) s.blocks[3] = blocks_of_vectors<4>();
    } else if constexpr (C::kKind == SmallKind::dots) {
      s.rows = C::kWarpTileM;
      s.columns = C::kWarpTileN;
      s.dots = small_dots<Math, C::kWarpTileM, C::kWarpTileN>;
      if constexpr (C::kWarpTileM == 3) s.dots_of_two = small_dots<Math, 2, C::kWarpTileN>;
    } else {
      s.rows = C::kWarpTileM;
      s.strip = small_strip<C::kWarpTileM>;
      s.axpy = small_axpy<C::kWarpTileM>;
    }
    return s;
  }
  static constexpr SmallShape kShape = shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return small_workspace_bytes<GemmArguments>(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    if constexpr (C::kKind == SmallKind::blocks) {
      small_run_blocks<GemmArguments>(kShape, arguments, *thread);
    } else if constexpr (C::kKind == SmallKind::dots) {
      small_run_dots<GemmArguments>(kShape, arguments, *thread);
    } else {
      small_run_rows<GemmArguments>(kShape, arguments, *thread);
    }
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
