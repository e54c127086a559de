// The analytic estimate of GPU kernels: turns a problem and a kernel into the numbers that
// tile/gpu_estimate.h takes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/cuda_outputs.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

int copy_bytes(const GemmProblem& p) {
  int width = 16;
  while (p.ld_a * size_of(p.a) % width != 0 || p.ld_b * size_of(p.b) % width != 0) width /= 2;
  return width;
}

double fetch_share(const GemmProblem& p) {
  const std::int64_t b = p.preshuffled_b ? 0 : p.ld_b * size_of(p.b);
  const std::int64_t distance = p.ld_a * size_of(p.a) | b;
  if (distance % 128 == 0) return 1;
  return distance % 64 == 0   ? tile::kGpuModel.fetch_64
         : distance % 32 == 0 ? tile::kGpuModel.fetch_32
                              : tile::kGpuModel.fetch_16;
}

bool stores_aligned(const GemmProblem& p) {
  const bool strided = p.batch > 1 && !p.pointer_arrays;
  const std::int64_t elements = p.n | p.ld_out | (strided ? p.batch_stride_out : 0);
  return elements * size_of(p.out) % 16 == 0;
}

double copied_bytes(const GemmProblem& p) {
  const TmawsCopies copies = tmaws_copies(p);
  const double rows_a = copies.a ? static_cast<double>(p.m) * size_of(p.a) : 0;
  const double rows_b = copies.b ? static_cast<double>(p.n) * size_of(p.b) : 0;
  return static_cast<double>(p.batch) * (rows_a + rows_b) * static_cast<double>(p.k);
}

tile::GpuCase gpu_case(const GemmProblem& p, const Target& target) {
  const int copied = copy_bytes(p);
  tile::GpuCase c = tile::gpu_case(target, p.a, p.out, p.epilogue);
  c.k = static_cast<double>(p.k);
  c.batch = static_cast<double>(p.batch);
  c.flops = flops_of(p);
  c.bytes = bytes_of(p);
  c.copy_cycles =
      copied < 16 ? tile::kGpuModel.narrow_copy : tile::kGpuModel.issue / (16 * target.warp_size);
  c.is_loaded = tile::flag(copied < 4);
  c.is_aligned = tile::flag(stores_aligned(p));
  c.by_copy = tile::flag(stores_aligned(p) && !p.pointer_arrays);
  return c;
}

namespace {

tile::GpuKernel kernel_on(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const Types::Own& own = own_of(spec, target);
  tile::GpuKernel x = tile::gpu_kernel(a);
  x.is_tmaws = tile::flag(own.by_copy_engine);
  x.rows = static_cast<double>(a.swap_ab ? p.n : p.m);
  x.columns = static_cast<double>(a.swap_ab ? p.m : p.n);
  x.size_m = size_of(a.swap_ab ? p.b : p.a);
  x.size_n = size_of(a.swap_ab ? p.a : p.b);
  x.macs = tile::gpu_macs_per_cycle(s.a, s.b, target, !own.by_warp);
  const tile::SharedMemory shared = shared_memory(s, a);
  x.shared_bytes = static_cast<double>(shared.all);
  x.store_chunk = shared.chunk;
  x.stores_by_copy = tile::flag(own.by_copy_engine && tmaws_copies_out(s, a));
  x.copied_bytes = a.repack ? copied_bytes(p) : 0;
  if (own.by_copy_engine && !a.repack) x.fetch_share = fetch_share(p);
  return x;
}

// The order matters, because each number depends on earlier ones.
void count_out(const tile::GpuCase& c, tile::GpuKernel& x) {
  x.tiles_m = blocks(x.rows, x.tile_m);
  x.tiles_n = blocks(x.columns, x.tile_n);
  tile::count_steps(c, x);
  x.load_cycles = tile::load_cycles(c, x);
  x.store_times = tile::store_times(c, x);
  x.finish_cycles = tile::finish_cycles(c, x);
  x.busy_seconds = tile::busy_seconds(c, x);
}

}  // namespace

