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

#if defined(__AVX2__)
// Pairs of 128 bits: the even or the odd ones of a, then the same ones of b.
template <int kOdd, int... I>
[[gnu::always_inline]] inline u32v halves_of(u32v a, u32v b, Lanes<I...>) {
  return bits_as<u32v>(__builtin_shufflevector(bits_as<i64v>(a), bits_as<i64v>(b),
                                               (I / 2 * 4 + kOdd * 2 + I % 2)...));
}

// Lane i of the result is the sum over the lanes of x[i], i < kCount, 8 or 16. Eight lanes have
// their sums one step before the end.
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
  if constexpr (kLanes == 8) return two[0];
  const auto a = bits_as<u32v>(two[0]), b = bits_as<u32v>(two[kCount / 8 - 1]);
  return add(halves_of<0>(a, b, kHalf), halves_of<1>(a, b, kHalf));
}

#endif

#if defined(__AVX512F__)
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
      u32v y = bias<Math, true>(load_at(from));                   \
      if constexpr (kRows > 1) hold(y);                           \
      _Pragma("GCC unroll 4") for (int i = 0; i < kRows; ++i) {   \
        Acc& sum = acc[i * kColumns + kColumn];                   \
        sum = mac_as_it_lies<Math>(sum, x[i], y);                 \
      }                                                           \
    }                                                             \
    [[fallthrough]];

// Adds the products of one vector of each row and of each column.
template <class Math, int kRows, int kColumns, class Load>
[[gnu::always_inline]] inline void add_dots(typename Math::Acc* acc, const u8* a, i64 a_row,
                                            const u8* const* b, i64 step, i64 ahead, int columns,
                                            Load load_at) {
  using Acc = typename Math::Acc;
  u32v x[kRows];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) x[i] = load_at(a + i * a_row);
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
}
#undef TESSERA_SMALL_COLUMN

// Kernels share this function as compiled code.
template <class Math, int kRows, int kColumns>
[[gnu::noinline]] void small_dots(const SmallDots& t) {
  using Acc = typename Math::Acc;
  constexpr int kSums = (kRows * kColumns + 7) / 8 * 8;
  static_assert(kSums <= 24);
  constexpr int kGroups = (kColumns + 2) / 3;
  constexpr i64 kShort = 640;  // bytes
  const i64 step = t.b_column;
  // Processors foresee long columns. Short ones are asked for while those before them are
  // multiplied.
  const i64 ahead = step <= kShort ? t.columns * step : 0;
  Acc acc[kSums] = {};
  const u8* a = t.a;
  const u8* b[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) b[g] = t.b + g * 3 * step;
  for (i64 left = t.bytes / 64; left > 0; --left) {
    add_dots<Math, kRows, kColumns>(acc, a, t.a_row, b, step, ahead, t.columns,
                                    [](const u8* p) { return load<u32v>(p); });
    a += 64;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      b[g] += 64;
      asm("" : "+r"(b[g]));
    }
  }
  // Masked loads take longer than whole ones, so only the last vector takes them.
  if (const int rest = static_cast<int>(t.bytes % 64); rest != 0) {
    const unsigned long long mask = (1ULL << rest) - 1;
    add_dots<Math, kRows, kColumns>(acc, a, t.a_row, b, step, ahead, t.columns,
                                    [mask](const u8* p) { return load_masked_bytes(p, mask); });
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
#elif defined(__AVX2__)
// Four sums of a row, of which the first `count` are stored. Masked stores of AVX2 take a dozen
// cycles on AMD's cores.
[[gnu::always_inline]] inline void store_four(u32* p, const u32* four, int count) {
  if (count == 4) return store(p, load<i32x4>(four));
  for (int i = 0; i < count; ++i) p[i] = four[i];
}

// Adds the products of one vector of each row and of each column. Where there are fewer rows than
// columns their vectors stay in registers, otherwise the columns' vectors do.
template <class Math, int kRows, int kColumns, class Load>
[[gnu::always_inline]] inline void add_dots(typename Math::Acc (&acc)[kRows][kColumns],
                                            const u8* const (&a)[kRows],
                                            const u8* const (&b)[kColumns], i64 at, Load load_at) {
  constexpr bool kHoldsRows = kRows < kColumns;
  constexpr int kHeld = kHoldsRows ? kRows : kColumns, kOthers = kHoldsRows ? kColumns : kRows;
  u32v held[kHeld];
#pragma GCC unroll 8
  for (int i = 0; i < kHeld; ++i) held[i] = load_at((kHoldsRows ? a : b)[i] + at);
#pragma GCC unroll 8
  for (int j = 0; j < kOthers; ++j) {
    u32v other = load_at((kHoldsRows ? b : a)[j] + at);
    if constexpr (kHeld > 1) hold(other);
#pragma GCC unroll 8
    for (int i = 0; i < kHeld; ++i) {
      auto& sum = kHoldsRows ? acc[i][j] : acc[j][i];
      sum = Math::mac(sum, held[i], other);
    }
  }
}

// Kernels share this function as compiled code. It always multiplies kColumns columns: a jump to
// their number would take longer than the products. Those that are missing repeat the last one.
template <class Math, int kRows, int kColumns>
[[gnu::noinline]] void small_dots(const SmallDots& t) {
  static_assert(!Math::kBiased && Math::kPerWord == 1 && kRows * kColumns <= 12);
  constexpr int kFours = (kColumns + 3) / 4;  // of sums of a row
  const u8 *a[kRows], *b[kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) a[i] = t.a + i * t.a_row;
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) b[j] = t.b + smaller(j, t.columns - 1) * t.b_column;
  typename Math::Acc acc[kRows][kColumns] = {};
  i64 at = 0;
  for (const i64 whole = t.bytes / kVectorBytes * kVectorBytes; at < whole; at += kVectorBytes) {
    add_dots<Math>(acc, a, b, at, [](const u8* p) { return load<u32v>(p); });
  }
  if (at < t.bytes) {
    const i32v mask = first_lanes(static_cast<int>(t.bytes - at) / 4);
    add_dots<Math>(acc, a, b, at, [&](const u8* p) {
      return bits_as<u32v>(__builtin_ia32_maskloadps256(reinterpret_cast<const f32v*>(p), mask));
    });
  }
  // Two fours of sums at a time.
  u32* const out = static_cast<u32*>(t.out);
#pragma GCC unroll 4
  for (int f = 0; f < kRows * kFours; f += 2) {
    typename Math::Acc eight[8] = {};
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const int four = f + i / 4, column = four % kFours * 4 + i % 4;
      if (four < kRows * kFours && column < kColumns) eight[i] = acc[four / kFours][column];
    }
    const auto sums = sums_of<8>(eight);
    u32 all[8];
    store(all, sums);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      if (f + h >= kRows * kFours) break;
      const int first = (f + h) % kFours * 4;
      const int count = static_cast<int>(smaller(t.columns - first, 4));
      store_four(out + (f + h) / kFours * t.ld_out + first, all + h * 4, count);
    }
  }
}
#endif

}  // namespace tessera::device
