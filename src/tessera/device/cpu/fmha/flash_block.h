// The products of attention on a CPU: a few rows times a panel of as many columns as registers
// hold.
#pragma once

#include "tessera/device/cpu/vector.h"

namespace tessera::device {

// Rows `ld` floats apart.
struct FloatRows {
  float* data;
  i64 ld;
  float* row(i64 i) const { return data + i * ld; }
};

// c = a x b, or c += a x b: a is kRows x depth, b depth x kVectors vectors, row after row.
template <int kRows, int kVectors, bool kAdd>
inline void multiply_panel(FloatRows a, const float* b, i64 depth, FloatRows c) {
  f32v sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = kAdd ? load<f32v>(c.row(r) + v * kLanes) : f32v{};
    }
  }
  for (i64 k = 0; k < depth; ++k, b += kVectors * kLanes) {
    f32v column[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) column[v] = load<f32v>(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const f32v x = splat(a.row(r)[k]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = sums[r][v] + x * column[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(c.row(r) + v * kLanes, sums[r][v]);
  }
}

}  // namespace tessera::device
