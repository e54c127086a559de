// The flash kernels of Hopper for the gradients of attention: which there are, which problems they
// serve, their text, launch and predicted times. The pipeline is tmaws, the kind backward.
#pragma once

#include <string>
#include <vector>

#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

// For each length of heads one that adds sums of dq by atomic additions, which is faster, and one
// that adds them in the order of the keys.
std::vector<Algorithm> flash_backward_algorithms();

// Why there is no such kernel, and why it does not serve a problem that has its strides; empty
// where there is, and where it does.
std::string flash_backward_illegal(const FmhaSignature& signature, const Algorithm& algorithm,
                                   const Target& target);
std::string flash_backward_unsupported(const KernelSpec& spec, const FmhaProblem& problem);

Source emit_flash_backward(const KernelSpec& spec);

// Windows, workspace and steps; the problem has its strides.
void bind_flash_backward(const KernelSpec& spec, const FmhaProblem& problem,
                         const FmhaOperands& operands, Launch& launch);

Estimate estimate_flash_backward(const KernelSpec& spec, const FmhaProblem& problem,
                                 const Target& target);

}  // namespace tessera::fmha
