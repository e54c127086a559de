// The register block of depthwise convolutions: some rows by some vectors of sums, of which each
// product has a source and a factor of its own lane. What rows, lanes and steps are is up to the
// caller.
#pragma once

#include "tessera/device/cpu/conv/conv_walk.h"
#include "tessera/device/cpu/conv/few_lanes.h"
#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// Adds source[row, step] * factor[step] to the sums of each row, for the steps of a nest of three
// loops. Row r meets step j of the innermost loop at place + j * place_step + r * place_row of a
// line of `size` places; products outside of the line are left out.
template <class S, class F>
struct DepthwiseNest {
  const S* source;
  const F* factor;
  i64 outer, middle, steps;  // numbers of steps of the loops
  i64 source_outer, source_middle, source_step, source_row;
  i64 factor_outer, factor_middle, factor_step;
  i64 place, place_step, place_row, size;
  i64 source_place;          // the distance of places; source_row and source_step are multiples
  i64 lane;                  // the distance of lanes, see DepthwiseKind
  const i64* middle_places;  // null: at a distance of source_middle
  i64 place_of_middle(i64 m) const { return middle_places ? middle_places[m] : m * source_middle; }
};

// The sums: rows at a distance of ld by some vectors, of which the last one has `last` lanes.
struct DepthwiseSums {
  u32* data;
  i64 ld, rows, vectors;
  int last;
  bool accumulate;
  i64 lanes() const { return (vectors - 1) * kLanes + last; }
  float* row(i64 r) const { return reinterpret_cast<float*>(data + r * ld); }
};

// How lanes find their factors: neighbours in memory, one factor for all, or factors at a distance,
// or sources at a distance.
enum class DepthwiseKind { vectors, splat, apart, source_apart };

template <class T>
[[gnu::noinline]] f32v lanes_apart(const T* p, i64 distance, int count) {
  T together[kLanes] = {};
  for (int i = 0; i < count; ++i) together[i] = p[i * distance];
  return load_float(together, kLanes);
}

// The rows of a step that lie inside of the line.
inline Range rows_inside(i64 place, i64 step, i64 size, i64 rows) {
  if (step != 1) return inside(place, step, size, rows);
  return {place < 0 ? smaller(-place, rows) : 0, smaller(size - place, rows)};
}

// `count` lanes of the last vector; whole vectors are known to the compiler.
template <class T>
[[gnu::always_inline]] inline f32v last_lanes(const T* p, int count) {
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 4) return load_first<f32v>(p, count);
#endif
#if defined(__AVX512BW__)
  if constexpr (sizeof(T) == 2) {
    const u32v raw = load_few_bytes(p, count * 2);
    u16v halves;
    __builtin_memcpy(&halves, &raw, sizeof(halves));
    return bits_as<f32v>(float_bits(T{}, widen(halves)));
  }
  if constexpr (is_int8<T>::value) {
    const u32v raw = load_few_bytes(p, count);
    s8v bytes;
    __builtin_memcpy(&bytes, &raw, sizeof(bytes));
    return __builtin_convertvector(widen(bytes), f32v);
  }
#endif
  return load_float(p, count);
}

// One vector in part, or some whole ones.
template <int kVectors, class T>
[[gnu::always_inline]] inline void load_lanes(const T* p, int last, f32v (&out)[kVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors - 1; ++v) out[v] = load_float(p + v * kLanes, kLanes);
  const T* const from = p + (kVectors - 1) * kLanes;
  out[kVectors - 1] = kVectors == 1 ? last_lanes(from, last) : load_float(from, kLanes);
}

// Any nest: at most kRows rows of one vector.
template <class S, class F, DepthwiseKind kKind, int kRows>
struct DepthwiseBlock {
  using Nest = DepthwiseNest<S, F>;

  [[gnu::always_inline]] static f32v factor_of(const Nest& t, const F* f, int last) {
    if constexpr (kKind == DepthwiseKind::splat) return splat(*f);
    if constexpr (kKind == DepthwiseKind::apart) return lanes_apart(f, t.lane, last);
    return last_lanes(f, last);
  }
  [[gnu::always_inline]] static void add(const Nest& t, const S* from, int last, f32v factor,
                                         f32v& sum) {
    if constexpr (kKind == DepthwiseKind::source_apart) {
      sum += lanes_apart(from, t.lane, last) * factor;
    } else {
      sum += last_lanes(from, last) * factor;
    }
  }
  // The compiler is to keep one pointer for all rows.
  [[gnu::always_inline]] static const S* next_row(const Nest& t, const S* from) {
    from += t.source_row;
    asm("" : "+r"(from));
    return from;
  }
  [[gnu::always_inline]] static void step(const Nest& t, const S* from, i64 place, i64 rows,
                                          int last, f32v factor, f32v (&sums)[kRows]) {
    const Range in = rows_inside(place, t.place_row, t.size, rows);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r, from = next_row(t, from)) {
      if (r >= in.begin && r < in.end) add(t, from, last, factor, sums[r]);
    }
  }

  [[gnu::noinline]] static void run(const Nest& nest, const DepthwiseSums& out) {
    const Nest t = nest;
    const int last = out.last;
    f32v sums[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[r] = f32v{};
      if (out.accumulate && r < out.rows) sums[r] = load_float(out.row(r), last);
    }
    for (i64 o = 0; o < t.outer; ++o) {
      for (i64 m = 0; m < t.middle; ++m) {
        const S* source = t.source + o * t.source_outer + t.place_of_middle(m);
        const F* f = t.factor + o * t.factor_outer + m * t.factor_middle;
        i64 place = t.place;
        for (i64 j = 0; j < t.steps; ++j, place += t.place_step) {
          step(t, source, place, out.rows, last, factor_of(t, f, last), sums);
          source += t.source_step;
          f += t.factor_step;
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (r >= out.rows) return;
      store_first(out.row(r), sums[r], last);
    }
  }
};

// Rows of the block for any nest.
inline constexpr int kDepthwiseRows = 7;

template <class S, class F, DepthwiseKind kKind>
void depthwise_any(const DepthwiseNest<S, F>& nest, const DepthwiseSums& sums) {
  DepthwiseBlock<S, F, kKind, kDepthwiseRows>::run(nest, sums);
}

}  // namespace tessera::device
