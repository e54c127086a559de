// The product of outputs_gemm.h for operands with scales of blocks.
#pragma once

#include "tessera/device/cuda/gemm/outputs_gemm.h"
#include "tessera/device/cuda/gemm/scaled_output_arguments.h"
#include "tessera/device/cuda/gemm/scales.h"

namespace tessera::device {

template <class C, template <class> class Gemm>
struct ScaledOutputsProduct {
  using Product = OutputsProduct<C, Gemm>;
  static constexpr int kThreads = Product::kThreads;
  static constexpr int kMinBlocks = Product::kMinBlocks;

  // Rows of A that were gathered keep their scales where these are.
  static __device__ __forceinline__ void run(const CudaScaledOutputArguments& x) {
    constexpr bool kGathers = C::kIndexing == Indexing::gathered;
    const OutputArguments& outputs = x.cuda.outputs;
    Product::run(
        x.cuda, LaunchScales{x.scales, kGathers ? outputs.row_index : nullptr, outputs.index_room});
  }
};

}  // namespace tessera::device
