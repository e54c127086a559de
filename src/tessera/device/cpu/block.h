// The register block: a few rows by a few vectors of accumulators, multiplied over a range of k.
#pragma once

#include "tessera/device/cpu/words.h"

namespace tessera::device {

// Memory that is needed soon, and asked for while a register block multiplies: at word w of k the
// line at `at` + w % 16 * each + w / 16 * next, in bytes.
struct Ahead {
  const char* at;
  i64 each, next;
};

// Operands and destination of a register block. Strides count words, except A's strides, which
// count bytes.
struct BlockTask {
  const void* a;
  i64 a_row;   // between rows of A, in bytes
  i64 a_word;  // between consecutive words of k, in bytes
  u32 a_last;  // mask of A's bits in one last, incomplete word of k; 0: there is none
  const u32* b;
  i64 b_word;
  i64 words;
  const u32* start;   // of the accumulators: one for each column, or for each row where B is biased
  const u32* before;  // raw accumulators to be added; null: none
  i64 ld_before;
  void* out;
  i64 ld_out;
  Ahead ahead;
};

// Out is the type in which sums are stored, u32 for raw accumulators. kAsks: for what lies ahead.
template <class Math, int kRows, int kVectors, int kPackedRows, class Out = u32, bool kAsks = false>
[[gnu::noinline]] void multiply_block(const BlockTask& t) {
  using Acc = typename Math::Acc;
  Out* out = static_cast<Out*>(t.out);
  Acc acc[kRows][kVectors];
#pragma GCC unroll 32
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      if constexpr (kBiasesB<Math>) {
        acc[i][j] = bits_as<Acc>(splat(t.start[i]));
      } else {
        acc[i][j] = Math::kBiased ? load<Acc>(t.start + j * kLanes) : Acc{};
      }
    }
  }
  // The destination is needed only after the loop, so it is prefetched here.
#pragma GCC unroll 32
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      __builtin_prefetch(out + i * t.ld_out + j * kLanes, 1, 3);
    }
  }
  // Packed panels have their strides in the type, so that addresses are constants. Rows of A in
  // place are reached by one pointer for every three rows and one stride. More offsets do not fit
  // into registers, and loading them costs 4% of the speed.
  constexpr bool kInPlace = kPackedRows == 0, kBiasesA = kInPlace && !kBiasesB<Math>;
  constexpr int kGroup = kInPlace ? 3 : kRows;
  constexpr int kGroups = (kRows + kGroup - 1) / kGroup;
  const i64 a_row = kInPlace ? t.a_row : 4;
  const i64 a_word = kInPlace ? t.a_word : kPackedRows * 4;
  const u8* a[kGroups];
#pragma GCC unroll 16
  for (int g = 0; g < kGroups; ++g) a[g] = static_cast<const u8*>(t.a) + g * kGroup * a_row;
  const u32* b = t.b;
  for (i64 w = 0; w < t.words; ++w) {
    u32v columns[kVectors];
    if constexpr (kAsks) {
      __builtin_prefetch(t.ahead.at + w % 16 * t.ahead.each + w / 16 * t.ahead.next, 0, 2);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) columns[j] = load<u32v>(b + j * kLanes);
#pragma GCC unroll 32
    for (int i = 0; i < kRows; ++i) {
      const u32v row = bias<Math, kBiasesA>(splat(load_word(a[i / kGroup] + i % kGroup * a_row)));
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) acc[i][j] = Math::mac(acc[i][j], row, columns[j]);
    }
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) {
      a[g] += a_word;
      if (kInPlace)
        asm(""
            : "+r"(a[g]));  // keeps the compiler from turning pointers into offsets
                            // again
    }
    b += t.b_word;
  }
  // When rows end within a word, the rest of the word counts as zero.
  if constexpr (kInPlace && Math::kPerWord > 1) {
    if (t.a_last != 0) {
#pragma GCC unroll 32
      for (int i = 0; i < kRows; ++i) {
        const u32 word = load_word(a[i / kGroup] + i % kGroup * a_row) & t.a_last;
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) {
          acc[i][j] =
              Math::mac(acc[i][j], bias<Math, kBiasesA>(splat(word)), load<u32v>(b + j * kLanes));
        }
      }
    }
  }
  if (t.before != nullptr) {
#pragma GCC unroll 32
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        acc[i][j] += load<Acc>(t.before + i * t.ld_before + j * kLanes);
      }
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      Out* to = out + i * t.ld_out + j * kLanes;
      if constexpr (__is_same(Out, u32)) {
        store(to, acc[i][j]);
      } else {
        store_float<Out>(to, acc[i][j], kLanes);
      }
    }
  }
}

// The next smaller number of rows for which there is a register block: 12 and 14 -> 8 -> 4.
constexpr int fewer_rows(int rows) { return rows > 8 ? 8 : rows > 4 ? rows / 2 : 0; }

template <class Block, int kRows, int kVectors>
[[gnu::always_inline]] inline void multiply_rows(const BlockTask& t, i64 rows) {
  if constexpr (fewer_rows(kRows) > 0) {
    if (rows <= fewer_rows(kRows))
      return multiply_rows<Block, fewer_rows(kRows), kVectors>(t, rows);
  }
  Block::template multiply<kRows, kVectors>(t);
}

// Multiplies a block of `rows` x `columns`, at most kRows x (kVectors * kLanes), by the smallest
// register block for it: with fewer rows for a low one, with half the vectors for a narrow one.
// Operands and output must have room for the register block that runs.
template <class Block, int kRows, int kVectors>
[[gnu::always_inline]] inline void multiply_smallest(const BlockTask& t, i64 rows, int columns) {
  constexpr int kHalf = kVectors / 2;
  if constexpr (kHalf > 0) {
    if (rows > fewer_rows(kRows) && columns <= kHalf * kLanes) {
      return Block::template multiply<kRows, kHalf>(t);
    }
  }
  multiply_rows<Block, kRows, kVectors>(t, rows);
}

template <class Math, int kPackedRows, bool kAsks>
struct PlainBlock {
  template <int kRows, int kVectors>
  [[gnu::always_inline]] static void multiply(const BlockTask& t) {
    multiply_block<Math, kRows, kVectors, kPackedRows, u32, kAsks>(t);
  }
};

// Kernels share this function as compiled code.
template <class Math, int kRows, int kVectors, int kPackedRows, bool kAsks = false>
void multiply_any(const BlockTask& t, i64 rows, int columns) {
  multiply_smallest<PlainBlock<Math, kPackedRows, kAsks>, kRows, kVectors>(t, rows, columns);
}

}  // namespace tessera::device
