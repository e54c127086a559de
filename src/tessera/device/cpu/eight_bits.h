// Vectors of float to numbers of 8 bits: rounded to nearest even, and to the largest finite one
// beyond that. A NaN stays one.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// The patterns of a format with so many bits of mantissa. Normal results round by an integer
// addition at the lost bits; subnormal ones by adding a number whose ulp is their spacing.
template <int kMantissa, int kBias>
[[gnu::always_inline]] inline u32v round_to_eight(f32v x, float largest) {
  constexpr int kLost = 23 - kMantissa;
  constexpr u32 kLeastNormal = (128U - kBias) << 23;
  const f32v spaced = splat(static_cast<float>(1 << (24 - kBias - kMantissa)));
  const u32v bits = bits_as<u32v>(x);
  const u32v is_nan = bits_as<u32v>(x != x);
  const u32v whole = bits & 0x7fffffffU;
  const u32v most = bits_as<u32v>(splat(largest));
  const u32v magnitude = whole > most ? most : whole;
  const u32v half = (1U << (kLost - 1)) - 1U + ((magnitude >> kLost) & 1U);
  const u32v normal = (magnitude - ((127U - kBias) << 23) + half) >> kLost;
  const u32v subnormal = bits_as<u32v>(bits_as<f32v>(magnitude) + spaced) - bits_as<u32v>(spaced);
  const u32v is_small = bits_as<u32v>(magnitude < kLeastNormal);
  const u32v finite = (subnormal & is_small) | (normal & ~is_small);
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
