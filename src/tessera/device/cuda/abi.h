// The contract between emitted CUDA kernels and the program that launches them. Plain C layout; a
// change here raises kCudaAbiVersion, and kAbiVersion in src/tessera/jit/toolchain.h with it.
#pragma once

#include "tessera/device/gemm_arguments.h"

namespace tessera::device {

// Every cubin exports `extern "C" __device__ const int <kernel name>_abi` with this value.
inline constexpr int kCudaAbiVersion = 4;

// What the driver encodes for the copy engine: 128 opaque bytes, at a multiple of 64.
struct alignas(64) CudaTensorMap {
  unsigned long long words[16];
};

// The counters at the start of a workspace, all 0 between launches.
inline constexpr int kCounterBytes = 1 << 16;

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
