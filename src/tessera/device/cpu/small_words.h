// What kernels of short calls need of vectors and words besides vector.h and words.h: both operands
// as they lie in memory, columns side by side, words of a few rows interleaved in registers.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/words.h"

namespace tessera::device {

typedef int i32x4 __attribute__((vector_size(16)));
typedef char c8x16 __attribute__((vector_size(16)));
typedef u8 u8x16 __attribute__((vector_size(16)));
typedef char bytes_v __attribute__((vector_size(kVectorBytes)));
typedef u8 u8_bytes_v __attribute__((vector_size(kVectorBytes)));
typedef u16 u16_halves_v __attribute__((vector_size(kVectorBytes)));
typedef long long i64v __attribute__((vector_size(kVectorBytes)));

// The bytes of an element whose words are multiplied as they lie in memory.
template <class Math>
constexpr int element_bytes() {
  return 4 / Math::kPerWord;
}

// A biased Math wants one factor unsigned. Here that is B, to which bias() adds the 128 when it is
// read: A is then repeated as it lies. Sums start from -128 times the sum of their row of A.
template <class Math>
[[gnu::always_inline]] inline typename Math::Acc mac_as_it_lies(typename Math::Acc acc, u32v a,
                                                                u32v b) {
  if constexpr (Math::kBiased) return Math::mac(acc, b, a);
  return Math::mac(acc, a, b);
}

// Holds a vector in a register. Otherwise GCC repeats its load as an operand of each product.
template <class V>
[[gnu::always_inline]] inline void hold(V& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__AVX2__)
  asm("" : "+x"(v));
#endif
}

// ---- shuffles within 128 bits ----

using HalfLanes = typename LanesUpTo<kLanes / 2>::type;

// The low or high halves of each four lanes, one word of a and one of b in turn, or two and two.
template <int kHigh, int... I>
[[gnu::always_inline]] inline u32v zip_words(u32v a, u32v b, Lanes<I...>) {
  return __builtin_shufflevector(a, b, (I / 4 * 4 + kHigh * 2 + I % 4 / 2 + I % 2 * kLanes)...);
}
template <int kHigh, int... I>
[[gnu::always_inline]] inline u32v zip_pairs(u32v a, u32v b, Lanes<I...>) {
  return bits_as<u32v>(__builtin_shufflevector(bits_as<i64v>(a), bits_as<i64v>(b),
                                               (I / 2 * 2 + kHigh + I % 2 * kLanes / 2)...));
}

