// The parts of the analytic estimate.
#pragma once

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

Estimate estimate_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                      int threads);
Estimate estimate_gpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target);

// What limits the blocks that a unit of a GPU runs at a time.
inline constexpr double kSharedReserve = 1024;   // bytes that the machine keeps of each block
inline constexpr double kMaxBlocks = 8;          // of a unit that are of any use
inline constexpr double kRegistersBesides = 88;  // of a thread, beside the accumulators

// Sums up: whatever does not hide behind the memory or the other way round, and the overhead.
Estimate total_of(double compute_seconds, double memory_seconds, double overhead_seconds,
                  double utilisation);

}  // namespace tessera::gemm
