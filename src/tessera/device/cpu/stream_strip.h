// A strip of a bandwidth-bound GEMM: a few packed rows of one operand times a range of the other
// one, which is read once, in place.
//
// When the wide operand's k is contiguous, each of its rows gives dot products. When k is strided,
// whole rows of k are added to a strip of sums.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/words.h"

namespace tessera::device {

// Sums lie in blocks of this many rows of the wide operand: [block][row][kSumBlock]. Without
// blocks, the rows of long strips would all fall into the same set of L1.
inline constexpr i64 kSumBlock = 8 * kLanes;
inline i64 sum_at(i64 rows, i64 row, i64 wide) {
  return (wide / kSumBlock * rows + row) * kSumBlock + wide % kSumBlock;
}

// The packed operand. Missing rows and words are zero. When the wide operand's k is contiguous, it
// lies in rows; their distance is an odd number of cache lines, so that they use different sets.
// When k is strided, it lies in the order in which it is multiplied: [words_at_once
// words][rows_at_once rows][word][row].
struct Narrow {
  const u32* words;
  i64 rows;
  i64 ld;  // distance between rows, if it lies in rows
};
template <class Math>
inline i64 narrow_at(i64 rows, i64 row, i64 word) {
  const i64 together = words_at_once(rows, Math::kPerWord);
  const i64 at_once = rows_at_once(rows);
  const i64 group = word / together * rows + row / at_once * at_once;
  return group * together + word % together * at_once + row % at_once;
}
template <class Math>
inline i64 narrow_words(i64 k) {
  constexpr i64 kUnit = kLanes > 8 ? kLanes : 8;
  return blocks_of(blocks_of(k, Math::kPerWord), kUnit) * kUnit;
}

template <class T>
struct StripTask {
  const T* wide;  // the strip's first element
  i64 ld;     // distance between rows of the wide operand; with a strided k, between its rows of k
  i64 count;  // rows of the wide operand
  i64 k;
  Narrow narrow;
  u32* sums;         // raw
  u32* corrections;  // for a biased Math: one for each row of the wide operand
};

// A biased Math adds to a sum the product with this word.
inline constexpr u32 kBiasWord = 0x80808080U;

// The words of `count` neighbouring elements, at most a vector; the rest is zero.
template <class T, class Math>
[[gnu::always_inline]] inline u32v last_words(const T* p, i64 count) {
  const u32v bytes = load_bytes(p, static_cast<int>(count) * static_cast<int>(sizeof(T)));
  T last[sizeof(bytes) / sizeof(T)];
  store(last, bytes);
  return load_words<T, Math>(last);
}

// ---- k contiguous: dot products ----

// The sums of kRows narrow rows, from `row` on, and kWide rows of the wide operand, from `at` on.
// The first rows also compute the corrections for all.
template <class T, class Math, int kRows, int kWide, bool kFirst>
[[gnu::noinline]] void dots(const StripTask<T>& t, i64 row, i64 at) {
  using Acc = typename Math::Acc;
  constexpr int kPer = Math::kPerWord;
  constexpr bool kCorrects = Math::kBiased && kFirst;
  constexpr bool kFetches = kWide != 6;  // six rows keep enough loads under way
  constexpr i64 kAhead = 32 * kLanes;    // words; hardware prefetchers stop at the end of a page
  const T* const wide = t.wide + at * t.ld;
  const u32* const narrow = t.narrow.words + row * t.narrow.ld;
  const i64 k = t.k, ld = t.ld, narrow_ld = t.narrow.ld;
  Acc acc[kRows][kWide] = {};
  Acc correction[kWide] = {};
  const auto step = [&](const u32v(&w)[kWide], i64 word) {
#pragma GCC unroll 8
    for (int x = 0; x < kRows; ++x) {
      const u32v words = load<u32v>(narrow + x * narrow_ld + word);
#pragma GCC unroll 8
      for (int f = 0; f < kWide; ++f) acc[x][f] = Math::mac(acc[x][f], words, w[f]);
    }
    if constexpr (kCorrects) {
#pragma GCC unroll 8
      for (int f = 0; f < kWide; ++f)
        correction[f] = Math::mac(correction[f], u32v{} + kBiasWord, w[f]);
    }
  };
  i64 word = 0;
  u32v w[kWide];
  for (; (word + kLanes) * kPer <= k; word += kLanes) {
#pragma GCC unroll 8
    for (int f = 0; f < kWide; ++f) {
      w[f] = load_words<T, Math>(wide + f * ld + word * kPer);
      if constexpr (kFetches) __builtin_prefetch(wide + f * ld + (word + kAhead) * kPer, 0, 2);
    }
    step(w, word);
  }
  if (word * kPer < k) {
#pragma GCC unroll 8
    for (int f = 0; f < kWide; ++f) {
      w[f] = last_words<T, Math>(wide + f * ld + word * kPer, k - word * kPer);
    }
    step(w, word);
  }
#pragma GCC unroll 8
  for (int x = 0; x < kRows; ++x) {
#pragma GCC unroll 8
    for (int f = 0; f < kWide; ++f) {
      const auto sum = sum_of_lanes(acc[x][f]);
      __builtin_memcpy(t.sums + sum_at(t.narrow.rows, row + x, at + f), &sum, 4);
    }
  }
  if constexpr (kCorrects) {
    for (int f = 0; f < kWide; ++f) {
      const auto sum = sum_of_lanes(correction[f]);
      __builtin_memcpy(t.corrections + at + f, &sum, 4);
    }
  }
}

// All rows, kRows at a time. Only the first rows read the wide operand from memory, later ones find
// it in the caches.
template <class T, class Math, int kRows, int kWide>
void dots_of_all(const StripTask<T>& t, i64 at) {
  dots<T, Math, kRows, kWide, true>(t, 0, at);
  if constexpr (kRows >= 4) {
    for (i64 x = kRows; x < t.narrow.rows; x += kRows) {
      dots<T, Math, kRows, kWide, false>(t, x, at);
    }
  }
}

// Subtracts what the bias of the packed operand added.
template <class Math, class T>
void correct(const StripTask<T>& t) {
  using Acc = typename Math::Acc;
  if constexpr (!Math::kBiased) return;
  for (i64 x = 0; x < t.narrow.rows; ++x) {
    for (i64 i = 0; i < t.count; i += kLanes) {
      u32* const sum = t.sums + sum_at(t.narrow.rows, x, i);
      store(sum, load<Acc>(sum) - load<Acc>(t.corrections + i));
    }
  }
}

// 32 registers hold 4 x 6 sums, or 4 x 4 sums and their corrections. 16 registers hold neither.
template <class T, class Math, int kMostRows>
void dot_strip(const StripTask<T>& t) {
  constexpr bool kManyRegisters = kVectorBytes == 64;
  constexpr int kRows = kManyRegisters && kMostRows > 4 ? 4 : kMostRows;
  constexpr int kMany = Math::kBiased ? 4 : 6;
  constexpr int kWide = kRows < 4 ? 8 : kManyRegisters ? kMany : 16 / kRows;
  if (t.count < kWide) {
    for (i64 i = 0; i < t.count; ++i) dots_of_all<T, Math, kRows, 1>(t, i);
  } else {  // the last step repeats some rows of the step before
    for (i64 i = 0; i < t.count; i += kWide) {
      dots_of_all<T, Math, kRows, kWide>(t, smaller(i, t.count - kWide));
    }
  }
  correct<Math>(t);
}

// ---- k strided: rows of the wide operand added to a strip of sums ----

// The words of k of the wide operand that are added together, for some of a strip's columns, and
// their sums.
template <class T>
struct Rows {
  const T* wide;
  i64 ld;
  i64 columns;
  const u32* narrow;  // the narrow operand's words for them
  u32* sums;          // the strip's sums; corrections are the strip's too
  u32* corrections;
  i64 first;  // first of the columns in the strip
  i64 sum_rows;
};

// Hides the origin of a pointer from the compiler. Otherwise GCC keeps the address of each word and
// of each row, and has too few registers for them.
template <class T>
[[gnu::always_inline]] inline const T* in_register(const T* p) {
  asm("" : "+r"(p));
  return p;
}

// Adds to the sums of kRows rows. The first rows also compute the corrections for all, and
// prefetch: the next words lie in other pages, which the processor does not predict.
template <class T, class Math, int kRows, bool kFirst>
[[gnu::noinline]] void add_words(const Rows<T>& rows, i64 row) {
  using Acc = typename Math::Acc;
  constexpr int kPer = Math::kPerWord;
  constexpr int kWords = words_at_once(kRows, Math::kPerWord);
  constexpr bool kFetches = kFirst && kRows * kPer <= 16;  // with more, memory is not the limit
  constexpr bool kCorrects = Math::kBiased && kFirst;
  const Rows<T> r = rows;  // a copy, so that the compiler knows that stores do not change it
  const i64 ld = r.ld;
  const i64 step = kPer * ld;
  u32* sums = r.sums + sum_at(r.sum_rows, row, r.first);
  u32* corrections = r.corrections + r.first;
  for (i64 f = 0; f < r.columns; f += kLanes) {
    Acc acc[kRows];
    Acc correction;
#pragma GCC unroll 8
    for (int x = 0; x < kRows; ++x) acc[x] = load<Acc>(sums + x * kSumBlock);
    if constexpr (kCorrects) correction = load<Acc>(corrections);
    const u32* narrow = r.narrow + row * kWords;
    if constexpr (kRows > 2) narrow = in_register(narrow);  // fewer rows stay in registers anyway
    const T* const wide = in_register(r.wide + f);
    const T* const second = in_register(wide + 4 * step);
    const i64 turn = f / kLanes & (kPer - 1);  // so that each line is prefetched once
    const T* const next = in_register(wide + kWords * step + turn * ld);
    const T* const after = in_register(next + 4 * step);
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i) {
      const u32v w = load_words_across<T, Math>((i < 4 ? wide : second) + i % 4 * step, ld);
      if constexpr (kFetches) __builtin_prefetch((i < 4 ? next : after) + i % 4 * step, 0, 2);
#pragma GCC unroll 8
      for (int x = 0; x < kRows; ++x) {
        acc[x] = Math::mac(acc[x], splat(narrow[i * kRows + x]), w);
      }
      if constexpr (kCorrects) correction = Math::mac(correction, u32v{} + kBiasWord, w);
    }
#pragma GCC unroll 8
    for (int x = 0; x < kRows; ++x) store(sums + x * kSumBlock, acc[x]);
    if constexpr (kCorrects) store(corrections, correction);
    const bool block_ends = ((r.first + f + kLanes) & (kSumBlock - 1)) == 0;
    sums += kLanes + (block_ends ? (r.sum_rows - 1) * kSumBlock : 0);
    corrections += kLanes;
  }
}

