// One or two rows by rows of fp32, for short calls: B is read in the order in which it lies in
// memory. small_strip() keeps the sums of a few vectors of columns in registers. small_axpy()
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

// The most columns of a strip, and those up to which strips are faster.
constexpr i64 small_strip_columns(int rows) { return small_strip_vectors(rows, kLanes) * kLanes; }
inline constexpr i64 kSmallStripped = small_stripped_vectors(kLanes) * kLanes;

#if defined(__AVX2__)
// ---- 16 registers: a loop for each number of vectors or rows, without a jump in it ----

// A part of a vector. Whole ones do without a mask, whose stores take a dozen cycles on AMD's
// cores.
[[gnu::always_inline]] inline f32v load_part(const void* p, int count) {
  return count == kLanes ? load<f32v>(p) : load_first<f32v>(p, count);
}
[[gnu::always_inline]] inline void store_part(float* p, f32v v, int count) {
  count == kLanes ? store(p, v) : store_first(p, v, count);
}

// A vector of columns of the output, and what to add to it: kDepth rows of B. With `count` < kLanes
// only so many columns are there.
template <int kRows, int kDepth>
[[gnu::always_inline]] inline void add_rows_of_b(const SmallRows& t, float* out, bool adds,
                                                 const f32v (&x)[kRows][kDepth],
                                                 const u8* const (&b)[3], int count) {
  f32v sum[kRows] = {};
  if (adds) {
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) sum[i] = load_part(out + i * t.ld_out, count);
  }
#pragma GCC unroll 8
  for (int u = 0; u < kDepth; ++u) {
    const f32v y = load_part(b[u / 3] + u % 3 * t.b_row, count);
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) sum[i] += x[i][u] * y;
  }
#pragma GCC unroll 2
  for (int i = 0; i < kRows; ++i) store_part(out + i * t.ld_out, sum[i], count);
}

// Adds rows [k, k + kDepth) of B.
template <int kRows, int kDepth>
[[gnu::always_inline]] inline void exact_axpy(const SmallRows& t, i64 k) {
  f32v x[kRows][kDepth];
  const u8* b[3];
#pragma GCC unroll 2
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int u = 0; u < kDepth; ++u) x[i][u] = splat(load<float>(t.a + i * t.a_row + (k + u) * 4));
  }
#pragma GCC unroll 4
  for (int g = 0; g < 3; ++g) b[g] = t.b + (k + g * 3) * t.b_row;
  float* out = t.out;
  for (i64 left = t.n / kLanes; left > 0; --left) {
    add_rows_of_b<kRows, kDepth>(t, out, k > 0, x, b, kLanes);
#pragma GCC unroll 4
    for (int g = 0; g < 3; ++g) {
      b[g] += kVectorBytes;
      asm("" : "+r"(b[g]));
    }
    out += kLanes;
  }
  const int rest = static_cast<int>(t.n % kLanes);
  if (rest != 0) add_rows_of_b<kRows, kDepth>(t, out, k > 0, x, b, rest);
}
template <int kRows, int kDepth>
[[gnu::always_inline]] inline void one_exact_axpy(const SmallRows& t, i64 k, int depth) {
  if (kDepth == 1 || depth == kDepth) return exact_axpy<kRows, kDepth>(t, k);
  if constexpr (kDepth > 1) one_exact_axpy<kRows, kDepth - 1>(t, k, depth);
}

// A strip of V vectors, the last one of `count` columns.
template <int kRows, int V>
[[gnu::always_inline]] inline void exact_strip(const SmallRows& t, int count) {
  const u8 *a = t.a, *b = t.b;
  f32v sum[kRows][V] = {};
  for (i64 left = t.k; left > 0; --left) {
    f32v x[kRows];
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) x[i] = splat(load<float>(a + i * t.a_row));
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      const u8* const p = b + v * kVectorBytes;
      f32v y = v == V - 1 ? load_first<f32v>(p, count) : load<f32v>(p);
      if constexpr (kRows > 1) hold(y);
#pragma GCC unroll 2
      for (int i = 0; i < kRows; ++i) sum[i][v] += x[i] * y;
    }
    a += 4;
    b += t.b_row;
  }
#pragma GCC unroll 2
  for (int i = 0; i < kRows; ++i) {
    float* const out = t.out + i * t.ld_out;
#pragma GCC unroll 16
    for (int v = 0; v < V - 1; ++v) store(out + v * kLanes, sum[i][v]);
    store_part(out + (V - 1) * kLanes, sum[i][V - 1], count);
  }
}
template <int kRows, int V>
[[gnu::always_inline]] inline void one_exact_strip(const SmallRows& t, i64 vectors) {
  const int count = static_cast<int>((t.n - 1) % kLanes) + 1;
  if (V == 1 || vectors == V) return exact_strip<kRows, V>(t, count);
  if constexpr (V > 1) one_exact_strip<kRows, V - 1>(t, vectors);
}

// ---- 32 registers: one loop, which jumps to its first vector or row ----

#define TESSERA_SMALL_ROW_OF_B(u)                                                    \
  case (u) + 1:                                                                      \
    if constexpr ((u) < kDepth) {                                                    \
      f32v y = load_first<f32v>(b[(u) / 3] + (u) % 3 * row, count);                  \
      if constexpr (kRows > 1) hold(y);                                              \
      _Pragma("GCC unroll 2") for (int i = 0; i < kRows; ++i) sum[i] += x[i][u] * y; \
    }                                                                                \
    [[fallthrough]];

// Kernels share this function as compiled code.
template <int kRows>
[[gnu::noinline]] void small_axpy(const SmallRows& t) {
  constexpr int kDepth = kLanes <= kSmallFewLanes && kRows > 1 ? 6 : 8;
  if constexpr (kLanes <= kSmallFewLanes) {
    const int odd = static_cast<int>(t.k % kDepth);
    if (odd != 0) one_exact_axpy<kRows, kDepth - 1>(t, 0, odd);
    for (i64 k = odd; k < t.k; k += kDepth) exact_axpy<kRows, kDepth>(t, k);
    return;
  }
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

#define TESSERA_SMALL_VECTOR(v)                                                      \
  case (v) + 1:                                                                      \
    if constexpr ((v) < kWhole) {                                                    \
      f32v y = load<f32v>(b + (v)*kVectorBytes);                                     \
      if constexpr (kRows > 1) hold(y);                                              \
      _Pragma("GCC unroll 2") for (int i = 0; i < kRows; ++i) sum[i][v] += x[i] * y; \
    }                                                                                \
    [[fallthrough]];

// Kernels share this function as compiled code.
template <int kRows>
[[gnu::noinline]] void small_strip(const SmallRows& t) {
  constexpr int kVectors = small_strip_vectors(kRows, kLanes);
  if constexpr (kLanes <= kSmallFewLanes) {
    return one_exact_strip<kRows, kVectors>(t, blocks_of(t.n, kLanes));
  }
  constexpr int kWhole = kVectors - 1;
  int whole = static_cast<int>((t.n - 1) / kLanes);  // vectors before the last one
  const int count = static_cast<int>((t.n - 1) % kLanes) + 1;
  const i64 row = t.b_row, a_row = t.a_row;
  const u8 *a = t.a, *b = t.b, *b_last = b + whole * kVectorBytes;
  f32v sum[kRows][kWhole] = {}, last[kRows] = {};
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
    for (int v = 0; v < kWhole; ++v) {
      if (v < whole) store(out + v * kLanes, sum[i][v]);
    }
    store_first(out + whole * kLanes, last[i], count);
  }
}
#undef TESSERA_SMALL_VECTOR
#endif

}  // namespace tessera::device
