// What a kernel of packed convolutions is made of, and what its threads need: views and the
// workspace.
#pragma once

#include "tessera/device/cpu/conv/conv_block.h"
#include "tessera/device/cpu/conv/conv_halo.h"
#include "tessera/device/cpu/conv/conv_operands.h"
#include "tessera/device/cpu/conv/conv_result.h"
#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/device/cpu/packed_sizes.h"

namespace tessera::device {

// The sizes of a kernel, and the functions that depend on them or on the result.
template <class T>
struct PackedConvShape {
  i64 rows, columns;           // of a register block
  i64 tile_m, tile_n, tile_k;  // the cache block: rows, columns, elements of the depth
  int wave_m, wave_n;          // most threads over rows and columns; 0: the caller's limit
  bool sums_are_output;        // when alpha is 1 and beta is 0
  bool has_steps;              // of an epilogue, some of which have an operand for each channel
  void (*multiply)(const BlockTask& t, i64 rows, int columns);
  void (*multiply_runs)(const BlockTask& t, const ConvRun* runs, i64 number);  // `rows` rows
  typename ConvFactors<T>::PackB pack_b;
  void (*correct)(const u32* panel, i64 words, u32* out);  // null where B needs none
  ConvFinish finish;
};

template <class T>
struct PackedConvSizes {
  using Factors = ConvFactors<T>;
  using Math = typename T::Math;
  using InPlace = typename ConvPixels<T>::InPlace;
  using Halo = ConvHalo<T>;
  using GroupCopy = ConvGroupCopy<T>;
  static constexpr bool kWeights = ConvTypes<T>::kWeights;
  static constexpr bool kAAcross = Factors::kAAcross;
  static constexpr int kPer = Math::kPerWord;

  const PackedConvShape<T>& s;

  static i64 round_up(i64 size, i64 to) { return blocks_of(size, to) * to; }

  // ---- sizes of the workspace of a thread, in words ----

  // Rows of A lie an odd number of vectors apart, so that they do not meet in one set of a cache.
  static i64 row_words(i64 words) { return (blocks_of(words, kLanes) | 1) * kLanes; }
  i64 a_pitch() const { return row_words(kAAcross ? s.tile_m : s.tile_k / kPer); }
  i64 a_words() const { return a_pitch() * (kAAcross ? s.tile_k / kPer : s.tile_m) + kLanes; }
  i64 start() const { return panel_start<Math>(s.columns); }
  i64 panel_words(i64 depth) const { return start() + depth / kPer * s.columns; }
  i64 b_words() const { return s.tile_n / s.columns * panel_words(s.tile_k) + kPanelSlack; }
  // Columns whose sums are kept together.
  i64 most_columns(const ConvView& v) const {
    return smaller(s.tile_n, round_up(v.columns, s.columns));
  }
  i64 super_rows(const ConvView& v, i64 depth) const {
    if (depth <= s.tile_k) return s.tile_m;
    const i64 fit = kPartialBytes / (most_columns(v) * 4) / s.tile_m * s.tile_m;
    return fit > s.tile_m ? fit : s.tile_m;
  }
  // The largest view: class 0 has the most pixels and taps of all classes.
  i64 partial_rows(const ConvArguments& g) const {
    const ConvView v = view(g, 0, 0);
    const i64 depth = most_depth(g) * Factors::merged_groups(g);
    return round_up(smaller(super_rows(v, depth), v.rows), s.rows);
  }
  i64 partial_words(const ConvArguments& g) const {
    return round_up(partial_rows(g) * most_columns(view(g, 0, 0)), kLanes);
  }
  i64 most_depth(const ConvArguments& g) const {
    i64 depth = view(g, 0, 0).depth;
    for (i64 c = 1, number = classes(g); c < number; ++c) {
      const i64 other = view(g, 0, c).depth;
      if (other > depth) depth = other;
    }
    return depth;
  }
  // Words of copies of groups, at the end of a thread's space.
  static i64 copy_words(const ConvArguments& g) { return Halo::words(g) + GroupCopy::words(g); }
  i64 thread_words(const ConvArguments& g, i64 of_partial) const {
    const i64 blocks = s.tile_m / s.rows * i64{sizeof(InPlace)} / 4;
    return round_up(a_words() + b_words() + of_partial + blocks, kLanes) + copy_words(g);
  }
  i64 workspace_bytes(const ConvArguments& g, int threads) const {
    return thread_words(g, partial_words(g)) * threads * 4;
  }

  // ---- views ----

  i64 cell(const ConvArguments& g) const { return Factors::cell_of(g, s.columns); }
  i64 classes_along(const ConvArguments& g, int dim) const {
    if (dim == kWidth && cell(g) > 1) return 1;
    return smaller(g.stride[dim], g.size[dim]);
  }
  i64 classes(const ConvArguments& g) const {
    if (T::kDirection != ConvDirection::backward_data) return 1;
    return classes_along(g, kDepth) * classes_along(g, kHeight) * classes_along(g, kWidth);
  }
  ConvView view(const ConvArguments& g, i64 group, i64 number, i64 merged = 1) const {
    if constexpr (kWeights) {
      return Factors::filter_view(g, group);
    } else {
      const i64 sizes[kSpatialDims] = {classes_along(g, kDepth), classes_along(g, kHeight),
                                       classes_along(g, kWidth)};
      i64 residue[kSpatialDims];
      digits_of(number, sizes, residue);
      return Factors::image_view(g, group, residue, cell(g), merged);
    }
  }
};

}  // namespace tessera::device
