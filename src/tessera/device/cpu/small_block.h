// The register block of short calls: up to R rows of A, read where they lie, by V vectors of B from
// any source (small_panel.h).
//
// The number of rows is known at run time only. With 32 registers each step of k jumps to the code
// of the last row and falls through to the first, so that one function serves 1 to R rows without
// a product too many. With 16 registers a step has so few products that the jump would take
// longer, so that each number of rows has a loop of its own; there are few of them.
#pragma once

#include "tessera/device/cpu/small_panel.h"
#include "tessera/device/cpu/small_sizes.h"

namespace tessera::device {

struct SmallTask {
  const u8* a;
  i64 a_row;       // bytes
  const u8* ends;  // what whole steps leave of each row of A: 16 bytes a row, zeros behind
  SmallColumns b;
  i64 steps;         // whole ones, of the source's kWords words
  int rest;          // > 0: one more step, of the rows' ends; what the source's end() takes
  int rows;          // of A
  const int* start;  // of a biased Math: what the sums of each row start from
  void* out;
  i64 ld_out;       // elements
  i64 last_column;  // from the first column to the last vector's first
  bool narrows;     // whether sums are stored as bf16
  u8* packed;       // null, or where the words of B are stored too
};
using SmallMultiply = void (*)(const SmallTask& t);

// Stores a row's sums as elements of Out.
template <class Out, class Acc, int V>
[[gnu::always_inline]] inline void store_row(void* to, i64 last_column, const Acc (&acc)[V]) {
  Out* const out = static_cast<Out*>(to);
#pragma GCC unroll 8
  for (int j = 0; j < V; ++j) {
    Out* const at = out + (j == V - 1 ? last_column : j * kLanes);
    if constexpr (sizeof(Out) == 4) {
      store(at, acc[j]);
    } else {
      store_float<Out>(at, acc[j], kLanes);
    }
  }
}

template <class Math, int R, int V, class Out>
[[gnu::always_inline]] inline void store_rows(const SmallTask& t, int rows,
                                              const typename Math::Acc (&acc)[R][V]) {
  const i64 last_column = t.last_column;
  const i64 step = t.ld_out * static_cast<i64>(sizeof(Out));
  u8* out = static_cast<u8*>(t.out);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    if (i >= rows) return;
    store_row<Out>(out, last_column, acc[i]);
    out += step;
  }
}

// The products of a step of k: words of R rows by `column`. a[g] is the first of three rows.
template <class Math, int R, int V, int W, int G>
[[gnu::always_inline]] inline void add_step(typename Math::Acc (&acc)[R][V],
                                            const u8* const (&a)[G], i64 a_row,
                                            const u32v (&column)[V][W]) {
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
    const u8* const row = a[i / 3] + i % 3 * a_row;
#pragma GCC unroll 4
    for (int q = 0; q < W; ++q) {
      const u32v x = splat(load_word(row + q * 4));
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) acc[i][j] = mac_as_it_lies<Math>(acc[i][j], x, column[j][q]);
    }
  }
}

template <int V, int W>
[[gnu::always_inline]] inline void keep_words(u8*& packed, const u32v (&column)[V][W]) {
  if (packed == nullptr) return;
#pragma GCC unroll 4
  for (int q = 0; q < W; ++q) {
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) store(packed + (q * V + j) * kVectorBytes, column[j][q]);
  }
  packed += W * V * kVectorBytes;
}

// The block of exactly R rows.
template <class Math, template <class, int> class Source, int V, int R>
[[gnu::always_inline]] inline void exact_block(const SmallTask& t) {
  static_assert(!Math::kBiased && Math::kPerWord == 1);
  constexpr int kWords = Source<Math, V>::kWords;
  constexpr int kGroups = (R + 2) / 3;
  typename Math::Acc acc[R][V] = {};
  u32v column[V][kWords];
  Source<Math, V> source(t.b);
  u8* packed = t.packed;
  const u8* a[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) a[g] = t.a + g * 3 * t.a_row;
  const i64 a_row = t.a_row;
  for (i64 left = t.steps; left > 0; --left) {
    source.next(column);
    if constexpr (Source<Math, V>::kMayStore) keep_words(packed, column);
    add_step<Math>(acc, a, a_row, column);
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      a[g] += 4 * kWords;
      asm("" : "+r"(a[g]));  // otherwise offsets are made of them, more than registers hold
    }
  }
  if (t.rest != 0) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) a[g] = t.ends + g * 3 * 16;
    source.end(column, t.rest);
    if constexpr (Source<Math, V>::kMayStore) keep_words(packed, column);
    add_step<Math>(acc, a, 16, column);
  }
  store_rows<Math, R, V, u32>(t, R, acc);
}

