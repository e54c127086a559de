// The parts of the analytic estimate.
#pragma once

#include <algorithm>
#include <cmath>

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/packed_sizes.h"
#include "tessera/device/cpu/tile_sizes.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/gpu_estimate.h"

namespace tessera::gemm {

inline double blocks(double size, double block) { return std::ceil(size / block); }

// `grid` says how threads share the problem, when the caller knows it already. The problem's
// strides must be filled in.
Estimate estimate_cpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                      int threads, const device::Grid* grid = nullptr);
// The clock of a busy core.
double busy_hertz(const Target& target);
Estimate estimate_packed(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                         int threads);
Estimate estimate_narrow(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                         int threads);
// estimate_narrow(), or the time of kernels for groups and outputs of another form, whose products
// have any number of rows.
Estimate estimate_few_rows(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                           int threads);
Estimate estimate_gpu(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                      int threads = 0);

// Seconds of the busiest unit of a stream-K kernel: whole tiles, then a share of the steps of K of
// the last tiles, after which it stores the sums of a part and adds up those of a whole tile.
double stream_seconds(const tile::GpuCase& c, const tile::GpuKernel& x);

Estimate estimate_hip(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                      int threads = 0);

// Of a kernel for AMD GPUs: bytes of LDS, and how many blocks a CU runs at a time.
std::int64_t hip_lds_bytes(const KernelSpec& spec);
// The blocks of a kernel with streamk on an AMD GPU, which share the steps of K of tiles.
std::int64_t stream_blocks(const Target& target, std::int64_t all_tiles, std::int64_t steps);
double hip_resident(const KernelSpec& spec, const GemmProblem& problem, const Target& target);

// How many bytes one copy to shared memory moves: the most, up to 16, that divide the distances of
// the rows.
int copy_bytes(const GemmProblem& p);

// The share of L2's rate at which tmaws reads the operands' rows in place. Rows that do not begin
// at a line of 128 bytes take more requests.
double fetch_share(const GemmProblem& p);

// Whether rows of the output begin at multiples of 16 bytes, so that the copy engine can store.
bool stores_aligned(const GemmProblem& p);

// Bytes of the operands that a tmaws kernel with repack copies first. The problem's strides must be
// filled in.
double copied_bytes(const GemmProblem& p);

// flops() and bytes() for a problem whose strides are filled in.
double flops_of(const GemmProblem& p);
double bytes_of(const GemmProblem& p);

// A cache of a CPU, 0 being the nearest, and a number that stands for one that the row lacks.
inline double level_bytes(const Target& target, std::size_t level) {
  return level < target.caches.size() ? static_cast<double>(target.caches[level].bytes) : 1e18;
}
inline double level_rate(const Target& target, std::size_t level, double standard) {
  const bool is_known = level < target.caches.size();
  return is_known ? std::max(1.0, target.caches[level].bytes_per_cycle) : standard;
}

// The least part of k that is worth a CPU thread of its own, as in packed_gemm.h.
inline std::int64_t k_grain(const GemmProblem& p, const Algorithm& a, int words_of_step) {
  if (p.preshuffled_b) return a.tile.k;
  return device::kGrainWords * a.warp_tile.k / words_of_step;
}

// A problem on a GPU as the estimate counts it. The problem's strides must be filled in.
tile::GpuCase gpu_case(const GemmProblem& p, const Target& target);

using tile::total_of;

}  // namespace tessera::gemm
