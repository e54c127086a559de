// The launch of a cpasync kernel (src/tessera/device/cuda/gemm/{mma,fma}_gemm.h).
#include <algorithm>
#include <cstddef>
#include <limits>

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr unsigned kWarp = 32;
constexpr int kAccumulatorBytes = 4;
constexpr std::int64_t kMaxGrid = std::numeric_limits<std::int32_t>::max();

// Reserves the partial sums of every slice of every tile.
void add_block_slices(const Algorithm& a, std::int64_t all_tiles,
                      device::CudaGemmArguments& arguments, Launch& launch) {
  arguments.partial_sums = device::kCounterBytes;
  arguments.partial_bytes = all_tiles * a.slices * a.tile.m * a.tile.n * kAccumulatorBytes;
  launch.workspace.bytes =
      static_cast<std::size_t>(arguments.partial_sums + arguments.partial_bytes);
  launch.workspace.counter_bytes = device::kCounterBytes;
  launch.workspace.address_offset = offsetof(device::CudaGemmArguments, workspace);
}

}  // namespace

Launch bind_cpasync(const KernelSpec& spec, const GemmProblem& p, const device::GemmArguments& g) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  const bool is_empty = p.m == 0 || p.n == 0 || p.batch == 0;

  device::CudaGemmArguments arguments{};
  arguments.gemm = g;
  arguments.raster_group = kRasterGroup;
  drop_unused_strides(arguments.gemm);
  const std::int64_t all_tiles = tiles(p.m, a.tile.m) * tiles(p.n, a.tile.n) * p.batch;
  if (a.slices > 1 && !is_empty) add_block_slices(a, all_tiles, arguments, launch);
  launch.arguments.set(arguments);
  if (is_empty) return launch;

  // Each block computes several tiles when there are more tiles than a grid may have blocks.
  std::int64_t blocks = kMaxGrid;
  const std::int64_t per_batch = tiles(p.m, a.tile.m) * tiles(p.n, a.tile.n);
  if (p.batch <= kMaxGrid / per_batch / a.slices) blocks = per_batch * p.batch * a.slices;
  Step step;
  step.grid[0] = static_cast<unsigned>(blocks);
  step.block[0] = static_cast<unsigned>(a.wave.m * a.wave.n) * kWarp;
  step.shared_memory_bytes =
      static_cast<std::size_t>(shared_memory(std::get<GemmSignature>(spec.signature), a).all);
  launch.steps.push(step);
  return launch;
}

}  // namespace tessera::gemm