template <class Math, template <class, int> class Source, int V, int R>
[[gnu::always_inline]] inline void one_exact_block(const SmallTask& t) {
  if (R == 1 || t.rows == R) return exact_block<Math, Source, V, R>(t);
  if constexpr (R > 1) one_exact_block<Math, Source, V, R - 1>(t);
}

#define TESSERA_SMALL_ROW(i)                                                  \
  case (i) + 1:                                                               \
    if constexpr ((i) < R) {                                                  \
      constexpr int kRow = (i) < R ? (i) : 0;                                 \
      const u8* row = a[kRow / 3] + kRow % 3 * a_row;                         \
      /* Otherwise the offset of each word has a register. */                 \
      if constexpr (kWords > 1) asm("" : "+r"(row));                          \
      _Pragma("GCC unroll 4") for (int q = 0; q < kWords; ++q) {              \
        u32v x = splat(load_word(row + q * 4));                               \
        if constexpr (V > 1) hold(x);                                         \
        _Pragma("GCC unroll 8") for (int j = 0; j < V; ++j) {                 \
          acc[kRow][j] = mac_as_it_lies<Math>(acc[kRow][j], x, column[j][q]); \
        }                                                                     \
      }                                                                       \
    }                                                                         \
    [[fallthrough]];

// Kernels share this function as compiled code.
template <class Math, template <class, int> class Source, int V, int R>
[[gnu::noinline]] void small_block(const SmallTask& t) {
  static_assert(R <= 14);
  if constexpr (kLanes <= kSmallFewLanes) return one_exact_block<Math, Source, V, R>(t);
  constexpr int kWords = Source<Math, V>::kWords;
  constexpr bool kMayStore = Source<Math, V>::kMayStore;
  constexpr int kGroups = (R + 2) / 3;  // a pointer for three rows: registers are few
  typename Math::Acc acc[R][V] = {};
  int rows = t.rows;
  if constexpr (Math::kBiased) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < V; ++j) acc[i][j] = splat(t.start[i]);
    }
  }
  Source<Math, V> source(t.b);
  i64 a_row = t.a_row;
  const u8* a[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) a[g] = t.a + g * 3 * a_row;
  u8* packed = t.packed;
  i64 left = t.steps;
  int rest = t.rest;
  for (;;) {
    u32v column[V][kWords];
    if (left > 0) {
      source.next(column);
    } else {
      if (rest == 0) break;
      source.end(column, rest);
      a_row = 16;
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) a[g] = t.ends + g * 3 * 16;
      rest = 0;
    }
    if (kMayStore && packed != nullptr) {
#pragma GCC unroll 4
      for (int q = 0; q < kWords; ++q) {
#pragma GCC unroll 8
        for (int j = 0; j < V; ++j) store(packed + (q * V + j) * kVectorBytes, column[j][q]);
      }
      packed += kWords * V * kVectorBytes;
    }
    asm("" : "+r"(rows));  // otherwise a loop is made for each number of rows
    // clang-format off
    switch (rows) {
      TESSERA_SMALL_ROW(13) TESSERA_SMALL_ROW(12) TESSERA_SMALL_ROW(11) TESSERA_SMALL_ROW(10)
      TESSERA_SMALL_ROW(9) TESSERA_SMALL_ROW(8) TESSERA_SMALL_ROW(7) TESSERA_SMALL_ROW(6)
      TESSERA_SMALL_ROW(5) TESSERA_SMALL_ROW(4) TESSERA_SMALL_ROW(3) TESSERA_SMALL_ROW(2)
      TESSERA_SMALL_ROW(1) TESSERA_SMALL_ROW(0)
      default:;
    }
    // clang-format on
    --left;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      a[g] += 4 * kWords;
      asm("" : "+r"(a[g]));  // otherwise offsets are made of them, more than registers hold
    }
  }
#if defined(__AVX512BF16__)
  if constexpr (__is_same(Math, MathBf16)) {
    if (t.narrows) return store_rows<Math, R, V, bf16>(t, rows, acc);
  }
#endif
  store_rows<Math, R, V, u32>(t, rows, acc);
}
#undef TESSERA_SMALL_ROW

}  // namespace tessera::device
