// The arguments of CUDA GEMM kernels where out has a gate, rows by index or 8 bits. Plain C layout;
// a change here raises the family's ABI number (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/cuda/gemm/group_arguments.h"
#include "tessera/device/gemm/outputs.h"

namespace tessera::device {

// Three steps share them: the copy of gathered rows, the product, whose sums go to the workspace,
// and what becomes of the sums.
struct CudaOutputArguments {
  OutputArguments outputs;
  void* workspace;
  i64 copy, sums;    // bytes into the workspace
  i64 ld_copy;       // elements
  int raster_group;  // as in CudaGemmArguments
};

// The one parameter of kernels by the copy engine that need no other step
// (const __grid_constant__). Without groups, the batches count as groups. With a gate, b_map has
// the dimensions k, column of out, half, group, the first two exchanged where columns are
// contiguous.
struct CudaTmaOutputArguments {
  CudaGroupArguments product;
  const int* row_index;  // as in OutputArguments
  i64 index_room;
};

}  // namespace tessera::device
