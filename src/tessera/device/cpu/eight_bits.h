// Vectors of float to numbers of 8 bits: rounded to nearest even, and to the largest finite one
// beyond that. A NaN stays one.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// A format: bits of mantissa, bias of exponents, largest finite number.
template <class T>
struct EightBits;
template <>
struct EightBits<fp8> {
  static constexpr int kMantissa = 3, kBias = 7;
  static constexpr float kLargest = 448;
};
template <>
struct EightBits<bf8> {
  static constexpr int kMantissa = 2, kBias = 15;
  static constexpr float kLargest = 57344;
};

// Adding a power of two whose ulp is the spacing of the results rounds to them; the sum's low bits
// count the spacings.
template <class T>
[[gnu::always_inline]] inline u32v eight_bits(f32v x) {
  constexpr int kMantissa = EightBits<T>::kMantissa;
  constexpr int kLost = 23 - kMantissa;
  constexpr u32 kLeast = 128U - EightBits<T>::kBias;  // the exponent of the least normal result
  const u32v bits = bits_as<u32v>(x);
  const u32v is_nan = bits_as<u32v>(x != x);
  const u32v whole = bits & 0x7fffffffU;
  const u32v most = bits_as<u32v>(splat(EightBits<T>::kLargest));
  const u32v magnitude = whole > most ? most : whole;
  const u32v own = magnitude & 0x7f800000U;
  const u32v least = u32v{} + (kLeast << 23);
  const u32v exponent = own > least ? own : least;
  const u32v large = exponent + (static_cast<u32>(kLost) << 23);
  const u32v sum = bits_as<u32v>(bits_as<f32v>(magnitude) + bits_as<f32v>(large));
  const u32v finite = (sum - large) + ((exponent >> kLost) - (kLeast << kMantissa));
  return (finite & ~is_nan) | (0x7fU & is_nan) | ((bits >> 24) & 0x80U);
}

// store_float() for types that may have 8 bits.
template <class T>
[[gnu::always_inline]] inline void store_rounded(T* p, f32v x, int count) {
  if constexpr (sizeof(T) == 1) {
    const s8v bytes = narrow(bits_as<i32v>(eight_bits<T>(x)));
    if (count == kLanes) return store(p, bytes);
    store_bytes(p, bytes, count);
  } else {
    store_float(p, x, count);
  }
}

#if defined(__AVX512BW__) && defined(__AVX512DQ__)
typedef u16 words_v __attribute__((vector_size(kVectorBytes)));
typedef unsigned long long quads_v __attribute__((vector_size(kVectorBytes)));

// The same sums of numbers with a sign that are no NaN: of x and the largest result the one nearer
// to zero, and of that and the least normal result the farther one, of which the power of two is
// multiplied by 2^kLost. The low bits of a sum count spacings, the high ones are sign and exponent.
// Their sum is the result but for a constant, which the factor adds as an even number of spacings.
template <class T>
[[gnu::always_inline]] inline u32v count_spacings(f32v x) {
  constexpr int kNearer = 2, kFarther = 3, kCurrentRounding = 4;
  constexpr int kLost = 23 - EightBits<T>::kMantissa, kUnits = 1 << EightBits<T>::kMantissa;
  constexpr int kMissing = kUnits * (EightBits<T>::kBias - 128 - kLost) & 0xff;
  constexpr float kFactor = (1 << kLost) + static_cast<float>(kMissing) / kUnits;
  const f32v most = splat(EightBits<T>::kLargest);
  const f32v least = bits_as<f32v>(u32v{} + ((128U - EightBits<T>::kBias) << 23));
  const f32v y = __builtin_ia32_rangeps512_mask(x, most, kNearer, x, 0xffff, kCurrentRounding);
  const f32v normal =
      __builtin_ia32_rangeps512_mask(y, least, kFarther, y, 0xffff, kCurrentRounding);
  const f32v power = bits_as<f32v>(bits_as<u32v>(normal) & 0xff800000U);
  return bits_as<u32v>(power * kFactor + y);
}

