// A gate's result for the two numbers of a pair.
#pragma once

#include "tessera/device/cuda/math.h"
#include "tessera/device/gemm/outputs.h"

namespace tessera::device {

template <Gate kGate>
__device__ __forceinline__ float gated_pair(float x, float y) {
  if constexpr (kGate == Gate::silu_mul) return silu(x) * y;
  if constexpr (kGate == Gate::gelu_mul) return gelu(x) * y;
  return gelu_tanh(x) * y;
}

}  // namespace tessera::device
