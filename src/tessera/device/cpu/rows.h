// What kernels over rows use on whole vectors: the exponential function, loads, and stores that
// leave the caches to what is still to be read.
#pragma once

#include "tessera/device/cpu/math.h"

namespace tessera::device {

// e^x for x <= 0 within 2^-22, shorter than exp(): 2^(n + f), |f| <= 1/2, and 1 + f p(f) for 2^f,
// p fitted to the least relative error (2^-23.1). Exact at 0 and -infinity; a NaN stays one.
[[gnu::always_inline]] inline f32v exp_of_negative(f32v x) {
  const f32v magic = splat(0x1.8p23F);
  f32v least = splat(-104.0F);
  asm("" : "+x"(least));  // of a constant GCC makes a comparison and a selection
  const f32v bounded = max(least, x);
  f32v shifted = bounded * 1.44269504F + magic;
  asm("" : "+x"(shifted));  // keeps the compiler from removing the addition
  const f32v n = shifted - magic;
  const f32v f = bounded * 1.44269504F - n;
  f32v p = f * 0.00132647296F + 0.00967151485F;
  p = p * f + 0.0555073358F;
  p = p * f + 0.240222424F;
  p = p * f + 0.693147004F;
  return scale_by_power(p * f + 1.0F, n);
}

// load_float(), but whole vectors of fp16 by one instruction if the machine has it, and vectors of
// bf16 without the halves that GCC makes of a conversion.
template <class T>
[[gnu::always_inline]] inline f32v load_lanes(const T* p, int lanes) {
#if defined(__AVX2__) && defined(__F16C__)
  typedef short s16v __attribute__((vector_size(kVectorBytes / 2)));
  if (__is_same(T, fp16) && lanes == kLanes) {
#if defined(__AVX512F__)
    constexpr int kCurrentRounding = 4;
    return __builtin_ia32_vcvtph2ps512_mask(load<s16v>(p), f32v{}, 0xffff, kCurrentRounding);
#else
    return __builtin_ia32_vcvtph2ps256(load<s16v>(p));
#endif
  }
#if !defined(__AVX512F__) && !defined(__clang__)
  if (__is_same(T, bf16) && lanes == kLanes) {
    return bits_as<f32v>(__builtin_ia32_pmovzxwd256(load<s16v>(p)) << 16);
  }
#endif
#endif
  return load_float(p, lanes);
}

// The elements of two vectors, each in 16 bits, in their order.
template <int... I>
[[gnu::always_inline]] inline f32v joined(u16v a, u16v b, Lanes<I...>) {
  return bits_as<f32v>(__builtin_shufflevector(a, b, I..., (I + kLanes)...));
}
template <int... I>
[[gnu::always_inline]] inline f32v high_halves(u32v a, u32v b, Lanes<I...>) {
  typedef u16 words __attribute__((vector_size(kVectorBytes)));
  return bits_as<f32v>(__builtin_shufflevector(bits_as<words>(a), bits_as<words>(b), (2 * I + 1)...,
                                               (2 * (I + kLanes) + 1)...));
}

// round_bits() for bf16, in the high half.
[[gnu::always_inline]] inline u32v round_high(f32v x) {
  const u32v bits = bits_as<u32v>(x);
  return x == x ? bits + 0x7fffU + ((bits >> 16) & 1U) : bits | 0x400000U;
}

// What store_two() stores of a vector.
template <class T>
[[gnu::always_inline]] inline f32v rounded_to(f32v x) {
  if constexpr (__is_same(T, float)) {
    return x;
#if !defined(__AVX512BF16__)
  } else if constexpr (__is_same(T, bf16)) {
    return bits_as<f32v>(round_high(x) & 0xffff0000U);
#endif
  } else {
    const u16v halves = narrow_bits(T{}, x);
    return load_lanes(reinterpret_cast<const T*>(&halves), kLanes);
  }
}

[[gnu::always_inline]] inline void store_whole(void* p, f32v v, bool past_cache) {
  if (!past_cache) return store(p, v);
#if defined(__clang__)
  __builtin_nontemporal_store(v, static_cast<f32v*>(p));
#elif defined(__AVX512F__)
  __builtin_ia32_movntps512(static_cast<float*>(p), v);
#elif defined(__AVX2__)
  __builtin_ia32_movntps256(static_cast<float*>(p), v);
#else
  store(p, v);
#endif
}

// Stores two vectors, converted to T; past the caches only to multiples of a vector's bytes, and
// whoever does so calls finish_stores() at the end.
template <class T>
[[gnu::always_inline]] inline void store_two(T* p, f32v a, f32v b, bool past_cache) {
  if constexpr (__is_same(T, float)) {
    store_whole(p, a, past_cache);
    store_whole(p + kLanes, b, past_cache);
#if !defined(__AVX512BF16__)
  } else if constexpr (__is_same(T, bf16)) {
    store_whole(p, high_halves(round_high(a), round_high(b), AllLanes{}), past_cache);
#endif
  } else {
    store_whole(p, joined(narrow_bits(T{}, a), narrow_bits(T{}, b), AllLanes{}), past_cache);
  }
}
inline void finish_stores() {
#if defined(__AVX2__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace tessera::device
