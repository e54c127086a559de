// The contract between emitted CUDA kernels and the program that launches them. Plain C layout; a
// change here raises kCudaAbiVersion, and kAbiVersion in src/jit/toolchain.h with it.
#pragma once

#include "tessera/device/gemm_arguments.h"

namespace tessera::device {

// Every cubin exports `extern "C" __device__ const int <kernel name>_abi` with this value.
inline constexpr int kCudaAbiVersion = 1;

// What the driver encodes for the copy engine: 128 opaque bytes, at a multiple of 64.
struct alignas(64) CudaTensorMap {
  unsigned long long words[16];
};

// The one parameter of every CUDA GEMM kernel (const __grid_constant__).
struct CudaGemmArguments {
  CudaTensorMap a_map;  // tmaws: filled in by the runtime just before the launch
  CudaTensorMap b_map;
  CudaTensorMap out_map;
  GemmArguments gemm;
  void* workspace;   // split-K: partial sums and counters; null for kernels that need none
  int raster_group;  // tiles that run together along m (negative: along n)
};

}  // namespace tessera::device
