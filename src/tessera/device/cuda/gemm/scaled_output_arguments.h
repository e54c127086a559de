// The arguments of CUDA GEMM kernels where operands have scales of blocks, and out has a gate, rows
// by index or 8 bits. Plain C layout; a change here raises the family's ABI number (kAbi in
// src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/cuda/gemm/outputs_arguments.h"
#include "tessera/device/cuda/gemm/scaled_arguments.h"

namespace tessera::device {

struct CudaScaledOutputArguments {
  CudaOutputArguments cuda;  // first, so that its offsets hold for both structs
  CudaScales scales;
};
// The same of kernels by the copy engine, and where the scales of out go, as OutputArguments says.
struct CudaScaledTmaOutputArguments {
  CudaTmaOutputArguments cuda;
  CudaScales scales;
  float* out_scales;
  i64 row_of_scales, block_of_scales, matrix_of_scales, step_of_scales;
};

}  // namespace tessera::device
