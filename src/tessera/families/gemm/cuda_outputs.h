// Kernels for CUDA targets with a gate, rows by index or outputs of 8 bits.
#pragma once

#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// The source of such a kernel; `shapes` is the configuration's part of the kernel's shapes.
Source cuda_outputs_source(const KernelSpec& spec, const CudaTemplate& from,
                           const std::string& shapes);

// The steps before and after the product, whose own step is given.
Launch bind_cuda_outputs(const GemmProblem& problem, const GemmOperands& operands,
                         const Step& product);

}  // namespace tessera::gemm
