// One or two rows by rows of fp32, for short calls: B is read in the order in which it lies in
// memory. small_strip() keeps the sums of up to 8 vectors of columns in registers. small_axpy()
// adds rows of B, times an element of A each, to the output: strips of a wider B would walk down
// pages, a few lines in each.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/small_sizes.h"
#include "tessera/device/cpu/small_words.h"

namespace tessera::device {

struct SmallRows {
  const u8 *a, *b;
  i64 a_row, b_row;  // bytes
  i64 n, k;
  float* out;
  i64 ld_out;
};
using SmallAddRows = void (*)(const SmallRows& t);

inline constexpr i64 kSmallStrip = kSmallStripVectors * kLanes;  // the most columns of a strip
inline constexpr i64 kSmallStripped = 2 * kSmallStrip;           // up to here strips are faster

#if defined(__AVX2__)
#define TESSERA_SMALL_ROW_OF_B(u)                                                  \
  case (u) + 1: {                                                                  \
    f32v y = load_first<f32v>(b[(u) / 3] + (u) % 3 * row, count);                  \
    if constexpr (kRows > 1) hold(y);                                              \
    _Pragma("GCC unroll 2") for (int i = 0; i < kRows; ++i) sum[i] += x[i][u] * y; \
  }                                                                                \
    [[fallthrough]];

// Kernels share this function as compiled code.
template <int kRows>
[[gnu::noinline]] void small_axpy(const SmallRows& t) {
  constexpr int kDepth = 8;
  const i64 row = t.b_row, n = t.n;
  for (i64 k = 0; k < t.k;) {
    // Eight rows at a time, the odd ones first.
    int depth = static_cast<int>(k == 0 && t.k % kDepth != 0 ? t.k % kDepth : kDepth);
    f32v x[kRows][kDepth];
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int u = 0; u < kDepth; ++u) {
        const i64 at = smaller(k + u, t.k - 1);
        x[i][u] = splat(load<float>(t.a + i * t.a_row + at * 4));
      }
    }
    const u8* b[3];
#pragma GCC unroll 4
    for (int g = 0; g < 3; ++g) b[g] = t.b + (k + g * 3) * row;
    float* out = t.out;
    int count = kLanes;
    for (i64 left = n; left > 0; left -= kLanes) {
      if (left < kLanes) count = static_cast<int>(left);
      f32v sum[kRows];
#pragma GCC unroll 2
      for (int i = 0; i < kRows; ++i) {
        sum[i] = k == 0 ? f32v{} : load_first<f32v>(out + i * t.ld_out, count);
      }
      asm("" : "+r"(depth));
      // clang-format off
      switch (depth) {
        TESSERA_SMALL_ROW_OF_B(7) TESSERA_SMALL_ROW_OF_B(6) TESSERA_SMALL_ROW_OF_B(5)
        TESSERA_SMALL_ROW_OF_B(4) TESSERA_SMALL_ROW_OF_B(3) TESSERA_SMALL_ROW_OF_B(2)
        TESSERA_SMALL_ROW_OF_B(1) TESSERA_SMALL_ROW_OF_B(0)
        default:;
      }
      // clang-format on
#pragma GCC unroll 2
      for (int i = 0; i < kRows; ++i) store_first(out + i * t.ld_out, sum[i], count);
#pragma GCC unroll 4
      for (int g = 0; g < 3; ++g) {
        b[g] += kVectorBytes;
        asm("" : "+r"(b[g]));
      }
      out += kLanes;
    }
    k += depth;
  }
}
#undef TESSERA_SMALL_ROW_OF_B

#define TESSERA_SMALL_VECTOR(v)                                                    \
  case (v) + 1: {                                                                  \
    f32v y = load<f32v>(b + (v)*kVectorBytes);                                     \
    if constexpr (kRows > 1) hold(y);                                              \
    _Pragma("GCC unroll 2") for (int i = 0; i < kRows; ++i) sum[i][v] += x[i] * y; \
  }                                                                                \
    [[fallthrough]];

// Kernels share this function as compiled code.
template <int kRows>
[[gnu::noinline]] void small_strip(const SmallRows& t) {
  int whole = static_cast<int>((t.n - 1) / kLanes);  // vectors before the last one
  const int count = static_cast<int>((t.n - 1) % kLanes) + 1;
  const i64 row = t.b_row, a_row = t.a_row;
  const u8 *a = t.a, *b = t.b, *b_last = b + whole * kVectorBytes;
  f32v sum[kRows][7] = {}, last[kRows] = {};
  for (i64 left = t.k; left > 0; --left) {
    f32v x[kRows];
    const f32v y = load_first<f32v>(b_last, count);
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) {
      x[i] = splat(load<float>(a + i * a_row));
      last[i] += x[i] * y;
    }
    asm("" : "+r"(whole));
    // clang-format off
    switch (whole) {
      TESSERA_SMALL_VECTOR(6) TESSERA_SMALL_VECTOR(5) TESSERA_SMALL_VECTOR(4)
      TESSERA_SMALL_VECTOR(3) TESSERA_SMALL_VECTOR(2) TESSERA_SMALL_VECTOR(1)
      TESSERA_SMALL_VECTOR(0)
      default:;
    }
    // clang-format on
    a += 4;
    b += row;
    b_last += row;
  }
#pragma GCC unroll 2
  for (int i = 0; i < kRows; ++i) {
    float* const out = t.out + i * t.ld_out;
#pragma GCC unroll 8
    for (int v = 0; v < 7; ++v) {
      if (v < whole) store(out + v * kLanes, sum[i][v]);
    }
    store_first(out + whole * kLanes, last[i], count);
  }
}
#undef TESSERA_SMALL_VECTOR
#endif

}  // namespace tessera::device
