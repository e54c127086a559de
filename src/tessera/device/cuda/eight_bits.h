// Numbers of 8 bits to floats, exactly, and floats to them: to nearest even, and to the largest
// finite one beyond that. A NaN stays one.
#pragma once

#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

template <class T>
inline constexpr bool kIsEightBits = kSame<T, fp8> || kSame<T, bf8>;

__device__ __forceinline__ float to_float(fp8 x) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(x.bits)));
  return to_float(fp16{static_cast<u16>(pair)});
}
__device__ __forceinline__ float to_float(bf8 x) {  // the upper half of an fp16
  return to_float(fp16{static_cast<u16>(x.bits << 8)});
}

// round_pair() for types that may have 8 bits, and rounded().
template <class T>
__device__ __forceinline__ PairBits<T> round_output(float x, float y) {
  if constexpr (kIsEightBits<T>) {
    u16 pair;
    if constexpr (kSame<T, fp8>) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(y), "f"(x));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(y), "f"(x));
    }
    return pair;
  } else {
    return round_pair<T>(x, y);
  }
}
template <class T>
__device__ __forceinline__ T rounded_output(float x) {
  if constexpr (kIsEightBits<T>) {
    return T{static_cast<u8>(round_output<T>(x, 0.0F))};
  } else {
    return rounded<T>(x);
  }
}

}  // namespace tessera::device
