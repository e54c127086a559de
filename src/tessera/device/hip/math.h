// Elementary functions on floats, as in cuda/math.h. Errors are a few units in the last place of 1,
// the unit of an epilogue's tolerance.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

// Subnormal numbers may count as zero.
__device__ __forceinline__ float exp2_fast(float x) {
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);
#endif
}
__device__ __forceinline__ float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
__device__ __forceinline__ float exp_fast(float x) { return exp2_fast(x * 1.44269504F); }

__device__ __forceinline__ float sigmoid(float x) { return reciprocal(1.0F + exp_fast(-x)); }

// 1 - 2 / (e^2|x| + 1) with x's sign; near zero, where that cancels, x - x^3/3 + 2 x^5/15.
__device__ __forceinline__ float tanh_fast(float x) {
  const float a = __builtin_fabsf(x);
  const float positive = 1.0F - 2.0F * reciprocal(exp_fast(a * 2.0F) + 1.0F);
  const float large = __builtin_copysignf(positive, x);
  const float square = x * x;
  const float small = x + x * square * (square * 0.13333333F - 0.33333333F);
  return a < 0.05F ? small : large;
}

// x / (1 + 2^-(x q)), which is 0 in fp32's accuracy below -5.5.
__device__ __forceinline__ float gelu_by_odds(float x, float q) {
  const float y = x * reciprocal(1.0F + exp2_fast(-x * q));
  return x < -5.5F ? 0.0F : y;
}

// x Phi(x); cuda/math.h says where the polynomial comes from.
__device__ __forceinline__ float gelu(float x) {
  const float square = x * x;
  const float u = square < 30.25F ? square : 30.25F;
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

// The same with (1 + tanh(u)) / 2 instead of Phi, u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ __forceinline__ float gelu_tanh(float x) {
  return gelu_by_odds(x, 0.102943240F * (x * x) + 2.30220820F);
}
__device__ __forceinline__ float silu(float x) {
  const float y = x * sigmoid(x);
  return x < -80.0F ? 0.0F : y;
}

}  // namespace tessera::device
