// How long the tmaws kernels take: the product that the copy engine unrolls, on the model of all
// GPU kernels (tile/gpu_estimate.h), and what convolutions add to it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "tessera/families/conv/tmaws_internal.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/gpu_estimate.h"

namespace tessera::conv {
namespace {

// The product that a kernel computes, with the zeros that fill up its depth.
tile::GpuKernel kernel_on(const ConvSignature& s, const Algorithm& a, const TmawsPlan& plan,
                          const Target& target) {
  const tile::Product product = tmaws_product(s);
  tile::GpuKernel x = tile::gpu_kernel(a);
  x.is_tmaws = 1;
  x.rows = double(plan.rows), x.columns = double(plan.columns);
  x.size_m = x.size_n = 2;
  x.macs = tile::gpu_macs_per_cycle(product.a, product.b, target, true);
  const tile::SharedMemory shared = tile::shared_memory(product, a);
  x.shared_bytes = double(shared.all);
  x.store_chunk = shared.chunk;
  const bool by_pixels = a.repack && s.layout == ConvLayout::nchw;
  const bool has_lines = s.direction != ConvDirection::forward ||
                         plan.columns * size_of(product.out) % tile::kTmaBytes == 0;
  x.stores_by_copy =
      tile::flag(size_of(product.out) == 2 && a.slices == 1 && !by_pixels && has_lines);
  return x;
}

// The order matters, because each number depends on earlier ones.
void count_out(const tile::GpuCase& c, double tiles, tile::GpuKernel& x) {
  x.tiles_m = std::ceil(tiles / std::ceil(x.columns / x.tile_n) / c.batch);
  x.tiles_n = std::ceil(x.columns / x.tile_n);
  tile::count_steps(c, x);
  x.store_times = tile::store_times(c, x);
  x.slices = 1;  // seconds_of_sums() counts them
  x.finish_cycles = tile::finish_cycles(c, x);
  x.busy_seconds = tile::busy_seconds(c, x);
}

// What slices cost besides the bytes of their sums: with repack, a further step, of which all took
// 4 us on an H200; otherwise, that groups meet in device memory (a guess).
constexpr double kSumStepSeconds = 3e-6;
constexpr double kMeetingSeconds = 1.5e-6;
constexpr double kCacheTimes = 2;  // how much faster than memory L2 moves the sums
// Where the slices of a tile come in different rounds of blocks, the last one adds up all of them:
// 96 slices of 128 x 128 took 139 us longer than 64 on an H200.
constexpr double kAloneBytes = 45e9;  // a second

double seconds_of_sums(const Algorithm& a, const TmawsPlan& plan, int units, double bandwidth) {
  const double sums = double(plan.rows) * double(plan.columns) * double(plan.batch) * 4 * a.slices;
  const bool alone = !a.repack && plan.tiles * a.slices > units;
  const double tile_bytes = double(a.tile.m) * a.tile.n * 4 * a.slices;
  return (a.repack ? kSumStepSeconds : kMeetingSeconds) + 2 * sums / (bandwidth * kCacheTimes) +
         (alone ? tile_bytes / kAloneBytes : 0);
}

// How much longer a kernel computes where the image's lines of 128 bytes begin at multiples of so
// many bytes only: what kernels near the best took on an H200, in the mean. A stem's lines overlap;
// the filters of merged groups and of cells are mostly zeros that are copied. Merged groups took
// 1.4 times as long; with 1.7 the kernels that the estimate chooses are faster.
double line_factor(const ConvProblem& p, const Repacked& repacked, bool repacks) {
  constexpr double kAnywhere = 1.75, kQuarter = 1.27, kHalf = 1.1;
  constexpr double kStem = 1.8, kCells = 1.4, kMerged = 1.7;
  if (repacks && repacked.together == 0) return kStem;
  if (repacks && repacked.has_result_cells) return kCells;
  const bool by_w = p.direction == ConvDirection::backward_weight;
  if (repacks && repacked.together > 1 && repacked.run == 1 && !by_w) return kMerged;
  const std::int64_t channels = p.direction == ConvDirection::backward_data ? p.k : p.c;
  const std::int64_t bytes = std::gcd(channels / p.g * 2, kTmawsDepth * 2);
  return bytes <= 16 ? kAnywhere : bytes <= 32 ? kQuarter : bytes <= 64 ? kHalf : 1;
}

// What L2 gives all units together, in bytes a second for each unit of the machine, where taps in
// depth read a volume again: what gradients of filters of 3 x 3 x 3 on 128^3 took on an H200. One
// consumer that multiplies 256 columns frees its stages late.
constexpr double kCacheBytes = 70e9;
constexpr double kLateShare = 0.85;

double seconds_of_fetches(const ConvProblem& p, const tile::GpuKernel& x, int units) {
  if (p.direction == ConvDirection::forward || p.filter[0] <= p.stride[0]) return 0;
  const double share = x.wave_m == 1 && x.tile_n == 256 ? kLateShare : 1;
  return x.blocks * x.k_steps * x.step_bytes / (share * kCacheBytes * std::max(1, units));
}

// What storing an element that lies anywhere takes a unit, as measured on an H200.
constexpr double kPixelSeconds = 0.6e-9;

// The bytes that a kernel with repack copies where operands are as aligned as allocators make
// them. A kernel that has nothing to copy is priced like one that copies an element, so that the
// one without repack is preferred.
Repacked repacked_at_best(const ConvProblem& p) {
  const auto* const aligned = reinterpret_cast<const void*>(std::uintptr_t{4096});
  return repack(p, {.in = aligned, .weight = aligned, .grad_out = aligned}, 0);
}

}  // namespace

Estimate estimate_tmaws(const KernelSpec& spec, const ConvProblem& given, const Target& target,
                        int) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const bool repacks = spec.algorithm.repack;
  const Repacked repacked = repacks ? repacked_at_best(given) : Repacked{};
  const ConvProblem& p = repacks ? repacked.problem : given;
  const Problem problem = given;
  const TmawsPlan plan =
      tmaws_plan(p, repacks ? form_of(s, spec.algorithm, repacked) : form_of(s, spec.algorithm));
  const tile::Product product = tmaws_product(s);
  tile::GpuCase c = tile::gpu_case(target, product.a, product.out, s.epilogue);
  double steps = 0;  // of all tiles
  for (const TmawsClass& of : plan.classes) steps += double(of.tiles_p) * double(of.steps);
  double tiles = 0;
  for (const TmawsClass& of : plan.classes) tiles += double(of.tiles_p);
  c.k = steps / std::max(tiles, 1.0) * kTmawsDepth;
  c.batch = double(plan.batch);
  c.flops = flops(problem);
  c.bytes = bytes(problem);
  c.is_aligned = c.by_copy = 1;
  tile::GpuKernel x = kernel_on(s, spec.algorithm, plan, target);
  const bool is_gradient = p.direction == ConvDirection::backward_data;
  const bool by_copy = repacks && copies_pixels(in_runs(given, repacked.run), nullptr) &&
                       stores_whole_groups(p, spec.algorithm);
  const bool by_pixels = is_gradient && repacks && !by_copy;
  if (by_pixels || repacked.has_result_cells) x.stores_by_copy = 0;
  if (repacks) x.copied_bytes = double(std::max<std::int64_t>(repacked.copied_bytes(), 2));
  count_out(c, double(plan.tiles), x);
  const tile::GpuSeconds seconds = tile::gpu_seconds(c, x);
  const bool sums_up =
      spec.algorithm.slices > 1 || (repacks && p.direction == ConvDirection::backward_weight);
  const double more =
      sums_up ? seconds_of_sums(spec.algorithm, plan, target.units, c.bandwidth) : 0;
  const double elements = double(plan.tiles) * spec.algorithm.tile.m * spec.algorithm.tile.n;
  const double stores = by_pixels ? elements * kPixelSeconds / target.units : 0;
  const double busy = std::max(seconds.compute, seconds_of_fetches(given, x, target.units));
  const double compute = busy * line_factor(p, repacked, repacks) + stores;
  Estimate total = tile::total_of(compute, seconds.memory, seconds.overhead + more);
  total.utilisation = seconds.utilisation;
  return total;
}

}  // namespace tessera::conv