// Adds to the sums of all rows.
template <class T, class Math, int kRows>
void add_to_all(const Rows<T>& r) {
  add_words<T, Math, kRows, true>(r, 0);
  if constexpr (kRows >= 4) {
    for (i64 row = kRows; row < r.sum_rows; row += kRows) add_words<T, Math, kRows, false>(r, row);
  }
}

// For a depth of k and columns that do not fill words and vectors: the elements are first copied to
// a piece padded with zeros.
template <class T, class Math, int kRows>
void add_padded(Rows<T> r, i64 depth) {
  T piece[words_at_once(kRows, Math::kPerWord) * Math::kPerWord * kLanes] = {};
  const T* const wide = r.wide;
  const i64 ld = r.ld;
  const i64 columns = r.columns;
  r.wide = piece;
  r.ld = kLanes;
  r.columns = kLanes;
  for (i64 f = 0; f < columns; f += kLanes, r.first += kLanes) {
    const auto bytes = static_cast<unsigned long>(smaller(kLanes, columns - f)) * sizeof(T);
    for (i64 u = 0; u < depth; ++u) {
      __builtin_memcpy(piece + u * kLanes, wide + u * ld + f, bytes);
    }
    add_to_all<T, Math, kRows>(r);
  }
}

template <class T, class Math, int kRows>
void add_strip(const StripTask<T>& t) {
  constexpr i64 kDepth = words_at_once(kRows, Math::kPerWord) * Math::kPerWord;
  const i64 rows = t.narrow.rows;
  const auto room = static_cast<unsigned long>(blocks_of(t.count, kSumBlock) * kSumBlock * 4);
  __builtin_memset(t.sums, 0, room * static_cast<unsigned long>(rows));
  __builtin_memset(t.corrections, 0, room);
  const i64 whole = t.count / kLanes * kLanes;
  for (i64 k = 0; k < t.k; k += kDepth) {
    const i64 depth = smaller(kDepth, t.k - k);
    const auto columns = [&](i64 begin, i64 end) {
      const u32* const narrow = t.narrow.words + narrow_at<Math>(rows, 0, k / Math::kPerWord);
      return Rows<T>{
          t.wide + k * t.ld + begin, t.ld, end - begin, narrow, t.sums, t.corrections, begin, rows};
    };
    const i64 in_place = depth == kDepth ? whole : 0;
    if (in_place > 0) add_to_all<T, Math, kRows>(columns(0, in_place));
    if (in_place < t.count) add_padded<T, Math, kRows>(columns(in_place, t.count), depth);
  }
  correct<Math>(t);
}

template <class T, class Math, bool kKContiguous, int kRows>
[[gnu::always_inline]] inline void strip_of(const StripTask<T>& t) {
  if constexpr (kKContiguous) return dot_strip<T, Math, kRows>(t);
  add_strip<T, Math, kRows>(t);
}

// Kernels share this function as compiled code.
template <class T, class Math, bool kKContiguous>
void multiply_strip(const StripTask<T>& t) {
  if (t.narrow.rows <= 1) return strip_of<T, Math, kKContiguous, 1>(t);
  if (t.narrow.rows <= 2) return strip_of<T, Math, kKContiguous, 2>(t);
  if (t.narrow.rows <= 4) return strip_of<T, Math, kKContiguous, 4>(t);
  strip_of<T, Math, kKContiguous, 8>(t);
}

}  // namespace tessera::device
