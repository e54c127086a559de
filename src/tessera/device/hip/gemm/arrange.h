// Arranges operands before a product and spreads the result after it, on AMD's GPUs.
#pragma once

#include "tessera/device/gemm/arrange_steps.h"
#include "tessera/device/hip/types.h"

namespace tessera::device {

struct HipArranger {
  using fp16 = device::fp16;
  using bf16 = device::bf16;

  template <class Visit>
  static __device__ __forceinline__ void for_each(int blocks, const ArrangeJob& job,
                                                  const Visit& visit) {
    const i64 step = static_cast<i64>(blocks) * kArrangeThreads;
    const i64 first = static_cast<i64>(__builtin_amdgcn_workgroup_id_x()) * kArrangeThreads;
#pragma unroll 1
    for (i64 i = first + __builtin_amdgcn_workitem_id_x(); i < job.elements; i += step) {
      visit(arrange_place(job, i));
    }
  }

  template <class T>
  static __device__ __forceinline__ float read(const T* from) {
    return to_float(*from);
  }
  template <class T>
  static __device__ __forceinline__ void put(T* to, float x) {
    *to = bits<T>(static_cast<WordBits<T>>(round_to<T>(x)));
  }
};

using Arrange = ArrangeSteps<HipArranger>;

}  // namespace tessera::device
