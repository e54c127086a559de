// The register block of convolutions whose rows lie in an image: the depth consists of runs.
#pragma once

#include "tessera/device/cpu/block.h"
#include "tessera/device/cpu/grid.h"

namespace tessera::device {

// A part of the depth: bytes from the rows' first element, words from the panel's, and words.
struct ConvRun {
  i64 a, b, words;
};

// As multiply_block() of rows in place, but the depth is the sum of all runs' depths.
template <class Math, int kRows, int kVectors>
void multiply_runs(const BlockTask& t, const ConvRun* runs, i64 number) {
  using Acc = typename Math::Acc;
  constexpr int kGroup = 3, kGroups = (kRows + kGroup - 1) / kGroup;
  u32* const out = static_cast<u32*>(t.out);
  Acc acc[kRows][kVectors];
#pragma GCC unroll 32
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      acc[i][j] = Acc{};
      __builtin_prefetch(out + i * t.ld_out + j * kLanes, 1, 3);
    }
  }
  const i64 a_row = t.a_row, a_word = t.a_word, b_word = t.b_word;
  for (const ConvRun* run = runs; run != runs + number; ++run) {
    const u8* a[kGroups];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) {
      a[g] = static_cast<const u8*>(t.a) + run->a + g * kGroup * a_row;
    }
    const u32* b = t.b + run->b;
    for (i64 w = run->words; w > 0; --w) {
      u32v columns[kVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) columns[j] = load<u32v>(b + j * kLanes);
#pragma GCC unroll 32
      for (int i = 0; i < kRows; ++i) {
        const u32v row = splat(load_word(a[i / kGroup] + i % kGroup * a_row));
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) acc[i][j] = Math::mac(acc[i][j], row, columns[j]);
      }
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; ++g) {
        a[g] += a_word;
        asm("" : "+r"(a[g]));  // keeps the compiler from turning pointers into offsets again
      }
      b += b_word;
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      if (t.before) acc[i][j] += load<Acc>(t.before + i * t.ld_before + j * kLanes);
      store(out + i * t.ld_out + j * kLanes, acc[i][j]);
    }
  }
}

// Copies rows of words, whose distances may differ.
inline void copy_rectangle(const u32* from, i64 ld_from, u32* to, i64 ld_to, i64 rows,
                           int columns) {
  for (i64 r = 0; r < rows; ++r) {
    for (int j = 0; j < columns; j += kLanes) {
      const int count = static_cast<int>(smaller(kLanes, columns - j));
      store_first(to + r * ld_to + j, load_first<u32v>(from + r * ld_from + j, count), count);
    }
  }
}

}  // namespace tessera::device