// Four words of kLanes columns, transposed: out[w] holds word w of every column. x[i] has four
// words of each of the columns i, i + 4, i + 8, ..., so that words move only within 128 bits.
[[gnu::always_inline]] inline void transpose_four(u32v (&x)[4], u32v (&out)[4]) {
  const u32v a = zip_words<0>(x[0], x[1], AllLanes{}), b = zip_words<0>(x[2], x[3], AllLanes{});
  const u32v c = zip_words<1>(x[0], x[1], AllLanes{}), d = zip_words<1>(x[2], x[3], AllLanes{});
  out[0] = zip_pairs<0>(a, b, HalfLanes{});
  out[1] = zip_pairs<1>(a, b, HalfLanes{});
  out[2] = zip_pairs<0>(c, d, HalfLanes{});
  out[3] = zip_pairs<1>(c, d, HalfLanes{});
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// Two halves of a vector. Copied to memory one by one they could not be loaded at once.
[[gnu::always_inline]] inline u32v side_by_side(i32x4 low, i32x4 high) {
  return bits_as<u32v>(__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

// 16 bytes of each of the columns at p, p + 4 step, p + 8 step, ..., side by side.
[[gnu::always_inline]] inline u32v columns_four_apart(const u8* p, i64 step) {
#if defined(__AVX512F__) && !defined(__clang__)
  i32v v = __builtin_ia32_si512_si(load<i32x4>(p));
  v = __builtin_ia32_inserti32x4_mask(v, load<i32x4>(p + 4 * step), 1, v, 0xffff);
  v = __builtin_ia32_inserti32x4_mask(v, load<i32x4>(p + 8 * step), 2, v, 0xffff);
  v = __builtin_ia32_inserti32x4_mask(v, load<i32x4>(p + 12 * step), 3, v, 0xffff);
  return bits_as<u32v>(v);
#elif defined(__AVX2__) && !defined(__AVX512F__)
  return side_by_side(load<i32x4>(p), load<i32x4>(p + 4 * step));
#else
  u32v v;
#pragma GCC unroll 4
  for (int i = 0; i < kLanes / 4; ++i) {
    const i32x4 four = load<i32x4>(p + 4 * i * step);
    __builtin_memcpy(reinterpret_cast<char*>(&v) + 16 * i, &four, 16);
  }
  return v;
#endif
}

// ---- ends of rows ----

// For the last 16 bytes of a row, of which the last `rest` count: moves these to the front, zeros
// behind. So nothing outside of the row is read, if it has 16 bytes.
[[gnu::always_inline]] inline u8x16 end_control(int rest) {
  const u8x16 lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const u8x16 from = lane + static_cast<u8>(16 - rest);
  return from | (bits_as<u8x16>(from > 15) & 0x80);
}

#if defined(__SSSE3__)
[[gnu::always_inline]] inline i32x4 shift_end(i32x4 v, u8x16 control) {
  return bits_as<i32x4>(__builtin_ia32_pshufb128(bits_as<c8x16>(v), bits_as<c8x16>(control)));
}
#endif

#if defined(__AVX2__)
// The same in each 128 bits of a vector.
[[gnu::always_inline]] inline u32v shift_ends(u32v v, u8x16 control) {
  bytes_v all;
#if defined(__AVX512F__)
#pragma GCC unroll 4
  for (int i = 0; i < kLanes / 4; ++i) {
    __builtin_memcpy(reinterpret_cast<char*>(&all) + 16 * i, &control, 16);
  }
#else
  all = bits_as<bytes_v>(side_by_side(bits_as<i32x4>(control), bits_as<i32x4>(control)));
#endif
#if defined(__AVX512F__) && defined(__clang__)
  return bits_as<u32v>(__builtin_ia32_pshufb512(bits_as<bytes_v>(v), all));
#elif defined(__AVX512F__)
  return bits_as<u32v>(__builtin_ia32_pshufb512_mask(bits_as<bytes_v>(v), all, bytes_v{}, ~0ULL));
#else
  return bits_as<u32v>(__builtin_ia32_pshufb256(bits_as<bytes_v>(v), all));
#endif
}
#endif

// ---- rows of bf16 or int8, interleaved ----

template <int... I>
[[gnu::always_inline]] inline u32v interleave_pairs(u32v rows, Lanes<I...>) {
  const auto v = bits_as<u16_halves_v>(rows);
  return bits_as<u32v>(__builtin_shufflevector(v, v, (I / 2 + I % 2 * kLanes)...));
}
template <int... I>
[[gnu::always_inline]] inline u32v gather_fours(u32v rows, Lanes<I...>) {
  return __builtin_shufflevector(rows, rows, (I / 4 + I % 4 * 4)...);
}
template <int... I>
[[gnu::always_inline]] inline u32v interleave_fours(u32v rows, Lanes<I...>) {
  const auto v = bits_as<u8_bytes_v>(rows);
  return bits_as<u32v>(__builtin_shufflevector(v, v, (I / 16 * 16 + I % 16 / 4 + I % 4 * 4)...));
}

// A word of kLanes columns that lie side by side: its rows of k are `second`, `third` and `fourth`
// bytes from the first.
template <class Math>
[[gnu::always_inline]] inline u32v word_of_rows(const u8* p, i64 second, i64 third, i64 fourth) {
  if constexpr (Math::kPerWord == 1) {
    return load<u32v>(p);
  } else {
    u32v v;
#if defined(__AVX512F__) && !defined(__clang__)
    if constexpr (Math::kPerWord == 2) {
      typedef long long i64x4 __attribute__((vector_size(32)));
      typedef int i32x8 __attribute__((vector_size(32)));
      auto two = bits_as<i64v>(__builtin_ia32_si512_256si(load<i32x8>(p)));
      two = __builtin_ia32_inserti64x4_mask(two, load<i64x4>(p + second), 1, two, 0xff);
      v = bits_as<u32v>(two);
    } else {
      i32v four = __builtin_ia32_si512_si(load<i32x4>(p));
      four = __builtin_ia32_inserti32x4_mask(four, load<i32x4>(p + second), 1, four, 0xffff);
      four = __builtin_ia32_inserti32x4_mask(four, load<i32x4>(p + third), 2, four, 0xffff);
      four = __builtin_ia32_inserti32x4_mask(four, load<i32x4>(p + fourth), 3, four, 0xffff);
      v = bits_as<u32v>(four);
    }
#else
    constexpr int kPart = kVectorBytes / Math::kPerWord;
    const i64 rows[4] = {0, second, third, fourth};
#pragma GCC unroll 4
    for (int i = 0; i < Math::kPerWord; ++i) {
      __builtin_memcpy(reinterpret_cast<char*>(&v) + i * kPart, p + rows[i], kPart);
    }
#endif
    if constexpr (Math::kPerWord == 2) {
      return interleave_pairs(v, typename LanesUpTo<kLanes * 2>::type{});
    } else {
      return bias<Math, true>(
          interleave_fours(gather_fours(v, AllLanes{}), typename LanesUpTo<kLanes * 4>::type{}));
    }
  }
}

// ---- parts of vectors ----

#if defined(__AVX512F__)
// Loads the bytes of `mask`; the others are zero, and their memory is not touched.
[[gnu::always_inline]] inline u32v load_masked_bytes(const void* p, unsigned long long mask) {
#if defined(__clang__)
  return bits_as<u32v>(
      __builtin_ia32_loaddquqi512_mask(static_cast<const bytes_v*>(p), bytes_v{}, mask));
#else
  return bits_as<u32v>(
      __builtin_ia32_loaddquqi512_mask(static_cast<const char*>(p), bytes_v{}, mask));
#endif
}

// Stores the lanes of `mask`, as they are or as 16-bit floats.
template <class V>
[[gnu::always_inline]] inline void store_lanes(u32* p, V v, u16 mask) {
  __builtin_ia32_storeups512_mask(reinterpret_cast<float*>(p), bits_as<f32v>(v), mask);
}
[[gnu::always_inline]] inline void store_lanes(bf16* p, f32v v, u16 mask) {
  typedef short s16v __attribute__((vector_size(32)));
  const auto half = bits_as<s16v>(narrow_bits(bf16{}, v));
#if defined(__clang__)
  __builtin_ia32_storedquhi256_mask(reinterpret_cast<s16v*>(p), half, mask);
#else
  __builtin_ia32_storedquhi256_mask(reinterpret_cast<short*>(p), half, mask);
#endif
}
#endif

}  // namespace tessera::device
