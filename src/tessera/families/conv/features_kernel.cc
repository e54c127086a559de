// Features of a kernel, alone and on the problem. What only a pipeline itself knows, such as the
// classes of pixels of a strided gradient, they take from its estimate.
#include <algorithm>
#include <array>

#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/families/conv/features_internal.h"

namespace tessera::conv {
namespace {

using enum FeatureGroup;
using F = const ProblemFacts&;
using K = const KernelFacts&;

constexpr double kAccumulatorBytes = 4;  // of a sum

constexpr std::array kFlagged = {Pipeline::direct, Pipeline::packab, Pipeline::tmaws,
                                 Pipeline::cpasync, Pipeline::depthwise};

double waves_of(K x) { return double(x.a.wave.m) * x.a.wave.n * x.a.wave.k; }
double warp_mn(K x) { return double(x.a.warp_tile.m) * x.a.warp_tile.n; }
double tile_mn(K x) { return x.tile_m * x.tile_n; }
double tile_volume(K x) { return x.tile_m * x.tile_n * x.tile_k; }
double rounds_of(K x) { return x.jobs / x.slots; }
double slabs_of(F f, K x) { return ceil_of(f.slab / x.tile_k); }
double share_m(K x) { return used_share(x.rows, x.tile_m); }
double share_n(K x) { return used_share(x.columns, x.tile_n); }
double share_k(K x) { return used_share(x.depth, x.tile_k); }
double packed_depth(K x) { return at_most(x.depth, x.tile_k) * kAccumulatorBytes; }

// Lines of pixels of a tile, and how many lines they read for each line that only they read.
double lines_of(F f, K x) { return x.tile_m / at_least(f.lines, 1); }
double halo_of(F f, K x) {
  const double stride = number(f.p.stride[1]);
  const double extent = number(f.p.dilation[1]) * number(f.p.filter[1] - 1) + 1;
  const double lines = ceil_of(lines_of(f, x));
  return ((lines - 1) * stride + extent) / (lines * stride);
}

// features_problem.cc explains the words of the formulas. tiles_m, tiles_n, tiles_k: tiles of a
// group's product. Its rows and columns change places in packab kernels of nchw images. For
// depthwise kernels the rows are pixels, the columns channels of all groups, and tile_k is the
// whole depth, the taps. jobs: blocks; on CPUs the register blocks, which threads share. slots:
// jobs that run at a time.
constexpr auto kKernel = std::to_array<KernelFeature>({
    // ---- the kernel ----
    {{"is_direct", "1", "1: pipeline direct", kernel},
     [](F, K x) { return flag(x.a.pipeline == Pipeline::direct); }},
    {{"is_packab", "1", "1: pipeline packab", kernel},
     [](F, K x) { return flag(x.a.pipeline == Pipeline::packab); }},
    {{"is_tmaws", "1", "1: pipeline tmaws", kernel},
     [](F, K x) { return flag(x.a.pipeline == Pipeline::tmaws); }},
    {{"is_cpasync", "1", "1: pipeline cpasync", kernel},
     [](F, K x) { return flag(x.a.pipeline == Pipeline::cpasync); }},
    {{"is_depthwise_kernel", "1", "1: pipeline depthwise", kernel},
     [](F, K x) { return flag(x.a.pipeline == Pipeline::depthwise); }},
    {{"is_other_pipeline", "1", "1: none of these", kernel},
     [](F, K x) {
       return flag(std::find(kFlagged.begin(), kFlagged.end(), x.a.pipeline) == kFlagged.end());
     }},
    {{"tile_m", "rows", "tile_m", kernel}, [](F, K x) { return double(x.a.tile.m); }},
    {{"tile_n", "columns", "tile_n", kernel}, [](F, K x) { return double(x.a.tile.n); }},
    {{"tile_k", "elements", "tile_k", kernel}, [](F, K x) { return double(x.a.tile.k); }},
    {{"wave_m", "1", "wave_m; 0: as many threads as allowed", kernel},
     [](F, K x) { return double(x.a.wave.m); }},
    {{"wave_n", "1", "wave_n; 0: as many threads as allowed", kernel},
     [](F, K x) { return double(x.a.wave.n); }},
    {{"wave_k", "1", "wave_k; 0: as many threads as allowed", kernel},
     [](F, K x) { return double(x.a.wave.k); }},
    {{"warp_tile_m", "rows", "warp_tile_m", kernel},
     [](F, K x) { return double(x.a.warp_tile.m); }},
    {{"warp_tile_n", "columns", "warp_tile_n", kernel},
     [](F, K x) { return double(x.a.warp_tile.n); }},
    {{"warp_tile_k", "elements", "warp_tile_k", kernel},
     [](F, K x) { return double(x.a.warp_tile.k); }},
    {{"scheduler", "code", "standard cooperative pingpong intrawave interwave", kernel},
     [](F, K x) { return double(x.a.scheduler); }},
    {{"is_pingpong", "1", "1: scheduler pingpong", kernel},
     [](F, K x) { return flag(x.a.scheduler == Scheduler::pingpong); }},
    {{"store", "code", "standard direct tma cshuffle", kernel},
     [](F, K x) { return double(x.a.store); }},
    {{"split_kind", "code", "none 0, ordered 1, atomic 2", kernel},
     [](F, K x) { return double(x.a.split_k); }},
    {{"splits", "1", "blocks of a cluster that share the depth", kernel},
     [](F, K x) { return double(x.a.splits); }},
    {{"slices", "1", "parts of the depth that add up in memory", kernel},
     [](F, K x) { return double(x.a.slices); }},
    {{"stages", "1", "stages", kernel}, [](F, K x) { return double(x.a.stages); }},
    {{"cluster_blocks", "1", "cluster_m cluster_n", kernel},
     [](F, K x) { return double(x.a.cluster_m) * x.a.cluster_n; }},
    {{"swap_ab", "1", "1: rows and columns change places", kernel},
     [](F, K x) { return flag(x.a.swap_ab); }},
    {{"repack", "1", "1: copies operands first", kernel}, [](F, K x) { return flag(x.a.repack); }},
    {{"pointwise", "1", "1: one of GEMM's kernels", kernel},
     [](F, K x) { return flag(x.a.pointwise); }},
    {{"num_waves", "1", "wave_m wave_n wave_k", kernel}, [](F, K x) { return waves_of(x); }},
    {{"block_threads", "1", "threads of a block, with those that copy; CPU: 1", kernel},
     [](F, K x) { return x.threads; }},
    {{"tile_mn", "elements", "tile_m tile_n", kernel}, [](F, K x) { return tile_mn(x); }},
    {{"tile_volume", "macs", "tile_m tile_n tile_k", kernel},
     [](F, K x) { return tile_volume(x); }},
    {{"tile_intensity", "elements", "tile_mn / (tile_m + tile_n)", kernel},
     [](F, K x) { return tile_mn(x) / (x.tile_m + x.tile_n); }},
    {{"tile_squareness", "1", "min(tile_m, tile_n) / max(tile_m, tile_n)", kernel},
     [](F, K x) { return std::min(x.tile_m, x.tile_n) / std::max(x.tile_m, x.tile_n); }},
    {{"tile_m_by_thread", "rows", "tile_m / block_threads", kernel},
     [](F, K x) { return x.tile_m / x.threads; }},
    {{"tile_n_by_thread", "columns", "tile_n / block_threads", kernel},
     [](F, K x) { return x.tile_n / x.threads; }},
    {{"warp_tiles", "1", "tile_mn / (warp_tile_m warp_tile_n)", kernel},
     [](F, K x) { return tile_mn(x) / at_least(warp_mn(x), 1); }},
    {{"accumulators", "elements", "tile_mn / block_threads; CPU: warp_tile_m warp_tile_n", kernel},
     [](F f, K x) { return f.machine.on_cpu ? warp_mn(x) : tile_mn(x) / x.threads; }},
    {{"stage_bytes", "bytes", "of both factors for a step of tile_k", kernel},
     [](F, K x) { return x.stage_bytes; }},
    {{"bytes_in_flight", "bytes", "(stages - 1) stage_bytes", kernel},
     [](F, K x) { return (x.a.stages - 1) * x.stage_bytes; }},
    {{"shared_bytes", "bytes", "stages stage_bytes", kernel},
     [](F, K x) { return x.shared_bytes; }},
    {{"shared_ratio", "1", "shared_bytes / shared memory of a block; CPU: / L2", kernel},
     [](F f, K x) {
       return quotient(x.shared_bytes, f.machine.on_cpu
                                           ? f.machine.l2
                                           : number(f.machine.target->shared_memory_bytes));
     }},
    // ---- the kernel on the problem: tiles ----
    {{"tiles_m", "1", "ceil(rows / tile_m)", interaction}, [](F, K x) { return x.tiles_m; }},
    {{"tiles_n", "1", "ceil(columns / tile_n)", interaction}, [](F, K x) { return x.tiles_n; }},
    {{"tiles_k", "1", "ceil(depth / tile_k)", interaction}, [](F, K x) { return x.tiles_k; }},
    {{"total_tiles", "1", "tiles_m tiles_n g", interaction}, [](F, K x) { return x.tiles; }},
    {{"log2_total_tiles", "log2", "log2(max(total_tiles, 1))", interaction},
     [](F, K x) { return log2_from_1(x.tiles); }},
    {{"log2_tiles_m", "log2", "log2(max(tiles_m, 1))", interaction},
     [](F, K x) { return log2_from_1(x.tiles_m); }},
    {{"tile_ratio_m", "1", "rows / tile_m", interaction}, [](F, K x) { return x.rows / x.tile_m; }},
    {{"tile_ratio_n", "1", "columns / tile_n", interaction},
     [](F, K x) { return x.columns / x.tile_n; }},
    {{"tile_ratio_k", "1", "depth / tile_k", interaction},
     [](F, K x) { return x.depth / x.tile_k; }},
    {{"tile_eff_m", "1", "rows / (tiles_m tile_m): the rest is padding", interaction},
     [](F, K x) { return share_m(x); }},
    {{"tile_eff_n", "1", "columns / (tiles_n tile_n)", interaction},
     [](F, K x) { return share_n(x); }},
    {{"tile_eff_k", "1", "depth / (tiles_k tile_k)", interaction},
     [](F, K x) { return share_k(x); }},
    {{"tile_efficiency", "1", "tile_eff_m tile_eff_n tile_eff_k", interaction},
     [](F, K x) { return share_m(x) * share_n(x) * share_k(x); }},
    {{"smaller_than_tile_m", "1", "1: rows < tile_m", interaction},
     [](F, K x) { return flag(x.rows < x.tile_m); }},
    {{"smaller_than_tile_n", "1", "1: columns < tile_n", interaction},
     [](F, K x) { return flag(x.columns < x.tile_n); }},
    {{"smaller_than_tile_k", "1", "1: depth < tile_k", interaction},
     [](F, K x) { return flag(x.depth < x.tile_k); }},
    {{"cut_tiles", "1", "sides of the tile that do not divide their size", interaction},
     [](F, K x) { return flag(share_m(x) < 1) + flag(share_n(x) < 1) + flag(share_k(x) < 1); }},
    // ---- units ----
    {{"unit_utilisation", "1", "total_tiles splits slices / units", interaction},
     [](F f, K x) { return x.tiles * x.a.splits * x.a.slices / f.machine.units; }},
    {{"log2_unit_utilisation", "log2", "log2(unit_utilisation), at least 2^-64", interaction},
     [](F f, K x) {
       return log2_of(at_least(x.tiles * x.a.splits * x.a.slices / f.machine.units, 0x1p-64));
     }},
    {{"below_one_round", "1", "1: total_tiles splits slices < units", interaction},
     [](F f, K x) { return flag(x.tiles * x.a.splits * x.a.slices < f.machine.units); }},
    {{"resident", "blocks", "of a unit at a time, by stages and threads; CPU: 1", interaction},
     [](F, K x) { return x.resident; }},
    {{"jobs", "1", "jobs", interaction}, [](F, K x) { return x.jobs; }},
    {{"full_rounds", "1", "floor(jobs / slots)", interaction},
     [](F, K x) { return floor_of(rounds_of(x)); }},
    {{"tail", "1", "jobs / slots - full_rounds", interaction},
     [](F, K x) { return rounds_of(x) - floor_of(rounds_of(x)); }},
    {{"round_efficiency", "1", "jobs / (ceil(jobs / slots) slots)", interaction},
     [](F, K x) { return rounds_of(x) / at_least(ceil_of(rounds_of(x)), 1); }},
    {{"unit_efficiency", "1", "jobs / (ceil(jobs / units) units)", interaction},
     [](F f, K x) { return used_share(x.jobs, f.machine.units); }},
    // ---- the depth ----
    {{"steps", "1", "ceil(tiles_k / (splits slices))", interaction},
     [](F, K x) { return x.steps; }},
    {{"steps_per_stage", "1", "steps / stages", interaction},
     [](F, K x) { return x.steps / x.a.stages; }},
    {{"steps_over_tiles", "1", "tiles_k / max(total_tiles, 1)", interaction},
     [](F, K x) { return x.tiles_k / at_least(x.tiles, 1); }},
    {{"log2_steps_of_unit", "log2", "log2(max(tiles_k / min(total_tiles, units), 1))", interaction},
     [](F f, K x) {
       return log2_from_1(x.tiles_k / at_least(at_most(x.tiles, f.machine.units), 1));
     }},
    {{"slabs", "1", "ceil(slab / tile_k), slab: channels of a tap; backward_weight: depth",
      interaction},
     [](F f, K x) { return slabs_of(f, x); }},
    {{"slab_efficiency", "1", "slab / (slabs tile_k): the rest is zeros", interaction},
     [](F f, K x) { return used_share(f.slab, x.tile_k); }},
    {{"taps_of_step", "1", "tile_k / max(slab, 1)", interaction},
     [](F f, K x) { return x.tile_k / at_least(f.slab, 1); }},
    // ---- pixels ----
    {{"tile_lines", "1", "tile_m / pixels of a line", interaction},
     [](F f, K x) { return lines_of(f, x); }},
    {{"tile_images", "1", "tile_m / out_pixels", interaction},
     [](F f, K x) { return x.tile_m / at_least(f.out_pixels, 1); }},
    {{"halo", "1", "lines that a tile reads / (lines of its own x stride_h)", interaction},
     [](F f, K x) { return halo_of(f, x); }},
    {{"groups_of_tile", "1", "tile_n / max(columns, 1)", interaction},
     [](F, K x) { return x.tile_n / at_least(x.columns, 1); }},
    // ---- caches of a CPU ----
    {{"rows_panel_over_l1", "1", "min(depth, tile_k) warp_tile_m as 4 bytes / L1", interaction},
     [](F f, K x) { return quotient(packed_depth(x) * x.a.warp_tile.m, f.machine.l1); }},
    {{"columns_panel_over_l1", "1", "min(depth, tile_k) warp_tile_n as 4 bytes / L1", interaction},
     [](F f, K x) { return quotient(packed_depth(x) * x.a.warp_tile.n, f.machine.l1); }},
    {{"rows_block_over_l2", "1", "min(depth, tile_k) min(rows, tile_m) as 4 bytes / L2",
      interaction},
     [](F f, K x) { return quotient(packed_depth(x) * at_most(x.rows, x.tile_m), f.machine.l2); }},
    {{"columns_block_over_l2", "1", "min(depth, tile_k) min(columns, tile_n) as 4 bytes / L2",
      interaction},
     [](F f, K x) {
       return quotient(packed_depth(x) * at_most(x.columns, x.tile_n), f.machine.l2);
     }},
    // ---- work and bytes ----
    {{"log2_macs_of_job", "log2", "log2(max(flops / 2 / max(jobs, 1), 1))", interaction},
     [](F f, K x) { return log2_from_1(f.work.flops / 2 / at_least(x.jobs, 1)); }},
    {{"log2_macs_of_unit", "log2", "log2(max(flops / 2 / min(jobs, units), 1))", interaction},
     [](F f, K x) {
       return log2_from_1(f.work.flops / 2 / at_least(at_most(x.jobs, f.machine.units), 1));
     }},
    {{"utilisation", "1", "flops / (2 tile_mn tile_k tiles_k total_tiles)", interaction},
     [](F f, K x) { return f.work.flops / 2 / at_least(tile_volume(x) * x.tiles_k * x.tiles, 1); }},
    {{"log2_tiled_bytes", "log2", "log2(1 + stage_bytes tiles_k total_tiles)", interaction},
     [](F, K x) { return log2_of(1 + x.tiled_bytes); }},
    {{"tiled_ratio", "1", "stage_bytes tiles_k total_tiles / max(bytes, 1)", interaction},
     [](F f, K x) { return x.tiled_bytes / at_least(f.work.bytes, 1); }},
    {{"log2_slice_bytes", "log2", "log2(1 + bytes of slices' sums, written and read)", interaction},
     [](F, K x) { return log2_of(1 + x.slice_bytes); }},
    {{"slice_ratio", "1", "bytes of slices' sums, written and read / max(bytes, 1)", interaction},
     [](F f, K x) { return x.slice_bytes / at_least(f.work.bytes, 1); }},
});

// ---- a kernel's numbers ----

double threads_of(const Algorithm& a, const Target& target) {
  if (!is_gpu(target)) return 1;
  if (a.pipeline == Pipeline::tmaws) return device::tma_threads(a.wave.m);
  return std::max(1.0, double(a.wave.m) * a.wave.n * a.wave.k * target.warp_size);
}

bool changes_places(const ProblemFacts& f, const Algorithm& a) {
  return (a.pointwise || a.pipeline == Pipeline::packab) && f.p.layout == ConvLayout::nchw &&
         f.p.direction != ConvDirection::backward_weight;
}

void put_sides(const ProblemFacts& f, KernelFacts& x) {
  const bool by_w = f.p.direction == ConvDirection::backward_weight;
  x.rows = number(f.view.rows), x.columns = number(f.view.columns);
  x.depth = number(f.view.depth);
  x.size_m = size_of(f.p.direction == ConvDirection::forward ? f.p.in : f.p.out);
  x.size_n = size_of(by_w ? f.p.in : f.p.weight);
  x.groups = f.g;
  if (x.a.pipeline == Pipeline::depthwise) {
    x.rows = number(by_w ? f.view.depth : f.view.rows);
    x.columns = number(by_w ? f.view.rows : f.view.columns) * f.g;
    x.depth = f.taps;
    x.groups = 1;
  }
  if (!changes_places(f, x.a)) return;
  std::swap(x.rows, x.columns);
  std::swap(x.size_m, x.size_n);
}

void put_tiles(KernelFacts& x) {
  x.tile_m = std::max(1, x.a.tile.m);
  x.tile_n = std::max(1, x.a.tile.n);
  x.tile_k = x.a.pipeline == Pipeline::depthwise ? x.depth : std::max(1, x.a.tile.k);
  x.tiles_m = ceil_of(x.rows / x.tile_m);
  x.tiles_n = ceil_of(x.columns / x.tile_n);
  x.tiles_k = ceil_of(x.depth / x.tile_k);
  x.tiles = x.tiles_m * x.tiles_n * x.groups;
  x.steps = ceil_of(x.tiles_k / (double(x.a.splits) * x.a.slices));
}

// Blocks run side by side on a unit as far as their stages and threads leave room.
void put_jobs(const ProblemFacts& f, KernelFacts& x) {
  if (f.machine.on_cpu) {
    x.jobs = ceil_of(x.rows / std::max(1, x.a.warp_tile.m)) *
             ceil_of(x.columns / std::max(1, x.a.warp_tile.n)) * x.groups;
    x.slots = x.a.wave.m == 1 ? 1 : f.machine.units;
    return;
  }
  x.resident = tile::blocks_on_unit(f.machine, x.shared_bytes, x.threads);
  x.jobs = x.tiles * x.a.splits * x.a.slices;
  x.slots = f.machine.units * x.resident;
}

}  // namespace

std::span<const KernelFeature> kernel_features() { return kKernel; }
std::span<const Pipeline> pipelines_with_flags() { return kFlagged; }

KernelFacts kernel_facts(const ProblemFacts& f, const Algorithm& algorithm) {
  KernelFacts x{.a = algorithm};
  put_sides(f, x);
  put_tiles(x);
  x.threads = threads_of(algorithm, *f.machine.target);
  x.stage_bytes = x.tile_k * (x.tile_m * x.size_m + x.tile_n * x.size_n);
  x.shared_bytes = x.stage_bytes * std::max(1, algorithm.stages);
  x.tiled_bytes = x.stage_bytes * x.tiles_k * x.tiles;
  if (algorithm.slices > 1) {
    const double results = number(f.view.rows) * number(f.view.columns) * f.g;
    x.slice_bytes = 2 * kAccumulatorBytes * algorithm.slices * results;
  }
  put_jobs(f, x);
  return x;
}

}  // namespace tessera::conv
