// Columns whose k is contiguous, for short calls: dot products along k of kRows rows by up to
// kColumns columns at a time, which one tree of shuffles adds up over their lanes.
#pragma once

#include "tessera/device/cpu/small_words.h"

namespace tessera::device {

struct SmallDots {
  const u8 *a, *b;
  i64 a_row, b_column;  // bytes
  i64 bytes;            // of k
  int columns;
  const int* start;  // of a biased Math: what the sums of each row start from
  void* out;
  i64 ld_out;    // elements
  bool narrows;  // whether sums are stored as bf16
};
using SmallMultiplyDots = void (*)(const SmallDots& t);

// Kernels share this function as compiled code. It is written for AVX-512; no kernel for other
// machines names it.
template <class Math, int kRows, int kColumns>
void small_dots(const SmallDots& t);

#if defined(__AVX512F__)
// Pairs of 128 bits: the even or the odd ones of a, then those of b.
template <int kOdd, int... I>
[[gnu::always_inline]] inline u32v halves_of(u32v a, u32v b, Lanes<I...>) {
  return bits_as<u32v>(__builtin_shufflevector(bits_as<i64v>(a), bits_as<i64v>(b),
                                               (I / 2 * 4 + kOdd * 2 + I % 2)...));
}

// Lane i of the result is the sum over the lanes of x[i], i < kCount, 8 or 16.
template <int kCount, class Acc>
[[gnu::always_inline]] inline Acc sums_of(const Acc* x) {
  constexpr AllLanes kAll;
  constexpr HalfLanes kHalf;
  const auto add = [](u32v a, u32v b) { return bits_as<Acc>(a) + bits_as<Acc>(b); };
  Acc four[4];
#pragma GCC unroll 4
  for (int i = 0; i < kCount / 4; ++i) {
    Acc pair[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const auto a = bits_as<u32v>(x[i * 4 + h * 2]), b = bits_as<u32v>(x[i * 4 + h * 2 + 1]);
      pair[h] = add(zip_words<0>(a, b, kAll), zip_words<1>(a, b, kAll));
    }
    const auto a = bits_as<u32v>(pair[0]), b = bits_as<u32v>(pair[1]);
    four[i] = add(zip_pairs<0>(a, b, kHalf), zip_pairs<1>(a, b, kHalf));
  }
  Acc two[2];
#pragma GCC unroll 2
  for (int h = 0; h < kCount / 8; ++h) {
    const auto a = bits_as<u32v>(four[h * 2]), b = bits_as<u32v>(four[h * 2 + 1]);
    two[h] = add(halves_of<0>(a, b, kHalf), halves_of<1>(a, b, kHalf));
  }
  const auto a = bits_as<u32v>(two[0]), b = bits_as<u32v>(two[kCount / 8 - 1]);
  return add(halves_of<0>(a, b, kHalf), halves_of<1>(a, b, kHalf));
}

// Each row's sums are some of the lanes of two vectors.
template <class Math, class Out, int kRows, int kColumns>
[[gnu::always_inline]] inline void store_dots(const SmallDots& t, typename Math::Acc first,
                                              typename Math::Acc second) {
  Out* const out = static_cast<Out*>(t.out);
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    const u32 lanes = ((1U << t.columns) - 1U) << (i * kColumns);
    const auto put = [&](typename Math::Acc sums, u32 mask, int from) {
      if constexpr (Math::kBiased) sums += splat(t.start[i]);
      store_lanes(out + i * t.ld_out + from, sums, static_cast<u16>(mask));
    };
    if (i * kColumns < 16) put(first, lanes & 0xffffU, -i * kColumns);
    if ((i + 1) * kColumns > 16) put(second, lanes >> 16, 16 - i * kColumns);
  }
}

#define TESSERA_SMALL_COLUMN(c)                                   \
  case (c) + 1:                                                   \
    if constexpr ((c) < kColumns) {                               \
      constexpr int kColumn = (c) < kColumns ? (c) : 0;           \
      const u8* const from = b[kColumn / 3] + kColumn % 3 * step; \
      if constexpr (kRows <= 3) __builtin_prefetch(from + ahead); \
      u32v y = bias<Math, true>(load_masked_bytes(from, mask));   \
      if constexpr (kRows > 1) hold(y);                           \
      _Pragma("GCC unroll 4") for (int i = 0; i < kRows; ++i) {   \
        Acc& sum = acc[i * kColumns + kColumn];                   \
        sum = mac_as_it_lies<Math>(sum, x[i], y);                 \
      }                                                           \
    }                                                             \
    [[fallthrough]];

template <class Math, int kRows, int kColumns>
[[gnu::noinline]] void small_dots(const SmallDots& t) {
  using Acc = typename Math::Acc;
  constexpr int kSums = (kRows * kColumns + 7) / 8 * 8;
  static_assert(kSums <= 24);
  constexpr int kGroups = (kColumns + 2) / 3;
  constexpr i64 kShort = 640;  // bytes
  const i64 a_row = t.a_row, step = t.b_column;
  int columns = t.columns;
  // Processors foresee long columns. Of short ones the next are asked for while these are
  // multiplied.
  const i64 ahead = step <= kShort ? columns * step : 0;
  Acc acc[kSums] = {};
  const u8* a = t.a;
  const u8* b[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) b[g] = t.b + g * 3 * step;
  // The last turn reads a part of a vector, the others all: one loop for both.
  const int rest = static_cast<int>(t.bytes % 64);
  unsigned long long mask = ~0ULL;
  for (i64 left = blocks_of(t.bytes, 64); left > 0; --left) {
    if (left == 1 && rest != 0) mask = (1ULL << rest) - 1;
    u32v x[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) x[i] = load_masked_bytes(a + i * a_row, mask);
    asm("" : "+r"(columns));
    // clang-format off
    switch (columns) {
      TESSERA_SMALL_COLUMN(15) TESSERA_SMALL_COLUMN(14) TESSERA_SMALL_COLUMN(13)
      TESSERA_SMALL_COLUMN(12) TESSERA_SMALL_COLUMN(11) TESSERA_SMALL_COLUMN(10)
      TESSERA_SMALL_COLUMN(9) TESSERA_SMALL_COLUMN(8) TESSERA_SMALL_COLUMN(7)
      TESSERA_SMALL_COLUMN(6) TESSERA_SMALL_COLUMN(5) TESSERA_SMALL_COLUMN(4)
      TESSERA_SMALL_COLUMN(3) TESSERA_SMALL_COLUMN(2) TESSERA_SMALL_COLUMN(1)
      TESSERA_SMALL_COLUMN(0)
      default:;
    }
    // clang-format on
    a += 64;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      b[g] += 64;
      asm("" : "+r"(b[g]));
    }
  }
  const Acc first = kSums == 8 ? sums_of<8>(acc) : sums_of<16>(acc);
  const Acc second = kSums == 24 ? sums_of<8>(acc + kSums - 8) : Acc{};
#if defined(__AVX512BF16__)
  if constexpr (__is_same(Math, MathBf16)) {
    if (t.narrows) return store_dots<Math, bf16, kRows, kColumns>(t, first, second);
  }
#endif
  store_dots<Math, u32, kRows, kColumns>(t, first, second);
}
#undef TESSERA_SMALL_COLUMN
#endif

}  // namespace tessera::device
