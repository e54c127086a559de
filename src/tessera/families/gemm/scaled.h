// CUDA kernels for operands with scales of blocks: what the ways tmaws and cpasync share of them.
#pragma once

#include <string>
#include <vector>

#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// The fields of a kernel's configuration that tell its scales; empty where it has none.
std::string scale_fields(const GemmSignature& signature);

// The struct of arguments that a kernel with scales takes, with a gate or rows by index by tmaws.
std::string_view scaled_arguments_name(const GemmSignature& signature);

// Puts the scales behind the launch's other arguments.
void add_scales(const GemmProblem& problem, const GemmOperands& operands, Launch& launch);
// The same of tmaws with a gate or rows by index.
void add_scales_of_outputs_by_tma(const GemmProblem& problem, const GemmOperands& operands,
                                  Launch& launch);

// Own::bind_scaled of both ways: the launch without scales, of groups or not, with their arguments.
Launch bind_scaled_on_cuda(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                           const GemmOperands& operands);

// scaled_tmaws.cc: the rule of tmaws about scales, and the algorithms for a signature that has
// some.
bool scales_fit_tmaws(const Case& c);
std::string scales_do_not_fit_tmaws(const Case& c);
inline constexpr Rule kScalesOfTmaws = {scales_fit_tmaws, scales_do_not_fit_tmaws};
void add_scaled(const OwnQuery& query, std::vector<Algorithm>& all);

// An estimate of the kernel without its scales, with what they cost.
Estimate with_scales(const Estimate& without, const KernelSpec& spec, const GemmProblem& problem,
                     const Target& target);

}  // namespace tessera::gemm
