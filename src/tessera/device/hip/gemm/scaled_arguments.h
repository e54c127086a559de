// The arguments of HIP GEMM kernels on operands with scales of blocks. Plain C layout; a change
// here raises the family's ABI number.
#pragma once

#include "tessera/device/gemm/scales.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"

namespace tessera::device {

// Base: HipGemmArguments, or HipGroupedArguments.
template <class Base>
struct HipScaled {
  Base base;
  ScaleView a, b;
};

}  // namespace tessera::device
