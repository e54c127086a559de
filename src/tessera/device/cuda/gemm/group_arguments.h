// The arguments of CUDA GEMM kernels for groups of unequal sizes. Plain C layout; a change here
// raises the family's ABI number (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/cuda/abi.h"
#include "tessera/device/gemm/groups.h"

namespace tessera::device {

// The one parameter of every such kernel (const __grid_constant__).
struct CudaGroupArguments {
  CudaTensorMap a_map;  // tmaws: of A and of out in one piece, or of a matrix for each group
  CudaTensorMap b_map;
  CudaTensorMap out_map;
  GroupArguments groups;
  int raster_group;  // how many tiles along m run together (negative: along n)
  int has_out_map;   // 0: threads store everything
};

}  // namespace tessera::device
