// The launch of a kernel for AMD GPUs (src/tessera/device/hip/gemm/).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

using device::HipGemmArguments;

constexpr int kSumBytes = 4;
constexpr std::int64_t kMostThreads = std::numeric_limits<std::uint32_t>::max();  // of a grid

// Reserves the partial sums: one for each slice of each tile, or with atomic adds one for all
// slices, which starts at zero.
void add_partial_sums(const Algorithm& a, std::int64_t all_tiles, HipGemmArguments& arguments,
                      Launch& launch) {
  const bool atomic = a.split_k == SplitK::atomic;
  arguments.partial_sums = device::kHipCounterBytes;
  arguments.partial_bytes = all_tiles * (atomic ? 1 : a.slices) * a.tile.m * a.tile.n * kSumBytes;
  launch.workspace.bytes =
      static_cast<std::size_t>(arguments.partial_sums + arguments.partial_bytes);
  launch.workspace.counter_bytes = device::kHipCounterBytes;
  launch.workspace.clear_bytes = atomic ? static_cast<std::size_t>(arguments.partial_bytes) : 0;
  launch.workspace.address_offset = offsetof(HipGemmArguments, workspace);
}

// All tiles of the output, or `most` where there are more.
std::int64_t tiles_up_to(const GemmProblem& p, const Algorithm& a, std::int64_t most) {
  std::int64_t all = 1;
  for (const std::int64_t count : {tiles(p.m, a.tile.m), tiles(p.n, a.tile.n), p.batch}) {
    if (count == 0) return 0;
    all = count > most / all ? most : all * count;
  }
  return all;
}

}  // namespace

Launch bind_hip(const KernelSpec& spec, const GemmProblem& p, const device::GemmArguments& g) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  const bool is_empty = p.m == 0 || p.n == 0 || p.batch == 0;
  HipGemmArguments arguments{};
  arguments.gemm = g;
  arguments.raster_group = kRasterGroup;
  drop_unused_strides(arguments.gemm);
  const std::int64_t most_blocks = kMostThreads / tile::block_lanes(a);
  const std::int64_t all_tiles = tiles_up_to(p, a, most_blocks);
  if (a.slices > 1 && !is_empty) add_partial_sums(a, all_tiles, arguments, launch);
  const std::int64_t blocks = std::min(all_tiles * a.slices, most_blocks);
  arguments.blocks = static_cast<int>(blocks);
  launch.arguments.set(arguments);
  if (is_empty) return launch;
  if (a.persistent) launch.blocks_offset = offsetof(HipGemmArguments, blocks);
  launch.steps.push({.extent = a.persistent ? Step::Extent::resident : Step::Extent::exact,
                     .grid = {static_cast<unsigned>(blocks), 1, 1},
                     .block = {static_cast<unsigned>(tile::block_lanes(a)), 1, 1}});
  return launch;
}

}  // namespace tessera::gemm
