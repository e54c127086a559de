// Elementary functions on floats. Errors are a few units in the last place of 1, the unit of an
// epilogue's tolerance.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

// Subnormal numbers count as zero. Handling them would take three to five more instructions in each
// call.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
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

// x / (1 + 2^-(x q)), which is 0 in fp32's accuracy below -5.5.
__device__ __forceinline__ float gelu_by_odds(float x, float q) {
  const float y = x * reciprocal(1.0F + exp2_fast(-x * q));
  return x < -5.5F ? 0.0F : y;  // not a branch, in which threads would run one after the other
}

// x Phi(x), where Phi is the normal distribution, computed as x / (1 + 2^-l). l is the binary
// logarithm of the odds Phi / (1 - Phi). It is odd and smooth, so it is x times a polynomial in
// x^2. The polynomial is fitted on |x| <= 5.5, to an error of 2.5e-7 and to 2.5e-4 of the result;
// below -5.5 the result is less than 1.1e-7.
__device__ __forceinline__ float gelu(float x) {
  const float u = fminf(x * x, 30.25F);
  float q = -6.88200288e-11F;
  q = q * u + 8.54226702e-9F;
  q = q * u - 4.3681228e-7F;
  q = q * u + 1.16915096e-5F;
  q = q * u - 1.58638891e-4F;
  q = q * u - 1.03678344e-4F;
  q = q * u + 0.104855326F;
  q = q * u + 2.30219862F;
  return gelu_by_odds(x, q);
}

// The same with (1 + tanh(u)) / 2 instead of Phi, u = sqrt(2 / pi) (x + 0.044715 x^3). Its odds are
// e^2u.
__device__ __forceinline__ float gelu_tanh(float x) {
  return gelu_by_odds(x, 0.102943240F * (x * x) + 2.30220820F);
}
__device__ __forceinline__ float silu(float x) {
  const float y = x * sigmoid(x);
  return x < -80.0F ? 0.0F : y;
}

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000U); }

// The maximum of a warp's 32 values, which all of its lanes get.
__device__ __forceinline__ float most_of_warp(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0U, x, distance));
  }
  return x;
}
__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0U, x, distance);
  return x;
}

}  // namespace tessera::device
