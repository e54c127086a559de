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

// An estimate of the product alone, with what the other steps cost.
Estimate with_output_steps(const Estimate& product, const KernelSpec& spec,
                           const GemmProblem& problem, double bytes_per_second);

// ---- by the copy engine, in one step: tmaws_outputs.cc ----

// The rule of tmaws about them.
bool outputs_fit_tmaws(const Case& c);
std::string outputs_do_not_fit_tmaws(const Case& c);
inline constexpr Rule kOutputsOfTmaws = {outputs_fit_tmaws, outputs_do_not_fit_tmaws};

// What problems ask besides what tmaws asks of any groups and windows.
Verdict tmaws_serves_outputs(const KernelSpec& spec, const GemmProblem& problem);
// The algorithms for products with a gate of which few rows share an expert's columns.
void add_gated(const OwnQuery& query, std::vector<Algorithm>& all);
Source tmaws_outputs_source(const KernelSpec& spec, const std::string& shapes);
Launch bind_outputs_by_tma(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                           const GemmOperands& operands);

}  // namespace tessera::gemm
