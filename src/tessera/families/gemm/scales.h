// Scales of blocks as kernels and the reference get them. GemmScale (src/tessera/spec/
// gemm_problem.h) says what they are.
#pragma once

#include "tessera/device/gemm/scales.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

// The strides of the problem must be filled in. Where there are no groups, batches are matrices.
device::ScaledArguments scaled_arguments(const GemmProblem& p, const GemmOperands& o);

// The elements of k that have one scale of each operand, where some have.
int elements_of_scale(const GemmSignature& signature);

// Adds the signatures with scales, every pair of them, of those that may have them.
void list_scales(std::vector<GemmSignature>& all);

}  // namespace tessera::gemm
