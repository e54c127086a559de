// The parts of the analytic estimate.
#pragma once

#include <cmath>

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/device/cpu/packed_sizes.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/gpu_estimate.h"

namespace tessera::gemm {

inline double blocks(double size, double block) { return std::ceil(size / block); }

// grid: how threads share the problem, if that is known already. Strides are filled in.
Estimate estimate_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                      int threads, const device::Grid* grid = nullptr);
Estimate estimate_gpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target);

// The most bytes up to 16 that divide the distances of rows: what one copy to shared memory moves.
int copy_bytes(const GemmProblem& p);

// The share of L2's rate at which tmaws reads the operands' rows where they lie: lines of 128 bytes
// that begin elsewhere take more requests.
double fetch_share(const GemmProblem& p);

// Whether rows of the output begin at multiples of 16 bytes, so that the copy engine can store.
bool stores_aligned(const GemmProblem& p);

// Bytes of the operands that a tmaws kernel with repack copies first. Strides are filled in.
double copied_bytes(const GemmProblem& p);

// flops() and bytes() of a problem whose strides are filled in.
double flops_of(const GemmProblem& p);
double bytes_of(const GemmProblem& p);

// Least k that is worth a thread of a CPU, as in packed_gemm.h.
inline std::int64_t k_grain(const GemmProblem& p, const Algorithm& a) {
  return p.preshuffled_b ? a.tile.k : device::kGrainWords * a.warp_tile.k;
}

// The estimate's view of a problem on a GPU; strides are filled in.
tile::GpuCase gpu_case(const GemmProblem& p, const Target& target);

// Sums up: whatever does not hide behind the memory or the other way round, and the overhead.
Estimate total_of(double compute_seconds, double memory_seconds, double overhead_seconds,
                  double utilisation);

}  // namespace tessera::gemm
