// The arguments of CUDA GEMM kernels. Plain C layout; a change here raises the family's ABI number
// (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/cuda/abi.h"
#include "tessera/device/gemm/gemm_arguments.h"

namespace tessera::device {

// The copy of an operand in the workspace. Its k is contiguous, except for types that wgmma can
// read with contiguous rows.
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
  i64 partial_sums;   // slices: offset of the partial sums in the workspace, in bytes
  i64 partial_bytes;  // slices: bytes of the partial sums
  int raster_group;   // how many tiles along m run together (negative: along n)
};

}  // namespace tessera::device
