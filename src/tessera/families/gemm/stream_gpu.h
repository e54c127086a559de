// Kernels of the pipeline `stream` on GPUs, for few rows or few columns. A block's tile is tile_m
// few rows by tile_n rows of the other operand, of which each warp has warp_tile_n; wave_k warps
// share k. A lane reads warp_tile_k elements of a row at a time. tile_k is the part of k of which
// the few rows are kept in shared memory.
#pragma once

#include <string>

#include "tessera/device/cuda/gemm/stream_sizes.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

// Whether the kernels of any GPU multiply the type, and whether one of them serves a problem.
bool is_streamed(DType type);
Verdict stream_serves(const KernelSpec& spec, const GemmProblem& p, const Target& target);

// What these kernels take of a signature.
bool stream_types_fit(const Case& c);
std::string stream_types_do_not_fit(const Case& c);
bool stream_layout_fits(const Case& c);
std::string stream_layout_does_not_fit(const Case& c);
inline constexpr Rule kStreamTypesRule = {stream_types_fit, stream_types_do_not_fit};
inline constexpr Rule kStreamLayoutRule = {stream_layout_fits, stream_layout_does_not_fit};

// Whether features tell all of a kernel: not how the warps of a block share few rows.
bool is_one_warp_deep(const Algorithm& a);

std::int64_t stream_shared(const Algorithm& a, std::int64_t k, DType operand);

// How many blocks a problem takes, and the most tiles of each.
struct StreamShare {
  std::int64_t blocks, tiles;
};
StreamShare stream_share(const Algorithm& a, const GemmProblem& p);

}  // namespace tessera::gemm
