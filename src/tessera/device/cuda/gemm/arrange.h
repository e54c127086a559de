// Arranges operands before a product and spreads the result after it, on CUDA targets.
#pragma once

#include "tessera/device/cuda/types.h"
#include "tessera/device/gemm/arrange_steps.h"

namespace tessera::device {

struct CudaArranger {
  using fp16 = device::fp16;
  using bf16 = device::bf16;

  // The number of blocks is that of the launch.
  template <class Visit>
  static __device__ __forceinline__ void for_each(int, const ArrangeJob& job, const Visit& visit) {
    const i64 step = static_cast<i64>(gridDim.x) * kArrangeThreads;
#pragma unroll 1
    for (i64 i = static_cast<i64>(blockIdx.x) * kArrangeThreads + threadIdx.x; i < job.elements;
         i += step) {
      visit(arrange_place(job, i));
    }
  }

  template <class T>
  static __device__ __forceinline__ float read(const T* from) {
    return to_float(*from);
  }
  static __device__ __forceinline__ void put(float* to, float x) { *to = x; }
  static __device__ __forceinline__ void put(fp16* to, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
  }
  static __device__ __forceinline__ void put(bf16* to, float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
  }
};

using Arrange = ArrangeSteps<CudaArranger>;

}  // namespace tessera::device
