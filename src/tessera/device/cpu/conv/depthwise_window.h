// The inner loops of depthwise convolutions whose steps are few and known: every source is loaded
// once and meets all its factors, which are in registers.
#pragma once

#include "tessera/device/cpu/conv/depthwise_block.h"

namespace tessera::device {

// Row r meets step t at place r * kRow + t * kStep, with which the nest agrees.
template <class S, class F, DepthwiseKind kKind, int kRow, int kStep, int kRows, int kSteps,
          int kVectors>
struct DepthwiseWindow {
  using Nest = DepthwiseNest<S, F>;
  using Vectors = f32v[kVectors];
  using Factors = Vectors[kSteps];
  using Sums = Vectors[kRows];
  // The last vector has fewer lanes only where a block is one vector.
  [[gnu::always_inline]] static int lanes_of(int last) { return kVectors == 1 ? last : kLanes; }
  static constexpr int kPlaces = (kRows - 1) * kRow + (kSteps - 1) * kStep + 1;

  [[gnu::always_inline]] static void load_factors(const Nest& t, const F* f, int last,
                                                  Factors& factors) {
#pragma GCC unroll 8
    for (int j = 0; j < kSteps; ++j, f += t.factor_step) {
      if constexpr (kKind == DepthwiseKind::splat) {
        for (int v = 0; v < kVectors; ++v) factors[j][v] = splat(*f);
      } else {
        load_lanes(f, last, factors[j]);
      }
    }
  }
  // One place: all rows and steps that meet there.
  [[gnu::always_inline]] static void add(int place, const S* from, int last, const Factors& factors,
                                         Sums& sums) {
    Vectors source;
    load_lanes(from, last, source);
#pragma GCC unroll 8
    for (int j = 0; j < kSteps; ++j) {
      const int rest = place - j * kStep, row = rest / kRow;
      if (rest < 0 || rest % kRow != 0 || row >= kRows) continue;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[row][v] += source[v] * factors[j][v];
    }
  }
  [[gnu::always_inline]] static void add_places(const Nest& t, const S* from, i64 place, int last,
                                                const Factors& factors, Sums& sums) {
#pragma GCC unroll 32
    for (int i = 0; i < kPlaces; ++i) {
      if (place + i >= 0 && place + i < t.size) add(i, from, last, factors, sums);
      from += t.source_place;
      asm("" : "+r"(from));  // the compiler is to keep one pointer
    }
  }
  [[gnu::always_inline]] static void store_row(const DepthwiseSums& out, i64 r, int last,
                                               const Vectors& sums) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors - 1; ++v) store(out.row(r) + v * kLanes, sums[v]);
    float* const to = out.row(r) + (kVectors - 1) * kLanes;
    if (kVectors > 1) return store(to, sums[kVectors - 1]);
    store_first(to, sums[kVectors - 1], last);
  }

  [[gnu::always_inline]] static void run_rows(const Nest& t, const DepthwiseSums& out, i64 rows) {
    const int last = lanes_of(out.last);
    Sums sums = {};
    for (i64 o = 0; o < t.outer; ++o) {
      for (i64 m = 0; m < t.middle; ++m) {
        Factors factors;
        load_factors(t, t.factor + o * t.factor_outer + m * t.factor_middle, last, factors);
        add_places(t, t.source + o * t.source_outer + t.place_of_middle(m), t.place, last, factors,
                   sums);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) return;
      store_row(out, r, last, sums[r]);
    }
  }
  // Any number of rows, kSteps steps, whole blocks of kVectors vectors: all blocks of some rows
  // before the next rows, so that memory is gone through in order.
  [[gnu::noinline]] static void run(const Nest& nest, const DepthwiseSums& sums) {
    Nest rows = nest;
    DepthwiseSums out = sums;
    for (i64 row = 0; row < sums.rows; row += kRows) {
      Nest t = rows;
      out.data = sums.data + row * sums.ld;
      for (i64 v = 0; v < sums.vectors; v += kVectors) {
        run_rows(t, out, sums.rows - row);
        t.source += kVectors * kLanes;
        if constexpr (kKind != DepthwiseKind::splat) t.factor += kVectors * kLanes;
        out.data += kVectors * kLanes;
      }
      rows.source += kRows * kRow * rows.source_place;
      rows.place += kRows * kRow;
    }
  }

  // kRows rows of one block, whole groups of kSteps steps; added to the sums.
  [[gnu::noinline]] static void run_steps(const Nest& nest, const DepthwiseSums& out) {
    const Nest t = nest;
    const int last = lanes_of(out.last);
    Sums sums;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) load_lanes(out.row(r), last, sums[r]);
    for (i64 o = 0; o < t.outer; ++o) {
      for (i64 m = 0; m < t.middle; ++m) {
        const S* source = t.source + o * t.source_outer + t.place_of_middle(m);
        const F* f = t.factor + o * t.factor_outer + m * t.factor_middle;
        for (i64 j = 0; j + kSteps <= t.steps; j += kSteps) {
          Factors factors;
          load_factors(t, f, last, factors);
          add_places(t, source, t.place + j * kStep, last, factors, sums);
          source += kSteps * kStep * t.source_place;
          f += kSteps * t.factor_step;
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) store_row(out, r, last, sums[r]);
  }
};

// Pixels are `kPixels` rows and taps are steps, or the other way round.
template <class S, class F, DepthwiseKind kKind, bool kTapsAreRows, int kPixelStep, int kPixels,
          int kTaps, int kVectors>
void depthwise_window(const DepthwiseNest<S, F>& nest, const DepthwiseSums& sums) {
  if constexpr (kTapsAreRows) {
    DepthwiseWindow<S, F, kKind, 1, kPixelStep, kTaps, kPixels, kVectors>::run_steps(nest, sums);
  } else {
    DepthwiseWindow<S, F, kKind, kPixelStep, 1, kPixels, kTaps, kVectors>::run(nest, sums);
  }
}

}  // namespace tessera::device
