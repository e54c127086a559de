// Floats of 8 bits to floats, exactly and without comparisons, and floats to them: to nearest even,
// and to the largest finite one beyond that. A NaN stays one.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

template <class T>
__device__ __forceinline__ float widened(T x) {
#if defined(__gfx942__) || defined(__gfx950__)
  if constexpr (kSame<T, fp8>) return __builtin_amdgcn_cvt_f32_fp8(x.bits, 0);
  if constexpr (kSame<T, bf8>) return __builtin_amdgcn_cvt_f32_bf8(x.bits, 0);
#else
  if constexpr (kSame<T, bf8>) return to_float(fp16{static_cast<u16>(x.bits << 8)});
  if constexpr (kSame<T, fp8>) {  // an fp16 whose exponent is too small by 8, or its NaN
    const u32 rest = x.bits & 0x7fU;
    const u32 half = (x.bits & 0x80U) << 8 | rest << 7 | ((rest + 1) & 0x80U) << 7;
    return to_float(fp16{static_cast<u16>(half)}) * 256.0F;
  }
#endif
  return to_float(x);
}

// The largest number of an 8-bit float.
template <class T>
constexpr float largest_of() {
#if defined(__gfx942__)
  return kSame<T, fp8> ? 240.0F : 57344.0F;
#else
  return kSame<T, fp8> ? 448.0F : 57344.0F;
#endif
}

// The float of an exponent of kExponent bits, as eight_bits_to_float() reads it.
template <int kExponent>
__device__ __forceinline__ u32 round_to_eight_bits(float x) {
#if defined(__gfx942__)
  constexpr bool kFnuz = true;
#else
  constexpr bool kFnuz = false;
#endif
  constexpr int kMantissa = 7 - kExponent;
  constexpr int kBias = (1 << (kExponent - 1)) - (kFnuz ? 0 : 1);
  constexpr u32 kNan = kFnuz ? 0x80U : 0x7fU;
  // FNUZ has no infinity and no other NaN; E4M3 has no infinity.
  constexpr u32 kMost = kFnuz ? 0x7fU : kExponent == 4 ? 0x7eU : 0x7bU;
  const u32 word = bits<u32>(x), sign = word >> 24 & 0x80U, rest = word & 0x7fffffffU;
  if (rest > 0x7f800000U) return kNan;
  // Below the smallest normal number, adding a large float rounds to steps of the smallest one.
  constexpr int kStep = 1 - kBias - kMantissa;  // its exponent
  constexpr u32 kLeastNormal = static_cast<u32>(1 - kBias + 127) << 23;
  const float large = bits<float>(static_cast<u32>(kStep + 23 + 127) << 23);
  const u32 small = bits<u32>(bits<float>(rest) + large) - bits<u32>(large);
  constexpr int kDropped = 23 - kMantissa;
  const u32 even = rest + ((1U << (kDropped - 1)) - 1) + (rest >> kDropped & 1U);
  const u32 normal = (even >> kDropped) - (static_cast<u32>(127 - kBias) << kMantissa);
  u32 y = rest < kLeastNormal ? small : normal;
  y = y > kMost ? kMost : y;
  return kFnuz && y == 0 ? 0 : y | sign;
}

// The element next to x, of any type.
template <class T>
__device__ __forceinline__ T rounded(float x) {
  if constexpr (kSame<T, fp8>) {
    return fp8{static_cast<u8>(round_to_eight_bits<4>(x))};
  } else if constexpr (kSame<T, bf8>) {
    return bf8{static_cast<u8>(round_to_eight_bits<5>(x))};
  } else {
    return bits<T>(static_cast<WordBits<T>>(round_to<T>(x)));
  }
}

}  // namespace tessera::device
