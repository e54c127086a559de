// Elementary functions on floats: a few units in the last place of 1, which is what the results of
// an epilogue are measured in.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float exp_fast(float x) { return exp2_fast(x * 1.44269504F); }

__device__ __forceinline__ float sigmoid(float x) { return reciprocal(1.0F + exp_fast(-x)); }

// 1 - 2 / (e^2|x| + 1) with x's sign; near zero, where that cancels, x - x^3/3 + 2 x^5/15.
__device__ __forceinline__ float tanh_fast(float x) {
  const float a = fabsf(x);
  const float large = copysignf(1.0F - 2.0F * reciprocal(exp_fast(a * 2.0F) + 1.0F), x);
  const float square = x * x;
  const float small = x + x * square * (square * 0.13333333F - 0.33333333F);
  return a < 0.05F ? small : large;
}

// The complementary error function by the Chebyshev fit of Press et al., Numerical Recipes,
// section 6.2 (fractional error below 1.2e-7).
__device__ __forceinline__ float erfc_fast(float x) {
  const float z = fabsf(x);
  const float t = reciprocal(1.0F + 0.5F * z);
  float p = 0.17087277F;
  p = p * t - 0.82215223F;
  p = p * t + 1.48851587F;
  p = p * t - 1.13520398F;
  p = p * t + 0.27886807F;
  p = p * t - 0.18628806F;
  p = p * t + 0.09678418F;
  p = p * t + 0.37409196F;
  p = p * t + 1.00002368F;
  p = p * t - 1.26551223F;
  const float tail = t * exp_fast(p - z * z);
  return x < 0 ? 2.0F - tail : tail;
}

// x / 2 * (1 + erf(x / sqrt(2))); 0 at minus infinity, where the product would be NaN.
__device__ __forceinline__ float gelu(float x) {
  const float y = 0.5F * x * erfc_fast(x * -0.70710678F);
  return x < -15.0F ? 0.0F : y;
}
__device__ __forceinline__ float gelu_tanh(float x) {
  const float inner = 0.79788456F * (x + 0.044715F * x * x * x);
  const float y = x * sigmoid(2.0F * inner);  // (1 + tanh(u)) / 2 = sigmoid(2u)
  return x < -15.0F ? 0.0F : y;
}
__device__ __forceinline__ float silu(float x) { return x < -100.0F ? 0.0F : x * sigmoid(x); }

}  // namespace tessera::device
