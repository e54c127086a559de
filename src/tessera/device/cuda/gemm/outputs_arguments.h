// The arguments of CUDA GEMM kernels where out has a gate, rows by index or 8 bits. Plain C layout;
// a change here raises the family's ABI number (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/gemm/outputs.h"

namespace tessera::device {

// Three steps share them: the copy of gathered rows, the product, whose sums go to the workspace,
// and what becomes of the sums.
struct CudaOutputArguments {
  CudaGemmArguments product;  // its workspace is that of all steps
  OutputArguments outputs;
  i64 copy, sums;  // bytes into the workspace
  i64 ld_copy;     // elements
};

}  // namespace tessera::device
