// Vectors of float to numbers of 8 bits: rounded to nearest even, and to the largest finite one
// beyond that. A NaN stays one.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// The patterns of a format with so many bits of mantissa. Adding a power of two whose ulp is the
// spacing of the results rounds to them; the sum's low bits count the spacings.
template <int kMantissa, int kBias>
[[gnu::always_inline]] inline u32v round_to_eight(f32v x, float largest) {
  constexpr int kLost = 23 - kMantissa;
  constexpr u32 kLeast = 128U - kBias;  // the exponent of the least normal result
  const u32v bits = bits_as<u32v>(x);
  const u32v is_nan = bits_as<u32v>(x != x);
  const u32v whole = bits & 0x7fffffffU;
  const u32v most = bits_as<u32v>(splat(largest));
  const u32v magnitude = whole > most ? most : whole;
  const u32v own = magnitude & 0x7f800000U;
  const u32v least = u32v{} + (kLeast << 23);
  const u32v exponent = own > least ? own : least;
  const u32v large = exponent + (static_cast<u32>(kLost) << 23);
  const u32v sum = bits_as<u32v>(bits_as<f32v>(magnitude) + bits_as<f32v>(large));
  const u32v finite = (sum - large) + ((exponent >> kLost) - (kLeast << kMantissa));
  return (finite & ~is_nan) | (0x7fU & is_nan) | ((bits >> 24) & 0x80U);
}
[[gnu::always_inline]] inline u32v eight_bits(fp8, f32v x) { return round_to_eight<3, 7>(x, 448); }
[[gnu::always_inline]] inline u32v eight_bits(bf8, f32v x) {
  return round_to_eight<2, 15>(x, 57344);
}

// store_float() for types that may have 8 bits.
template <class T>
[[gnu::always_inline]] inline void store_rounded(T* p, f32v x, int count) {
  if constexpr (sizeof(T) == 1) {
    const s8v bytes = narrow(bits_as<i32v>(eight_bits(T{}, x)));
    if (count == kLanes) return store(p, bytes);
    store_bytes(p, bytes, count);
  } else {
    store_float(p, x, count);
  }
}

}  // namespace tessera::device