double stream_seconds(const tile::GpuCase& c, const tile::GpuKernel& x) {
  constexpr tile::GpuModel kModel = tile::kGpuModel;
  const double clusters = std::floor(c.units / x.cluster_blocks);
  const int units = static_cast<int>(std::clamp<double>(clusters, 1, device::kStreamBlocks));
  const int steps = static_cast<int>(std::min<double>(x.k_steps, device::kMostStreamSteps));
  const auto all = static_cast<int>(
      std::min<double>(x.blocks / x.cluster_blocks, std::numeric_limits<int>::max()));
  const device::StreamWork work = device::stream_work(all, steps, units);
  const double step =
      std::max(x.step_cycles + kModel.step, kModel.latency / std::max(x.stages - 1, 1.0));
  const double tile = steps * step + x.finish_cycles;
  double cycles = kModel.shallow / x.stages + blocks(work.whole, units) * tile;
  if (work.sharers > 0) {
    const double parts = std::ceil(static_cast<double>(steps) / work.each) + 1;  // of a tile
    const double adding = kModel.slice + parts * x.tile_mn * 4 * kModel.slice_byte;
    cycles += (work.each + 1) * step * kModel.stream + x.finish_cycles + adding;
  }
  return cycles / c.hertz;
}

namespace {

// Threads store scattered rows 16 bytes at a time (src/tessera/device/cuda/tma_named_rows.h). The
// cycles of a unit for each output are a guess.
void store_scattered(tile::GpuCase& c, tile::GpuKernel& x) {
  constexpr double kCycles = 0.2;
  c.finished_cycles = kCycles;
  x.stores_by_copy = 0;
}

// Threads store the tiles at groups' ends. Kernels with many sums lack registers for that, and with
// sizes as routers give them they took 1.1 to 1.4 times as long as others on an H200
// (docs/performance/hopper_grouped_gemm.md).
double slowed_at_ends(const GemmSignature& s, const Algorithm& a) {
  constexpr int kMostSums = 128;
  constexpr double kSlowed = 1.2;
  const bool shares_rows =
      s.grouping == GemmGrouping::contiguous || s.grouping == GemmGrouping::indexed;
  const bool is_slowed =
      shares_rows && a.pipeline == Pipeline::tmaws && tile::tmaws_accumulators(a) > kMostSums;
  return is_slowed ? kSlowed : 1;
}

// Lists have kernels by mma alone, whose warps read their operands from shared memory themselves. A
// warp waits for what it has read, and another one multiplies meanwhile: a guess is that each of a
// unit's four tensor cores needs two warps.
double slowed_by_few_warps(const GemmSignature& s, const tile::GpuCase& c,
                           const tile::GpuKernel& x) {
  constexpr double kEnoughWarps = 8;
  if (s.grouping != GemmGrouping::lists || c.by_fma != 0) return 1;
  return std::max(1.0, kEnoughWarps / (x.resident * x.num_waves));
}

}  // namespace

Estimate estimate_gpu(const KernelSpec& spec, const GemmProblem& p, const Target& target, int) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  tile::GpuCase c = gpu_case(p, target);
  if (p.m == 0 || p.n == 0 || p.batch == 0) return total_of(0, 0, c.launch_seconds, 1);
  tile::GpuKernel x = kernel_on(spec, p, target);
  if (s.indexing == GemmIndexing::scattered) store_scattered(c, x);
  count_out(c, x);
  if (spec.algorithm.streamk) x.busy_seconds = stream_seconds(c, x);
  const tile::GpuSeconds seconds = tile::gpu_seconds(c, x);
  const double compute = seconds.compute * slowed_by_few_warps(s, c, x);
  Estimate found = total_of(compute, seconds.memory, seconds.overhead, seconds.utilisation);
  found.seconds *= slowed_at_ends(s, spec.algorithm);
  const Estimate product = has_scales(p) ? with_scales(found, spec, p, target) : found;
  if (!has_outputs(s) || x.is_tmaws != 0) return product;
  return with_output_steps(product, spec, p, c.bandwidth);
}

}  // namespace tessera::gemm
