// Runs of neighbours in memory to and from floats, all at once where they are aligned.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Neighbours {
  T x[kCount];
};

// The first `left` of kCount elements; the others are zero. Nothing here waits for the memory, so
// that a thread can ask for several runs before it uses the first one.
template <int kCount, class T>
__device__ __forceinline__ Neighbours<T, kCount> load_run(const T* p, bool aligned, int left) {
  Neighbours<T, kCount> run = {};
  if (aligned && left >= kCount) {
    run = *reinterpret_cast<const Neighbours<T, kCount>*>(p);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < left) run.x[i] = p[i];
    }
  }
  return run;
}

// The same of memory that nobody writes while the kernel runs: the compiler may load it earlier.
template <int kCount, class T>
__device__ __forceinline__ Neighbours<T, kCount> load_constants(const T* p, bool aligned,
                                                                int left) {
  union {
    Neighbours<T, kCount> run;
    uint4 words[sizeof(Neighbours<T, kCount>) / 16 + 1];
  } all;
  constexpr int kWords = sizeof(Neighbours<T, kCount>) / 16;
  if (kWords == 0 || !aligned || left < kCount) return load_run<kCount>(p, aligned, left);
#pragma unroll
  for (int i = 0; i < kWords; ++i) all.words[i] = __ldg(reinterpret_cast<const uint4*>(p) + i);
  return all.run;
}

// As floats; from `left` on they are `behind`.
template <class T, int kCount>
__device__ __forceinline__ void to_floats(const Neighbours<T, kCount>& run, int left, float behind,
                                          float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = to_float(run.x[i]);
  if (left >= kCount) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i >= left) x[i] = behind;
  }
}

template <class T>
__device__ __forceinline__ T rounded(float x) {
  if constexpr (kSame<T, float>) {
    return x;
  } else {
    return T{static_cast<u16>(round_pair<T>(x, 0.0F))};
  }
}

// The first `left` of kCount floats, rounded.
template <class T, int kCount>
__device__ __forceinline__ void store_floats(T* p, bool aligned, int left,
                                             const float (&x)[kCount]) {
  if (aligned && left >= kCount) {
    Neighbours<PairBits<T>, kCount / 2> run;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) run.x[i] = round_pair<T>(x[2 * i], x[2 * i + 1]);
    *reinterpret_cast<Neighbours<PairBits<T>, kCount / 2>*>(p) = run;
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < left) p[i] = rounded<T>(x[i]);
  }
}

}  // namespace tessera::device
