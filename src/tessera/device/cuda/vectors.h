// Neighbours in memory to and from floats, all at once where they are aligned.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Neighbours {
  T x[kCount];
};

// The first `left` of kCount elements; the others get `behind`.
template <class T, int kCount>
__device__ __forceinline__ void load_floats(const T* p, bool aligned, i64 left, float behind,
                                            float (&x)[kCount]) {
  if (aligned && left >= kCount) {
    const auto v = *reinterpret_cast<const Neighbours<T, kCount>*>(p);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = to_float(v.x[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = i < left ? to_float(p[i]) : behind;
}

template <class T>
__device__ __forceinline__ T rounded(float x) {
  if constexpr (kSame<T, float>) {
    return x;
  } else {
    return T{static_cast<u16>(round_pair<T>(x, 0.0F))};
  }
}

template <class T, int kCount>
__device__ __forceinline__ void store_floats(T* p, bool aligned, i64 left,
                                             const float (&x)[kCount]) {
  if (aligned && left >= kCount) {
    Neighbours<T, kCount> v;
#pragma unroll
    for (int i = 0; i < kCount; ++i) v.x[i] = rounded<T>(x[i]);
    *reinterpret_cast<Neighbours<T, kCount>*>(p) = v;
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < left) p[i] = rounded<T>(x[i]);
  }
}

}  // namespace tessera::device
