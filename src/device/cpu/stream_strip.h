// A strip of a bandwidth-bound GEMM: a few rows of one operand, packed, times a range of the other,
// which is read where it lies, once.
//
// Where the wide operand's k is contiguous, each of its rows gives dot products; where k is
// strided, whole rows of k are added to a strip of sums.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/words.h"

namespace tessera::device {

// The words of a row of the packed operand: whole vectors.
template <class Math>
inline i64 narrow_words(i64 k) {
  return blocks_of(blocks_of(k, Math::kPerWord), kLanes) * kLanes;
}

template <class T>
struct StripTask {
  const T* wide;  // of the strip's first element
  i64 ld;         // between rows of the wide operand, or of its k where that is strided
  i64 count;      // rows of the wide operand, at most kStrip
  i64 k;
  const u32* narrow;  // [row][narrow_words(k)]
  i64 rows;
  u32* sums;         // raw, [row][kStrip]
  u32* corrections;  // [kStrip], for a biased Math
};

// The words of `count` elements that lie next to each other, at most a vector's; zeros behind.
template <class T, class Math>
[[gnu::always_inline]] inline u32v last_words(const T* p, i64 count) {
  const u32v bytes = load_bytes(p, static_cast<int>(count) * static_cast<int>(sizeof(T)));
  T last[sizeof(bytes) / sizeof(T)];
  store(last, bytes);
  return load_words<T, Math>(last);
}

// ---- k contiguous: dot products ----

// sums[x][f] for kRows narrow rows and kWide rows of the wide operand over words [begin, end).
template <class T, class Math, int kRows, int kWide>
[[gnu::noinline]] void dots(const T* wide, i64 ld, const u32* narrow, i64 narrow_ld, i64 k,
                            u32* sums, i64 ld_sums) {
  using Acc = typename Math::Acc;
  constexpr int kPer = Math::kPerWord;
  constexpr i64 kAhead = 32 * kLanes;  // words: prefetchers stop at the end of a page
  Acc acc[kRows][kWide] = {};
  Acc correction[kWide] = {};
  const u32v ones = u32v{} + 0x80808080U;
  const auto step = [&](const u32v(&w)[kWide], i64 word) {
#pragma GCC unroll 8
    for (int x = 0; x < kRows; ++x) {
      const u32v row = load<u32v>(narrow + x * narrow_ld + word);
#pragma GCC unroll 8
      for (int f = 0; f < kWide; ++f) acc[x][f] = Math::mac(acc[x][f], row, w[f]);
    }
    if constexpr (Math::kBiased) {
#pragma GCC unroll 8
      for (int f = 0; f < kWide; ++f) correction[f] = Math::mac(correction[f], ones, w[f]);
    }
  };
  i64 word = 0;
  u32v w[kWide];
  for (; (word + kLanes) * kPer <= k; word += kLanes) {
#pragma GCC unroll 8
    for (int f = 0; f < kWide; ++f) {
      w[f] = load_words<T, Math>(wide + f * ld + word * kPer);
      __builtin_prefetch(wide + f * ld + (word + kAhead) * kPer, 0, 2);
    }
    step(w, word);
  }
  if (word * kPer < k) {
    for (int f = 0; f < kWide; ++f) {
      w[f] = last_words<T, Math>(wide + f * ld + word * kPer, k - word * kPer);
    }
    step(w, word);
  }
  for (int x = 0; x < kRows; ++x) {
    for (int f = 0; f < kWide; ++f) {
      const auto sum = sum_of_lanes(acc[x][f] - correction[f]);
      __builtin_memcpy(sums + x * ld_sums + f, &sum, 4);
    }
  }
}

template <class T, class Math, int kRows, i64 kStrip>
void dot_strip(const StripTask<T>& t) {
  constexpr int kWide = kRows >= 8 ? 2 : kRows >= 4 ? 4 : 8;
  const i64 ld_narrow = narrow_words<Math>(t.k);
  i64 i = 0;
  for (; i + kWide <= t.count; i += kWide) {
    dots<T, Math, kRows, kWide>(t.wide + i * t.ld, t.ld, t.narrow, ld_narrow, t.k, t.sums + i,
                                kStrip);
  }
  for (; i < t.count; ++i) {
    dots<T, Math, kRows, 1>(t.wide + i * t.ld, t.ld, t.narrow, ld_narrow, t.k, t.sums + i, kStrip);
  }
}

// ---- k strided: rows of the wide operand added to a strip of sums ----

// Adds kWords words of k to sums[x][0 .. columns); corrections grow likewise.
template <class T, class Math, int kRows, int kWords, i64 kStrip>
[[gnu::noinline]] void add_rows(const T* wide, i64 ld, i64 columns, const u32* narrow,
                                i64 narrow_ld, u32* sums, u32* corrections) {
  using Acc = typename Math::Acc;
  constexpr int kPer = Math::kPerWord;
  // The rows of the next words are other pages, which the processor does not foresee. With more to
  // multiply, bytes are not what it waits for.
  constexpr bool kFetches = kRows * kPer <= 16;
  for (i64 f = 0; f + kLanes <= columns; f += kLanes) {
    // In turn, so that each line is asked for once.
    const i64 turn = f / kLanes % kPer;
    u32v w[kWords];
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i) {
      w[i] = load_words_across<T, Math>(wide + i * kPer * ld + f, ld);
      if constexpr (kFetches)
        __builtin_prefetch(wide + ((kWords + i) * kPer + turn) * ld + f, 0, 2);
    }
#pragma GCC unroll 8
    for (int x = 0; x < kRows; ++x) {
      Acc sum = load<Acc>(sums + x * kStrip + f);
#pragma GCC unroll 8
      for (int i = 0; i < kWords; ++i) sum = Math::mac(sum, splat(narrow[x * narrow_ld + i]), w[i]);
      store(sums + x * kStrip + f, sum);
    }
    if constexpr (Math::kBiased) {
      Acc sum = load<Acc>(corrections + f);
#pragma GCC unroll 8
      for (int i = 0; i < kWords; ++i) sum = Math::mac(sum, u32v{} + 0x80808080U, w[i]);
      store(corrections + f, sum);
    }
  }
}

