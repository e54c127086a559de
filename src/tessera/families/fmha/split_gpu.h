// Attention with split keys on GPUs: which kernels there are, which problems they serve, their text
// and launch. The pipeline is splitkv.
#pragma once

#include <string>
#include <vector>

#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

// What is worth a try: tiles of 16 and of 64 rows for each length of heads, one of 64 rows for
// latent attention, with as many slices as blocks run at once.
std::vector<Algorithm> split_gpu_algorithms(const Target& target);

// Whether it is the one of latent attention.
bool is_latent(const Algorithm& algorithm);

// Why there is no such kernel, and why it does not serve a problem that has its strides; empty
// where there is, and where it does.
std::string split_gpu_illegal(const FmhaSignature& signature, const Algorithm& algorithm,
                              const Target& target);
std::string split_gpu_unsupported(const KernelSpec& spec, const FmhaProblem& problem);

// How a problem that has its strides is divided: tiles of rows of a key-value head, tiles of all of
// them, and the parts of the keys of a tile.
struct SplitPlan {
  std::int64_t tiles = 0, items = 0, parts = 1;
};
SplitPlan split_gpu_plan(const Algorithm& algorithm, const FmhaProblem& problem);

Source emit_split_gpu(const KernelSpec& spec);

// Arguments, workspace and step; `problem` has its strides and something to compute.
void bind_split_gpu(const KernelSpec& spec, const FmhaProblem& problem,
                    const FmhaOperands& operands, Launch& launch);

}  // namespace tessera::fmha
