// Kernels of the pipeline `stream` on GPUs, for few rows or few columns. A block's tile is tile_m
// few rows by tile_n rows of the other operand, of which each warp has warp_tile_n; wave_k warps
// share k. A lane reads warp_tile_k elements of a row at a time. tile_k is the part of k of which
// the few rows are kept in shared memory.
#pragma once

#include <span>
#include <vector>

#include "tessera/device/cuda/gemm/stream_sizes.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

// Adds the algorithms for a problem with so many rows or columns, whichever are fewer, or for all
// such problems. Nothing where the target's row does not list the pipeline.
void add_stream_kernels(const Target& target, DType operand, std::int64_t few,
                        std::vector<Algorithm>& all);
void add_all_stream_kernels(const Target& target, DType operand, std::vector<Algorithm>& all);

std::int64_t stream_shared(const Algorithm& a, std::int64_t k, DType operand);

// How many blocks a problem takes, and the most tiles of each.
struct StreamShare {
  std::int64_t blocks, tiles;
};
StreamShare stream_share(const Algorithm& a, const GemmProblem& p);

// In legality_stream_gpu.cc.
std::span<const Rule> stream_rules();
Verdict stream_supports(const Algorithm& a, const GemmProblem& problem);

// In estimate_stream_gpu.cc. The problem's strides must be filled in.
Estimate estimate_stream(const KernelSpec& spec, const GemmProblem& problem, const Target& target);

}  // namespace tessera::gemm
