// Elementary functions on vectors of float, accurate to a few units in the last place.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// p * 2^n for whole numbers n, rounded once.
[[gnu::always_inline]] inline f32v scale_by_power(f32v p, f32v n) {
#if defined(__AVX512F__)
  constexpr int kCurrentRounding = 4;
  return __builtin_ia32_scalefps512_mask(p, n, p, 0xffff, kCurrentRounding);
#else  // multiplies by two factors, so that results below the normal range keep their value
  const i32v exponent = __builtin_convertvector(n, i32v);
  const i32v half = exponent >> 1;
  const f32v low = bits_as<f32v>((half + 127) << 23);
  return p * low * bits_as<f32v>((exponent - half + 127) << 23);
#endif
}

// e^x: x = n ln 2 + r, |r| <= ln 2 / 2, and 1 + r + r^2 q(r) for e^r, q fitted to the least
// relative error (2^-27.9). A NaN passes both bounds. Terms are summed in pairs: shorter chains
// than Horner's.
[[gnu::always_inline]] inline f32v exp(f32v x) {
  const f32v bounded = max(splat(-104.0F), min(splat(89.0F), x));
  const f32v n = round_even(bounded * 1.44269504F);
  f32v r = bounded - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  const f32v r2 = r * r;
  const f32v q01 = r * 0.16666521F + 0.49999994F;
  const f32v q23 = r * 0.00836871F + 0.04166839F;
  const f32v q = (r2 * 0.0013814613F + q23) * r2 + q01;
  return scale_by_power(q * r2 + (r + 1.0F), n);
}

// The natural logarithm of a positive number, within a few units in the last place: 2^e * m with m
// near 1, and the series of log((1 + z) / (1 - z)). 0 gives minus infinity; a NaN stays one.
inline float log(float x) {
  if (x == 0 || x - x != 0) return x == 0 ? -__builtin_inff() : x;
  const bool is_small = x < 0x1p-126F;
  if (is_small) x = x * 0x1p24F;
  u32 bits = 0;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  const int exponent = static_cast<int>((bits - 0x3f3504f3U) >> 23);  // of 2^e * sqrt(1/2)
  const int e = exponent < 256 ? exponent : exponent - 512;
  bits -= static_cast<u32>(e) << 23;
  float m = 0;
  __builtin_memcpy(&m, &bits, sizeof(m));
  const float z = (m - 1) / (m + 1), w = z * z;
  const float series = ((w * 0.22222222F + 0.28571429F) * w + 0.4F) * w + 0.66666667F;
  return static_cast<float>(is_small ? e - 24 : e) * 0.69314718F + (z * w * series + 2 * z);
}

[[gnu::always_inline]] inline f32v sigmoid(f32v x) { return 1.0F / (1.0F + exp(-x)); }

[[gnu::always_inline]] inline f32v magnitude(f32v x) {
  return bits_as<f32v>(bits_as<u32v>(x) & 0x7fffffffU);
}

// 1 - 2 / (e^2|x| + 1) with x's sign; near zero, where that cancels, x - x^3/3 + 2 x^5/15.
[[gnu::always_inline]] inline f32v tanh(f32v x) {
  const f32v a = magnitude(x);
  const f32v large = 1.0F - 2.0F / (exp(a * 2.0F) + 1.0F);
  const f32v signed_large = bits_as<f32v>(bits_as<u32v>(large) | (bits_as<u32v>(x) & 0x80000000U));
  const f32v square = x * x;
  const f32v small = x + x * square * (square * 0.13333333F - 0.33333333F);
  return select(a < 0.05F, small, signed_large);
}

// The complementary error function by the Chebyshev fit of Press et al., Numerical Recipes,
// section 6.2 (fractional error below 1.2e-7).
[[gnu::always_inline]] inline f32v erfc(f32v x) {
  const f32v z = magnitude(x);
  const f32v t = 1.0F / (1.0F + 0.5F * z);
  const f32v t2 = t * t;
  const f32v p01 = t * 1.00002368F - 1.26551223F;
  const f32v p23 = t * 0.09678418F + 0.37409196F;
  const f32v p45 = t * 0.27886807F - 0.18628806F;
  const f32v p67 = t * 1.48851587F - 1.13520398F;
  const f32v p89 = t * 0.17087277F - 0.82215223F;
  const f32v t4 = t2 * t2;
  const f32v high = (p89 * t4 + p67 * t2 + p45) * t4;
  const f32v p = high + (p23 * t2 + p01);
  const f32v tail = t * exp(p - z * z);
  return select(x < f32v{}, 2.0F - tail, tail);
}

// x / 2 * (1 + erf(x / sqrt(2))); 0 at minus infinity, where the product would be NaN.
[[gnu::always_inline]] inline f32v gelu(f32v x) {
  const f32v y = 0.5F * x * erfc(x * -0.70710678F);
  return select(x < -15.0F, f32v{}, y);
}

[[gnu::always_inline]] inline f32v gelu_tanh(f32v x) {
  const f32v inner = 0.79788456F * (x + 0.044715F * x * x * x);
  const f32v y = x * sigmoid(2.0F * inner);  // (1 + tanh(u)) / 2 = sigmoid(2u)
  return select(x < -15.0F, f32v{}, y);
}

[[gnu::always_inline]] inline f32v silu(f32v x) {
  return select(x < -100.0F, f32v{}, x * sigmoid(x));
}

}  // namespace tessera::device
