// The parts of the analytic estimate.
#pragma once

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

Estimate estimate_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                      int threads);
Estimate estimate_gpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target);

// Sums up: whatever does not hide behind the memory or the other way round, and the overhead.
Estimate total_of(double compute_seconds, double memory_seconds, double overhead_seconds,
                  double utilisation);

}  // namespace tessera::gemm
