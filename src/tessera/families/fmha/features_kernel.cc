// Features of a kernel, alone and on the problem. Blocks, threads, shared memory, parts and the
// workspace are the launch's, so that they are right for kernels of every pipeline.
#include <algorithm>
#include <array>

#include "tessera/families/fmha/features_internal.h"
#include "tessera/families/fmha/ways.h"

namespace tessera::fmha {
namespace {

using enum FeatureGroup;
using F = const ProblemFacts&;
using K = const KernelFacts&;

constexpr double kFloatBytes = 4;

constexpr std::array kFlagged = {Pipeline::direct, Pipeline::flash, Pipeline::tmaws,
                                 Pipeline::splitkv};

template <Pipeline kPipeline>
double is_flagged(F, K x) {
  return flag(x.a.pipeline == kPipeline);
}
double all_waves(K x) { return double(x.a.wave.m) * x.a.wave.n * x.a.wave.k; }
double register_block(K x) { return double(x.a.warp_tile.m) * x.a.warp_tile.n; }
double score_tile(K x) { return x.tile_m * x.tile_n; }
double rounds_in(K x) { return x.jobs / x.slots; }
double both_heads(F f) { return number(f.p.hdim) + number(f.p.hdim_v); }
double row_share(K x) { return used_share(x.rows, x.tile_m); }
double key_share(F f, K x) { return used_share(number(f.p.seqlen_k), x.tile_n); }
double head_share(F f, K x) { return both_heads(f) / (x.tile_k + x.room_v); }

// Scores of a tile's rows that are multiplied although the mask hides them, on average half of a
// block of keys and half of the rows' own distance, as a share of what the rows see.
double diagonal_waste(F f, K x) {
  if (f.p.mask == FmhaMask::none) return 0;
  const double queries = x.tile_m * number(f.p.seqlen_q) / at_least(x.rows, 1);
  return (at_most(queries, number(f.p.seqlen_q)) + x.tile_n) / 2 / at_least(f.row_keys, 1);
}

// features_problem.cc explains the words of the formulas. rows: what tile_m counts: queries, or
// rows_kv where a tile has the rows of all heads that share keys. items: tiles of rows of all heads
// and sequences. room_v: elements of v that a tile has room for. jobs: blocks of the launch's
// largest step; on CPUs items times parts. slots: jobs that run at a time. parts: of the keys.
constexpr auto kKernel = std::to_array<KernelFeature>({
    // ---- the kernel ----
    {{"is_direct", "1", "1: pipeline direct", kernel}, is_flagged<Pipeline::direct>},
    {{"is_flash", "1", "1: pipeline flash", kernel}, is_flagged<Pipeline::flash>},
    {{"is_tmaws", "1", "1: pipeline tmaws", kernel}, is_flagged<Pipeline::tmaws>},
    {{"is_splitkv", "1", "1: pipeline splitkv", kernel}, is_flagged<Pipeline::splitkv>},
    {{"is_other_pipeline", "1", "1: none of these", kernel},
     [](F, K x) {
       return flag(std::find(kFlagged.begin(), kFlagged.end(), x.a.pipeline) == kFlagged.end());
     }},
    {{"tile_m", "rows", "tile_m", kernel}, [](F, K x) { return double(x.a.tile.m); }},
    {{"tile_n", "keys", "tile_n", kernel}, [](F, K x) { return double(x.a.tile.n); }},
    {{"tile_k", "elements", "tile_k", kernel}, [](F, K x) { return double(x.a.tile.k); }},
    {{"room_v", "elements", "room_v", kernel}, [](F, K x) { return x.room_v; }},
    {{"wave_m", "1", "wave_m; 0: as many threads as allowed", kernel},
     [](F, K x) { return double(x.a.wave.m); }},
    {{"wave_n", "1", "wave_n", kernel}, [](F, K x) { return double(x.a.wave.n); }},
    {{"wave_k", "1", "wave_k", kernel}, [](F, K x) { return double(x.a.wave.k); }},
    {{"warp_tile_m", "rows", "warp_tile_m", kernel},
     [](F, K x) { return double(x.a.warp_tile.m); }},
    {{"warp_tile_n", "keys", "warp_tile_n", kernel},
     [](F, K x) { return double(x.a.warp_tile.n); }},
    {{"scheduler", "code", "standard cooperative pingpong intrawave interwave", kernel},
     [](F, K x) { return double(x.a.scheduler); }},
    {{"store", "code", "standard direct tma cshuffle", kernel},
     [](F, K x) { return double(x.a.store); }},
    {{"split_kind", "code", "none 0, ordered 1, atomic 2", kernel},
     [](F, K x) { return double(x.a.split_k); }},
    {{"slices", "1", "blocks that are to run at a time", kernel},
     [](F, K x) { return double(x.a.slices); }},
    {{"splits", "1", "blocks of a cluster that share a sum", kernel},
     [](F, K x) { return double(x.a.splits); }},
    {{"stages", "1", "stages", kernel}, [](F, K x) { return double(x.a.stages); }},
    {{"cluster_blocks", "1", "cluster_m cluster_n", kernel},
     [](F, K x) { return double(x.a.cluster_m) * x.a.cluster_n; }},
    {{"is_persistent", "1", "1: persistent", kernel}, [](F, K x) { return flag(x.a.persistent); }},
    {{"swap_ab", "1", "1: rows and keys change places", kernel},
     [](F, K x) { return flag(x.a.swap_ab); }},
    {{"num_waves", "1", "wave_m wave_n wave_k", kernel}, [](F, K x) { return all_waves(x); }},
    {{"tile_mn", "scores", "tile_m tile_n", kernel}, [](F, K x) { return score_tile(x); }},
    {{"tile_aspect", "log2", "log2(tile_m / tile_n)", kernel},
     [](F, K x) { return log2_of(x.tile_m / x.tile_n); }},
    {{"score_registers", "1", "tile_mn / block_threads; CPU: warp_tile_m warp_tile_n", kernel},
     [](F f, K x) { return f.machine.on_cpu ? register_block(x) : score_tile(x) / x.threads; }},
    {{"sum_registers", "1", "tile_m room_v / block_threads; CPU: 0", kernel},
     [](F f, K x) { return f.machine.on_cpu ? 0 : x.tile_m * x.room_v / x.threads; }},
    // ---- the launch ----
    {{"block_threads", "1", "threads of a block, with those that copy; CPU: 1", interaction},
     [](F, K x) { return x.threads; }},
    {{"shared_bytes", "bytes", "shared memory of a block", interaction},
     [](F, K x) { return x.shared_bytes; }},
    {{"shared_ratio", "1", "shared_bytes / shared memory of a block of the machine", interaction},
     [](F f, K x) {
       return quotient(x.shared_bytes, number(f.machine.target->shared_memory_bytes));
     }},
    {{"launch_steps", "1", "steps of the launch", interaction}, [](F, K x) { return x.steps; }},
    {{"log2_workspace_bytes", "log2", "log2(1 + bytes of the workspace)", interaction},
     [](F, K x) { return log2_of(1 + x.workspace_bytes); }},
    {{"workspace_ratio", "1", "bytes of the workspace / max(bytes, 1)", interaction},
     [](F f, K x) { return x.workspace_bytes / at_least(f.work.bytes, 1); }},
    {{"parts", "1", "parts", interaction}, [](F, K x) { return x.parts; }},
    {{"log2_parts", "log2", "log2(parts)", interaction},
     [](F, K x) { return log2_from_1(x.parts); }},
    // ---- tiles and their padding ----
    {{"rows", "rows", "rows", interaction}, [](F, K x) { return x.rows; }},
    {{"tiles_m", "1", "ceil(rows / tile_m)", interaction}, [](F, K x) { return x.tiles_m; }},
    {{"log2_items", "log2", "log2(max(items, 1))", interaction},
     [](F, K x) { return log2_from_1(x.items); }},
    {{"tile_ratio_m", "1", "rows / tile_m", interaction}, [](F, K x) { return x.rows / x.tile_m; }},
    {{"tile_ratio_n", "1", "seqlen_k / tile_n", interaction},
     [](F f, K x) { return number(f.p.seqlen_k) / x.tile_n; }},
    {{"row_efficiency", "1", "rows / (tiles_m tile_m): the rest is padding", interaction},
     [](F, K x) { return row_share(x); }},
    {{"key_efficiency", "1", "the same of seqlen_k and tile_n", interaction},
     [](F f, K x) { return key_share(f, x); }},
    {{"key_efficiency_m", "1", "the same of seqlen_k and tile_m", interaction},
     [](F f, K x) { return used_share(number(f.p.seqlen_k), x.tile_m); }},
    {{"query_efficiency_n", "1", "the same of seqlen_q and tile_n", interaction},
     [](F f, K x) { return used_share(number(f.p.seqlen_q), x.tile_n); }},
    {{"head_efficiency", "1", "(hdim + hdim_v) / (tile_k + room_v)", interaction}, head_share},
    {{"head_efficiency_k", "1", "hdim / tile_k", interaction},
     [](F f, K x) { return number(f.p.hdim) / x.tile_k; }},
    {{"head_efficiency_v", "1", "hdim_v / room_v", interaction},
     [](F f, K x) { return number(f.p.hdim_v) / x.room_v; }},
    {{"tile_efficiency", "1", "row_efficiency key_efficiency head_efficiency", interaction},
     [](F f, K x) { return row_share(x) * key_share(f, x) * head_share(f, x); }},
    {{"fewer_rows_than_tile", "1", "1: rows < tile_m", interaction},
     [](F, K x) { return flag(x.rows < x.tile_m); }},
    {{"diagonal_waste", "1",
      "with a mask (queries of tile_m + tile_n) / 2 / row_keys: hidden scores of cut tiles",
      interaction},
     diagonal_waste},
    // ---- units ----
    {{"log2_jobs", "log2", "log2(max(jobs, 1))", interaction},
     [](F, K x) { return log2_from_1(x.jobs); }},
    {{"resident", "blocks", "of a unit at a time, by shared memory and threads; CPU: 1",
      interaction},
     [](F, K x) { return x.resident; }},
    {{"log2_unit_utilisation", "log2", "log2(jobs / units), at least 2^-64", interaction},
     [](F f, K x) { return log2_of(at_least(x.jobs / f.machine.units, 0x1p-64)); }},
    {{"below_one_round", "1", "1: jobs < units", interaction},
     [](F f, K x) { return flag(x.jobs < f.machine.units); }},
    {{"full_rounds", "1", "floor(jobs / slots)", interaction},
     [](F, K x) { return floor_of(rounds_in(x)); }},
    {{"tail", "1", "jobs / slots - full_rounds", interaction},
     [](F, K x) { return rounds_in(x) - floor_of(rounds_in(x)); }},
    {{"round_efficiency", "1", "jobs / (ceil(jobs / slots) slots)", interaction},
     [](F, K x) { return used_share(x.jobs, x.slots); }},
    {{"unit_efficiency", "1", "jobs / (ceil(jobs / units) units)", interaction},
     [](F f, K x) { return used_share(x.jobs, f.machine.units); }},
    // ---- the way along the keys ----
    {{"log2_row_steps", "log2", "log2(max(row_keys / tile_n, 1))", interaction},
     [](F f, K x) { return log2_from_1(f.row_keys / x.tile_n); }},
    {{"part_steps", "1", "row_keys / (tile_n wave_n parts)", interaction},
     [](F, K x) { return x.part_steps; }},
    {{"log2_part_steps", "log2", "log2(max(part_steps, 1))", interaction},
     [](F, K x) { return log2_from_1(x.part_steps); }},
    {{"part_steps_by_stage", "1", "part_steps / stages", interaction},
     [](F, K x) { return x.part_steps / std::max(1, x.a.stages); }},
    // ---- work and bytes ----
    {{"log2_job_flops", "log2", "log2(max(flops / max(jobs, 1), 1))", interaction},
     [](F f, K x) { return log2_from_1(f.work.flops / at_least(x.jobs, 1)); }},
    {{"log2_unit_flops", "log2", "log2(max(flops / max(min(jobs, units), 1), 1))", interaction},
     [](F f, K x) {
       return log2_from_1(f.work.flops / at_least(at_most(x.jobs, f.machine.units), 1));
     }},
    {{"log2_job_bytes", "log2", "log2(max(bytes / max(jobs, 1), 1))", interaction},
     [](F f, K x) { return log2_from_1(f.work.bytes / at_least(x.jobs, 1)); }},
    {{"log2_tiled_bytes", "log2", "log2(1 + tiled bytes): items row_keys heads of k and v",
      interaction},
     [](F, K x) { return log2_of(1 + x.tiled_bytes); }},
    {{"tiled_ratio", "1", "tiled bytes / max(bytes, 1)", interaction},
     [](F f, K x) { return x.tiled_bytes / at_least(f.work.bytes, 1); }},
    {{"keys_over_l1", "1", "tile_n (hdim + hdim_v) as 4 bytes / L1", interaction},
     [](F f, K x) { return quotient(x.tile_n * both_heads(f) * kFloatBytes, f.machine.l1); }},
    {{"rows_over_l2", "1", "min(rows, tile_m) (hdim + hdim_v) as 4 bytes / L2", interaction},
     [](F f, K x) {
       return quotient(at_most(x.rows, x.tile_m) * both_heads(f) * kFloatBytes, f.machine.l2);
     }},
    {{"peak_share", "1", "flops / (estimate().seconds peak)", interaction},
     [](F f, K x) { return f.work.flops / (x.estimated.seconds * f.machine.peak); },
     true},
});

// ---- a kernel's numbers ----

void put_tiles(const ProblemFacts& f, const KernelSpec& spec, const Target& target,
               KernelFacts& x) {
  const bool packs = tile::way_of<Types>(spec, target).own.packs_heads;
  x.tile_m = std::max(1, x.a.tile.m);
  x.tile_n = std::max(1, x.a.tile.n);
  x.tile_k = std::max(1, x.a.tile.k);
  x.room_v = std::max(1, most_hdim_v(x.a.tile.k));
  x.rows = packs ? f.rows_kv : number(f.p.seqlen_q);
  x.tiles_m = ceil_of(x.rows / x.tile_m);
  x.items = x.tiles_m * (packs ? f.pairs_kv : f.pairs);
  const double width = (number(f.p.hdim) + number(f.p.hdim_v)) * size_of(kv_type(f.p));
  x.tiled_bytes = x.items * f.row_keys * width;
}

double blocks_of_step(const Step& step) {
  return double(step.grid[0]) * step.grid[1] * step.grid[2];
}

// The step that does the work: of AMD's kernels the one of the first entry, whose LDS is no part of
// the launch; of NVIDIA's the one that has the most shared memory.
void put_step(const KernelSpec& spec, const Target& target, const Launch& launch, KernelFacts& x) {
  const auto& own = tile::way_of<Types>(spec, target).own;
  const bool on_hip = target.backend == "hip";
  const Step* main = nullptr;
  for (const Step& step : launch.steps) {
    const bool is_larger = main != nullptr && step.shared_memory_bytes > main->shared_memory_bytes;
    if (main == nullptr || (on_hip ? step.entry == 0 : is_larger)) main = &step;
  }
  if (main == nullptr) return;
  x.threads = at_least(double(main->block[0]) * main->block[1] * main->block[2], 1);
  x.shared_bytes = double(main->shared_memory_bytes);
  if (on_hip && own.shared_bytes != nullptr) {
    x.shared_bytes = double(own.shared_bytes(signature_in(spec), spec.algorithm));
  }
  x.jobs = blocks_of_step(*main);
}

void put_launch(const ProblemFacts& f, const KernelSpec& spec, const Target& target,
                KernelFacts& x) {
  const Launch launch = fmha::bind(spec, f.p, target, FmhaOperands{});
  x.steps = double(launch.steps.size());
  x.parts = number(std::max<std::int64_t>(1, launch.parts));
  x.workspace_bytes = double(launch.workspace.bytes);
  if (f.machine.on_cpu) {
    x.jobs = (goes_back(spec) ? f.pairs_kv : x.items) * x.parts;
    x.slots = f.machine.units;
    return;
  }
  put_step(spec, target, launch, x);
  x.resident = tile::blocks_on_unit(f.machine, x.shared_bytes, x.threads);
  x.slots = f.machine.units * x.resident;
}

}  // namespace

std::span<const KernelFeature> kernel_features() { return kKernel; }
std::span<const Pipeline> pipelines_with_flags() { return kFlagged; }

KernelFacts kernel_facts(const ProblemFacts& f, const KernelSpec& spec, const Target& target) {
  KernelFacts x{.a = spec.algorithm};
  put_tiles(f, spec, target, x);
  put_launch(f, spec, target, x);
  x.part_steps = f.row_keys / (x.tile_n * std::max(1, x.a.wave.n) * x.parts);
  return x;
}

}  // namespace tessera::fmha
