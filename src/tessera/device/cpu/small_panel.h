// Where a register block of a short call finds words of B: packed, or in place as rows of fp32
// (PackedWords); in rows that are interleaved in registers (RowWords); in columns whose k is
// contiguous, transposed in registers (ColumnWords).
//
// A source gives kWords words of k at a time for V vectors of kLanes columns. Vector j begins j *
// kLanes columns from the first, and the last one `last` bytes from it: where columns do not fill
// vectors it overlaps the one before, so that nothing has to be masked.
#pragma once

#include "tessera/device/cpu/small_words.h"

namespace tessera::device {

struct SmallColumns {
  const u8* b;
  i64 step;  // in bytes, between words (PackedWords), rows of k (RowWords), columns (ColumnWords)
  i64 last;  // bytes from the first column to the last vector's first
};

// One vector takes four words at a time: few products a step would wait for the jump to their rows.
template <class Math, int V>
struct PackedWords {
  static constexpr int kWords = V == 1 ? 4 : 1;
  static constexpr bool kMayStore = false;
  const u8 *b, *b_last;
  i64 step;
  [[gnu::always_inline]] inline explicit PackedWords(const SmallColumns& c)
      : b(c.b), b_last(c.b + c.last), step(c.step) {}
  [[gnu::always_inline]] inline void next(u32v (&column)[V][kWords]) {
    if constexpr (V == 1) {
#pragma GCC unroll 4
      for (int q = 0; q < kWords; ++q) column[0][q] = load<u32v>(b + q * step);
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < V - 1; ++j) column[j][0] = load<u32v>(b + j * kVectorBytes);
      column[V - 1][0] = load<u32v>(b_last);
      b_last += step;
    }
    b += kWords * step;
  }
  // `rest`: bytes of k that are left, where words are taken four at a time.
  [[gnu::always_inline]] inline void end(u32v (&column)[V][kWords], int rest) {
    if constexpr (V > 1) return next(column);
#pragma GCC unroll 4
    for (int q = 0; q < kWords; ++q) {
      column[0][q] = q * 4 < rest ? load<u32v>(b + q * step) : u32v{};
    }
  }
};

template <class Math, int V>
struct RowWords {
  static constexpr int kWords = 1;
  static constexpr bool kMayStore = true;
  static constexpr i64 kBytes = kLanes * element_bytes<Math>();  // of a row, for one vector
  const u8 *b, *b_last;
  i64 step;
  [[gnu::always_inline]] inline explicit RowWords(const SmallColumns& c)
      : b(c.b), b_last(c.b + c.last), step(c.step) {}
  [[gnu::always_inline]] inline void next(u32v (&column)[V][1]) {
#pragma GCC unroll 8
    for (int j = 0; j < V - 1; ++j) {
      column[j][0] = word_of_rows<Math>(b + j * kBytes, step, 2 * step, 3 * step);
    }
    column[V - 1][0] = word_of_rows<Math>(b_last, step, 2 * step, 3 * step);
    b += Math::kPerWord * step;
    b_last += Math::kPerWord * step;
  }
  // The last word, of `count` rows: A is zero where rows are missing. A zero does not undo a NaN,
  // so floats have zeros there too.
  [[gnu::always_inline]] inline void end(u32v (&column)[V][1], int count) {
    const i64 second = count > 1 ? step : 0, third = count > 2 ? 2 * step : 0;
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) {
      const u8* const p = j == V - 1 ? b_last : b + j * kBytes;
      column[j][0] = word_of_rows<Math>(p, second, third, 0);
      if constexpr (Math::kPerWord == 2) column[j][0] &= 0xffffU;
    }
  }
};

#if defined(__AVX2__)
template <class Math, int V>
struct ColumnWords {
  static constexpr int kWords = 4;
  static constexpr bool kMayStore = true;
  // Processors foresee long columns. Where columns have up to this many bytes, the next panel's
  // lines are asked for, as many a step as are read.
  static constexpr i64 kShort = 320;
  const u8 *b, *b_last;
  i64 step;
  const u8* ahead;  // null: columns are long
  [[gnu::always_inline]] inline explicit ColumnWords(const SmallColumns& c)
      : b(c.b),
        b_last(c.b + c.last),
        step(c.step),
        ahead(c.step <= kShort ? c.b + V * kLanes * c.step : nullptr) {}
  [[gnu::always_inline]] inline void next(u32v (&column)[V][4]) {
    constexpr int kLines = V * kLanes / 4;
    if (ahead != nullptr) {
#pragma GCC unroll 8
      for (int i = 0; i < kLines; ++i) __builtin_prefetch(ahead + i * 64);
      ahead += kLines * 64;
    }
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) {
      const u8* const p = j == V - 1 ? b_last : b + j * kLanes * step;
      u32v x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) x[i] = bias<Math, true>(columns_four_apart(p + i * step, step));
      transpose_four(x, column[j]);
    }
    b += 16;
    b_last += 16;
  }
  [[gnu::always_inline]] inline void end(u32v (&column)[V][4], int rest) {
    const u8x16 control = end_control(rest);
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) {
      const u8* const p = (j == V - 1 ? b_last : b + j * kLanes * step) + rest - 16;
      u32v x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        x[i] = bias<Math, true>(shift_ends(columns_four_apart(p + i * step, step), control));
      }
      transpose_four(x, column[j]);
    }
  }
};
#endif

}  // namespace tessera::device