template <int... I>
[[gnu::always_inline]] inline words_v halves(u32v a, u32v b, int which, Lanes<I...>) {
  const words_v x = bits_as<words_v>(a), y = bits_as<words_v>(b);
  if (which == 0) return __builtin_shufflevector(x, y, (2 * I)..., (2 * (I + kLanes))...);
  return __builtin_shufflevector(x, y, (2 * I + 1)..., (2 * (I + kLanes) + 1)...);
}

// Two vectors of results, in words.
template <class T>
[[gnu::always_inline]] inline words_v eight_bit_words(f32v a, f32v b) {
  const u32v x = count_spacings<T>(a), y = count_spacings<T>(b);
  const words_v low = halves(x, y, 0, AllLanes{}), high = halves(x, y, 1, AllLanes{});
  const words_v sign = high >> 8, sum = (high >> (7 - EightBits<T>::kMantissa)) + low;
  return sign ^ ((sign ^ sum) & 0x7f);
}

[[gnu::always_inline]] inline quads_v low_bytes(words_v a, words_v b) {
  typedef short i16v __attribute__((vector_size(kVectorBytes)));
  typedef char bytes __attribute__((vector_size(kVectorBytes)));
#if defined(__clang__)
  const auto mixed = __builtin_ia32_packuswb512(bits_as<i16v>(a), bits_as<i16v>(b));
#else
  const auto mixed = __builtin_ia32_packuswb512_mask(bits_as<i16v>(a), bits_as<i16v>(b), bytes{},
                                                     0xffffffffffffffffULL);
#endif
  const quads_v quads = bits_as<quads_v>(mixed);
  return __builtin_shufflevector(quads, quads, 0, 2, 4, 6, 1, 3, 5, 7);
}

// Whether no lane of any of four vectors is NaN.
[[gnu::always_inline]] inline bool all_numbers(const f32v (&x)[4]) {
  constexpr int kUnordered = 3, kCurrentRounding = 4;
  const auto low = __builtin_ia32_cmpps512_mask(x[0], x[1], kUnordered, 0xffff, kCurrentRounding);
  const auto high = __builtin_ia32_cmpps512_mask(x[2], x[3], kUnordered, 0xffff, kCurrentRounding);
  return (low | high) == 0;
}
#endif

// store_rounded() of four whole vectors.
template <class T>
[[gnu::always_inline]] inline void store_four_rounded(T* p, const f32v (&x)[4]) {
#if defined(__AVX512BW__) && defined(__AVX512DQ__)
  if (__builtin_expect(all_numbers(x), 1)) {
    store(p, low_bytes(eight_bit_words<T>(x[0], x[1]), eight_bit_words<T>(x[2], x[3])));
    return;
  }
#endif
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) store_rounded(p + i * kLanes, x[i], kLanes);
}

// Stores vectors as for_each_vector() visits them, four whole ones at a time.
template <class T>
struct RoundedStores {
  f32v four[4];
  [[gnu::always_inline]] void put(T* p, f32v x, int lanes, int number) {
    if (number < 0) return store_rounded(p, x, lanes);
    four[number] = x;
    if (number == 3) store_four_rounded(p - 3 * kLanes, four);
  }
};

// The greater magnitude of each lane; of x those that are NaN are left out.
[[gnu::always_inline]] inline f32v greater_magnitude(f32v x, f32v most) {
#if defined(__AVX512DQ__) && defined(__AVX512F__)
  constexpr int kFartherWithoutSign = 11, kCurrentRounding = 4;
  return __builtin_ia32_rangeps512_mask(x, most, kFartherWithoutSign, x, 0xffff, kCurrentRounding);
#else
  const f32v magnitude = bits_as<f32v>(bits_as<u32v>(x) & 0x7fffffffU);
  return magnitude > most ? magnitude : most;
#endif
}

}  // namespace tessera::device
