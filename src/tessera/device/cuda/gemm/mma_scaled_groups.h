// Groups of unequal sizes whose operands have scales of blocks, see cpasync_groups.h and
// mma_scaled_gemm.h.
#pragma once

#include "tessera/device/cuda/gemm/cpasync_groups.h"
#include "tessera/device/cuda/gemm/mma_scaled_gemm.h"

namespace tessera::device {

template <class C>
struct ScaledMmaGroups {
  using Groups = CpasyncGroups<C, ScaledMmaEngine>;
  static constexpr int kThreads = Groups::kThreads;
  static constexpr int kMinBlocks = Groups::kMinBlocks;

  static __device__ __forceinline__ void run(const CudaScaledGroupArguments& x) {
    run(x.cuda, {x.scales});
  }
  static __device__ __forceinline__ void run(const CudaGroupArguments& x,
                                             const LaunchScales& scales) {
    Groups::run(x, GroupScales<C::kGrouping>{scales});
  }
};

}  // namespace tessera::device
