// The arguments of CUDA GEMM kernels with scales of blocks. Plain C layout; a change here raises
// the family's ABI number (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/cuda/gemm/group_arguments.h"

namespace tessera::device {

// The scales of one operand. Strides count scales.
struct CudaScale {
  const void* data;
  i64 stride_rows;  // from one block of rows (of B: of columns) to the next
  i64 stride_k;     // from one block of k to the next, or from four to four
  i64 batch_stride;
};

struct CudaScales {
  CudaScale a, b;
  int quads;  // not 0: the scales of four blocks along k lie side by side
};

// The arguments without scales come first, so that their offsets hold for both structs.
struct CudaScaledGemmArguments {
  CudaGemmArguments cuda;
  CudaScales scales;
};
struct CudaScaledGroupArguments {
  CudaGroupArguments cuda;
  CudaScales scales;
};

}  // namespace tessera::device
