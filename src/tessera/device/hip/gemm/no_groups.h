// What kernels of equal batches have in place of groups (grouped_gemm.h).
#pragma once

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

struct NoGroups {
  static constexpr bool kAny = false;
  using Arguments = HipGemmArguments;
  struct Part {};
  static __device__ __forceinline__ const GemmArguments& product(const Part&) {
    return fresh_arguments<HipGemmArguments>().gemm;
  }
};

}  // namespace tessera::device