// The columns of a strip that do not fill a vector, and the k that do not fill a word: copied
// into a small zero-padded piece first.
template <class T, class Math, int kRows, i64 kStrip>
void add_padded(const T* wide, i64 ld, i64 columns, i64 depth, const u32* narrow, i64 narrow_ld,
                u32* sums, u32* corrections) {
  constexpr int kPer = Math::kPerWord;
  for (i64 f = 0; f < columns; f += kLanes) {
    T piece[kPer * kLanes] = {};
    const i64 count = smaller(kLanes, columns - f);
    for (i64 u = 0; u < depth; ++u) {
      __builtin_memcpy(piece + u * kLanes, wide + u * ld + f,
                       static_cast<unsigned long>(count) * sizeof(T));
    }
    add_rows<T, Math, kRows, 1, kStrip>(piece, kLanes, kLanes, narrow, narrow_ld, sums + f,
                                        corrections + f);
  }
}

template <class T, class Math, int kRows, i64 kStrip>
void add_strip(const StripTask<T>& t) {
  using Acc = typename Math::Acc;
  constexpr int kPer = Math::kPerWord;
  // Rows of the wide operand that are read side by side: more than 8 thrash L1 when their
  // distance is a power of two; with many sums to load and store, it pays all the same.
  constexpr int kDepth = kRows >= 8 ? 16 : 8;
  constexpr int kWords = kDepth / kPer < 8 ? kDepth / kPer : 8;
  const i64 whole = t.count / kLanes * kLanes;
  const i64 ld_narrow = narrow_words<Math>(t.k);
  __builtin_memset(t.sums, 0, sizeof(u32) * static_cast<unsigned long>(kRows * kStrip));
  __builtin_memset(t.corrections, 0, sizeof(u32) * static_cast<unsigned long>(kStrip));
  const i64 words = t.k / kPer;
  i64 w = 0;
  for (; w + kWords <= words; w += kWords) {
    add_rows<T, Math, kRows, kWords, kStrip>(t.wide + w * kPer * t.ld, t.ld, whole, t.narrow + w,
                                             ld_narrow, t.sums, t.corrections);
  }
  for (; w < words; ++w) {
    add_rows<T, Math, kRows, 1, kStrip>(t.wide + w * kPer * t.ld, t.ld, whole, t.narrow + w,
                                        ld_narrow, t.sums, t.corrections);
  }
  if (whole < t.count) {
    for (i64 i = 0; i < words; ++i) {
      add_padded<T, Math, kRows, kStrip>(t.wide + i * kPer * t.ld + whole, t.ld, t.count - whole,
                                         kPer, t.narrow + i, ld_narrow, t.sums + whole,
                                         t.corrections + whole);
    }
  }
  if (words * kPer < t.k) {
    add_padded<T, Math, kRows, kStrip>(t.wide + words * kPer * t.ld, t.ld, t.count,
                                       t.k - words * kPer, t.narrow + words, ld_narrow, t.sums,
                                       t.corrections);
  }
  if constexpr (Math::kBiased) {
    for (int x = 0; x < kRows; ++x) {
      for (i64 i = 0; i < t.count; i += kLanes) {
        u32* sum = t.sums + x * kStrip + i;
        store(sum, load<Acc>(sum) - load<Acc>(t.corrections + i));
      }
    }
  }
}

template <class T, class Math, bool kKContiguous, int kRows, i64 kStrip>
[[gnu::always_inline]] inline void strip_of(const StripTask<T>& t) {
  if constexpr (kKContiguous) return dot_strip<T, Math, kRows, kStrip>(t);
  add_strip<T, Math, kRows, kStrip>(t);
}

// The rows that a strip is computed for, all of which `narrow` holds.
constexpr i64 strip_rows(i64 rows, i64 most) {
  return rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : most;
}

// Kernels share it as compiled code.
template <class T, class Math, bool kKContiguous, int kMostRows, i64 kStrip>
void multiply_strip(const StripTask<T>& t) {
  if (t.rows <= 1) return strip_of<T, Math, kKContiguous, 1, kStrip>(t);
  if (t.rows <= 2) return strip_of<T, Math, kKContiguous, 2, kStrip>(t);
  if (t.rows <= 4) return strip_of<T, Math, kKContiguous, 4, kStrip>(t);
  strip_of<T, Math, kKContiguous, kMostRows, kStrip>(t);
}

}  // namespace tessera::device
