// The flash kernels of Hopper: which there are, which problems they serve, their text and launch.
// The pipeline is tmaws.
#pragma once

#include <string>
#include <vector>

#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

// The longest v of a flash kernel whose tile.k is the longest q and k.
int flash_gpu_hdim_v(int hdim);

// What is worth a try, the first of each length of heads being the best on most problems.
std::vector<Algorithm> flash_gpu_algorithms();

// Why there is no such kernel, and why it does not serve a problem that has its strides; empty
// where there is, and where it does.
std::string flash_gpu_illegal(const FmhaSignature& signature, const Algorithm& algorithm,
                              const Target& target);
std::string flash_gpu_unsupported(const KernelSpec& spec, const FmhaProblem& problem);

Source emit_flash_gpu(const KernelSpec& spec);

// Arguments, windows, workspace and step; `problem` has its strides and something to compute.
void bind_flash_gpu(const KernelSpec& spec, const FmhaProblem& problem,
                    const FmhaOperands& operands, Launch& launch);

}  // namespace tessera::fmha
