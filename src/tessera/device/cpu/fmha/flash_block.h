// The products of attention on a CPU: a few rows times a panel of as many columns as registers
// hold.
#pragma once

#include "tessera/device/cpu/fmha/flash_words.h"

namespace tessera::device {

// Rows `ld` floats, or words of pairs, apart.
struct FloatRows {
  float* data;
  i64 ld;
  float* row(i64 i) const { return data + i * ld; }
  FloatRows from(i64 i, i64 column = 0) const { return {row(i) + column, ld}; }
};

// c = a x b, or c += a x b: a is kRows x depth words, b depth x kVectors vectors of words, whose
// rows lie kPitch words apart.
template <class Math, int kRows, int kVectors, int kPitch, bool kAdd>
inline void multiply_panel(FloatRows a, const float* b, i64 depth, FloatRows c) {
  f32v sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = kAdd ? load<f32v>(c.row(r) + v * kLanes) : f32v{};
    }
  }
  for (i64 k = 0; k < depth; ++k, b += kPitch) {
    u32v column[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) column[v] = load<u32v>(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const u32v x = splat(load_word(a.row(r) + k));
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Math::mac(sums[r][v], x, column[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(c.row(r) + v * kLanes, sums[r][v]);
  }
}

// A panel of which the first `columns` columns count.
template <class Math, int kRows, int kVectors, int kPitch, bool kAdd>
inline void multiply_columns(FloatRows a, const float* b, i64 depth, i64 columns, FloatRows c) {
  if constexpr (kVectors > 1) {
    constexpr int kFewer = kVectors - 1;
    if (columns <= kFewer * kLanes) {
      return multiply_columns<Math, kRows, kFewer, kPitch, kAdd>(a, b, depth, columns, c);
    }
  }
  multiply_panel<Math, kRows, kVectors, kPitch, kAdd>(a, b, depth, c);
}

// Panels of kVectors vectors, `panel` words apart, of which `columns` columns count; whole vectors
// are written. Kernels share this function as compiled code.
template <class Math, int kRows, int kVectors, bool kAdd>
void multiply_panels(const FloatRows& a, const float* b, i64 panel, i64 depth, i64 columns,
                     const FloatRows& c) {
  constexpr int kWidth = kVectors * kLanes;
  for (i64 j = 0; j < columns; j += kWidth, b += panel) {
    multiply_columns<Math, kRows, kVectors, kWidth, kAdd>(a, b, depth, columns - j, c.from(0, j));
  }
}

inline void scale_rows(const FloatRows& c, i64 rows, i64 count, float factor) {
  for (i64 r = 0; r < rows; ++r) {
    for (i64 i = 0; i < count; i += kLanes) store(c.row(r) + i, load<f32v>(c.row(r) + i) * factor);
  }
}

// Rows of floats become words of pairs of bf16 in their place; whole vectors are read.
inline void round_rows(const FloatRows& c, i64 rows, i64 count) {
  for (i64 r = 0; r < rows; ++r) {
    u16* const to = reinterpret_cast<u16*>(c.row(r));
    for (i64 i = 0; i < count; i += kLanes) {
      store(to + i, narrow_bits(bf16{}, load<f32v>(c.row(r) + i)));
    }
  }
}

}  // namespace tessera::device
