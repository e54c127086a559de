// The arguments of CUDA GEMM kernels. Plain C layout; a change here raises kCudaAbiVersion.
#pragma once

#include "tessera/device/cuda/abi.h"
#include "tessera/device/gemm/gemm_arguments.h"

namespace tessera::device {

// A copy of an operand in the workspace, k contiguous unless its type can be read otherwise.
struct CudaCopy {
  i64 offset;            // bytes into the workspace; 0: there is no copy
  i64 ld, batch_stride;  // elements
};

// The one parameter of every CUDA GEMM kernel (const __grid_constant__).
struct CudaGemmArguments {
  CudaTensorMap a_map;  // tmaws: filled in by the runtime just before the launch
  CudaTensorMap b_map;
  CudaTensorMap out_map;
  CudaTensorMap d_maps[2];  // of the D tensors of m x n, in their order
  GemmArguments gemm;
  void* workspace;  // counters, partial sums, copies; null for launches that need none
  CudaCopy a_copy;  // repack
  CudaCopy b_copy;
  i64 partial_sums;   // slices: bytes into the workspace ...
  i64 partial_bytes;  // ... and how many
  int raster_group;   // tiles that run together along m (negative: along n)
};

}  // namespace tessera::device
