// The algorithms of stream kernels on GPUs, and their launch
// (src/tessera/device/cuda/gemm/stream_gemm.h).
#include "tessera/families/gemm/stream_gpu_internal.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/tile/specs.h"

namespace tessera::gemm {
namespace {

// 64 KB of floats. Problems with less k get less shared memory.
constexpr int kKeptElements = 16384;
constexpr std::array kFewRows = {1, 2, 4};

// Rows of a warp, words of each row that a lane awaits, and the warps of a block. More rows share
// what is read of the few rows; more warps along k give few rows or long ones enough warps.
struct Warps {
  int rows, words, wave_n, wave_k;
};
constexpr Warps kStreamWarps[] = {{1, 4, 8, 1}, {2, 4, 8, 1}, {4, 2, 8, 1}, {2, 4, 2, 4},
                                  {4, 2, 2, 4}, {2, 4, 1, 8}, {4, 2, 1, 8}};

void add_streams(DType operand, int few, std::vector<Algorithm>& all) {
  for (const Warps& w : kStreamWarps) {
    const int elements = w.words * device::stream_word(size_of(operand));
    all.push_back({.pipeline = Pipeline::stream,
                   .tile = {few, w.wave_n * w.rows, kKeptElements / few},
                   .wave = {1, w.wave_n, w.wave_k},
                   .warp_tile = {few, w.rows, elements}});
  }
}

bool has_stream(const Target& target) {
  return target.backend == "cuda" && tile::has_pipeline(Op::gemm, target, Pipeline::stream);
}

constexpr std::int64_t kMostGrid = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostTiles = std::int64_t{1} << 40;

// A block takes as many tiles as have this many bytes, so that it does not bring the few rows to
// shared memory for each of them, unless there would be too few blocks for all units.
constexpr std::int64_t kBlockBytes = 128 << 10;
constexpr std::int64_t kMostOfBlock = 64;
constexpr std::int64_t kLeastBlocks = 528;

}  // namespace

void add_stream_kernels(const Target& target, DType operand, std::int64_t few,
                        std::vector<Algorithm>& all) {
  const auto* const fits = std::lower_bound(kFewRows.begin(), kFewRows.end(), few);
  if (has_stream(target) && fits != kFewRows.end()) add_streams(operand, *fits, all);
}

void add_all_stream_kernels(const Target& target, DType operand, std::vector<Algorithm>& all) {
  if (!has_stream(target)) return;
  for (const int few : kFewRows) add_streams(operand, few, all);
}

std::int64_t stream_shared(const Algorithm& a, std::int64_t k, DType operand) {
  const std::int64_t kept = std::min<std::int64_t>(k, a.tile.k);
  return device::stream_shared_bytes(a.tile.m, kept, size_of(operand));
}

StreamShare stream_share(const Algorithm& a, const GemmProblem& p) {
  if (std::min({p.m, p.n, p.batch}) == 0) return {0, 0};
  const std::int64_t of_batch =
      device::stream_tiles(std::max(p.m, p.n), a.warp_tile.n, a.wave.n, size_of(p.a));
  // More tiles than this are not counted; their blocks have equal shares all the same.
  const std::int64_t all = p.batch <= kMostTiles / of_batch ? of_batch * p.batch : kMostTiles;
  const std::int64_t bytes = std::max<std::int64_t>(1, a.tile.n * p.k * size_of(p.a));
  const std::int64_t wanted = std::clamp<std::int64_t>(kBlockBytes / bytes, 1, kMostOfBlock);
  const std::int64_t each =
      std::max({tiles(all, kMostGrid), std::min(wanted, all / kLeastBlocks), std::int64_t{1}});
  return {tiles(all, each), each};
}

Launch bind_stream(const KernelSpec& spec, const GemmProblem& p, const device::GemmArguments& g) {
  const Algorithm& a = spec.algorithm;
  device::CudaGemmArguments arguments{};
  arguments.gemm = g;
  drop_unused_strides(arguments.gemm);
  Launch launch;
  launch.arguments.set(arguments);
  const std::int64_t blocks = stream_share(a, p).blocks;
  if (blocks == 0) return launch;
  Step step;
  step.grid[0] = static_cast<unsigned>(blocks);
  step.block[0] = static_cast<unsigned>(a.wave.n * a.wave.k * device::kStreamLanes);
  step.shared_memory_bytes = static_cast<std::size_t>(stream_shared(a, p.k, p.a));
  launch.steps.push(step);
  return launch;
}

}  // namespace tessera::gemm
