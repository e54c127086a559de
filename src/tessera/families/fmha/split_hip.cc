// Attention with keys in parts on AMD GPUs: rules, text, launch, predicted times.
// device/hip/fmha/mfma_fmha.h says how the kernels attend, mfma_parts.h how parts are added up.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/mfma.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::fmha {
namespace {

constexpr int kSplitHipWaves = kHipAppendWaves;  // the step that appends has as many
constexpr int kMostHipSlices = 4096;
constexpr int kTeamKeys = 32;  // of a tile, that a wave multiplies at least
constexpr std::int64_t kMostRowsOfHead = std::int64_t{1} << 28;

// ---- which kernels there are ----

bool copies_tiles(const Target& target) {
  return tile::has_pipeline(Op::fmha, target, Pipeline::qrasync);
}

bool is_split_hip_tile(const Algorithm& a) {
  const Shape3& t = a.tile;
  const bool keys_fit = (t.n == 32 || t.n == 64 || t.n == 128) && t.n % (a.wave.n * kTeamKeys) == 0;
  const bool heads_fit = t.k == 64 || t.k == 128 || t.k == 192 || t.k == 256;
  return t.m == kMfmaWarpTile.m * a.wave.m && keys_fit && heads_fit;
}

constexpr Rule kSplitHipRules[] = {
    {has_mfma, no_mfma_sentence},
    {has_mfma_types, mfma_types_sentence},
    {mfma_computes, mfma_computes_sentence},
    tile::kRowOf<Case, tile::kUnusedFields>,
    {has_mfma_warp_tile, mfma_warp_tile_sentence},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return (w.m == 1 || w.m == 2 || w.m == 4) && w.n * w.m == kSplitHipWaves && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format(
           "wave must be m x n x 1, m waves over rows and n over keys, {} in all, got {}",
           kSplitHipWaves, to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return is_split_hip_tile(c.algorithm); },
     [](const Case& c) {
       return fmt::format(
           "tile must be {} x n x k with {} waves over rows, n 32, 64 or 128 and at least {} for "
           "each of {} waves over keys, k 64, 128, 192 or 256, got {}",
           kMfmaWarpTile.m * c.algorithm.wave.m, c.algorithm.wave.m, kTeamKeys, c.algorithm.wave.n,
           to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       return c.algorithm.stages == 1 || (c.algorithm.stages == 2 && copies_tiles(c.target));
     },
     [](const Case& c) {
       return fmt::format(
           "stages must be 1 (by registers){}, got {}",
           copies_tiles(c.target) ? " or 2 (copied to LDS)" : " where tiles are not copied to LDS",
           c.algorithm.stages);
     }},
    {[](const Case& c) { return c.algorithm.slices >= 1 && c.algorithm.slices <= kMostHipSlices; },
     [](const Case& c) {
       return fmt::format("slices must be between 1 and {}, got {}", kMostHipSlices,
                          c.algorithm.slices);
     }},
    {lanes_move_tiles, lanes_sentence},
    {leaves_registers, registers_sentence},
    kFitsSharedMemory,
};

// Tiles of 32 rows for each length of heads where LDS has room for four waves' keys, and of 64.
std::vector<Algorithm> split_hip_algorithms(const Target& target) {
  constexpr std::pair<Shape3, Shape3> kTilesAndWaves[] = {
      {{32, 128, 64}, {1, 4, 1}}, {{64, 64, 64}, {2, 2, 1}},  {{32, 128, 128}, {1, 4, 1}},
      {{64, 64, 128}, {2, 2, 1}}, {{64, 64, 192}, {2, 2, 1}}, {{64, 64, 256}, {2, 2, 1}}};
  const int slices = std::clamp(target.units, 1, kMostHipSlices);
  std::vector<Algorithm> all;
  for (const auto& [tile, wave] : kTilesAndWaves) {
    all.push_back({.pipeline = Pipeline::splitkv,
                   .tile = tile,
                   .wave = wave,
                   .warp_tile = kMfmaWarpTile,
                   .slices = slices,
                   .stages = copies_tiles(target) ? 2 : 1});
  }
  return all;
}

// ---- how a problem is divided ----

// Tiles of rows of a key-value head, tiles of all of them, the parts of the keys of a tile, and the
// tiles of keys of the one that sees the most: the longest sequence's last one.
struct SplitHipPlan {
  std::int64_t tiles = 0, items = 0, parts = 1, steps = 0;
};

std::int64_t key_tiles(const Algorithm& a, const FmhaProblem& p, std::int64_t tiles) {
  const device::FmhaArguments g = arguments_of(p, {});
  const device::FmhaSequence s = {p.seqlen_q, p.seqlen_k, 0, 0};
  const std::int64_t first = (tiles - 1) * a.tile.m / (p.heads / p.heads_kv);
  const std::int64_t last = p.seqlen_q - 1;
  return p.mask == FmhaMask::none ? device::split_blocks<false>(g, s, first, last, a.tile.n).count
                                  : device::split_blocks<true>(g, s, first, last, a.tile.n).count;
}
std::int64_t own_hip_steps(const Algorithm& a) { return device::split_own_steps(a.tile.n); }

SplitHipPlan split_hip_plan(const Algorithm& a, const FmhaProblem& p) {
  SplitHipPlan plan;
  const std::int64_t rows = p.seqlen_q * (p.heads / p.heads_kv);
  plan.tiles = tile::ceil_div(rows, a.tile.m);
  plan.items = plan.tiles * p.heads_kv * p.batch;
  plan.steps = key_tiles(a, p, plan.tiles);
  const std::int64_t merge =
      device::split_merge_cost(std::min<std::int64_t>(a.tile.m, rows) * p.hdim_v * 4,
                               a.tile.n * (p.hdim + p.hdim_v) * size_of(p.in));
  plan.parts = p.num_splits == 0  ? device::split_parts(plan.items, plan.steps, a.slices, merge)
               : p.num_splits < 0 ? device::split_own_parts(plan.steps + device::kSplitSpareSteps,
                                                            own_hip_steps(a))
                                  : std::clamp<std::int64_t>(std::min(p.num_splits, plan.steps), 1,
                                                             device::kMostSplitParts);
  return plan;
}

// ---- which problems they serve ----

Verdict split_hip_serves(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  if (std::string why = mfma_reason(spec, p, target); !why.empty()) return {why};
  const std::int64_t group = p.heads / p.heads_kv;
  if (p.seqlen_q > kMostRowsOfHead / group) {
    return {fmt::format(
        "seqlen_q must be at most {} with splitkv and {} heads a key-value head, got {}",
        kMostRowsOfHead / group, group, p.seqlen_q)};
  }
  if (!has_queries(p)) return {};
  const SplitHipPlan plan = split_hip_plan(spec.algorithm, p);
  const double most = double(most_mfma_blocks(mfma_shape(signature_in(spec), spec.algorithm)));
  const double blocks = double(plan.items) * double(plan.parts);
  if (blocks <= most) return {};
  return {fmt::format("splitkv has at most {:.0f} blocks, got about {:.0f} of {} rows", most,
                      blocks, spec.algorithm.tile.m)};
}

// ---- the text and the launch ----

Source emit_split_hip(const KernelSpec& spec, const Target& target) {
  const device::MfmaFmhaShape shape = mfma_shape(signature_in(spec), spec.algorithm);
  constexpr std::array<tile::GpuEntry, 1> kMerge = {{{"_merge", "merge"}}};
  return attention_on_hip(spec, target,
                          {"fmha/mfma_fmha.h", "MfmaFmha", "MfmaFmhaArguments",
                           mfma_config(spec, target, device::mfma_fmha_teams(shape))},
                          device::mfma_fmha_threads(shape),
                          device::mfma_fmha_waves(shape) * 4 / shape.waves, kMerge);
}

Launch bind_split_hip(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                      const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  const int threads = device::mfma_fmha_threads(mfma_shape(signature_in(spec), a));
  device::MfmaFmhaArguments arguments = mfma_arguments(a, p, o);
  if (p.num_splits < 0) arguments.fmha.num_splits = -own_hip_steps(a);
  Launch launch;
  if (!has_queries(p)) {  // pages may be checked all the same
    begin_on_hip(spec, p, o, arguments, threads, launch);
    return launch;
  }
  const SplitHipPlan plan = split_hip_plan(a, p);
  arguments.tiles = static_cast<int>(plan.tiles), arguments.total = static_cast<int>(plan.items);
  arguments.parts = static_cast<int>(plan.parts);
  begin_on_hip(spec, p, o, arguments, threads, launch);
  launch.parts = plan.parts;
  const std::int64_t floats =
      plan.items * plan.parts * device::mfma_part_floats(a.tile.m, p.hdim_v);
  launch.workspace.bytes = device::kMfmaCounters + static_cast<std::size_t>(floats) * 4;
  launch.workspace.address_offset = offsetof(device::MfmaFmhaArguments, workspace);
  const std::array<unsigned, 3> block = {static_cast<unsigned>(threads), 1, 1};
  launch.steps.push(
      {.grid = {static_cast<unsigned>(plan.items * plan.parts), 1, 1}, .block = block});
  launch.steps.push({.entry = first_more_entry(spec),
                     .grid = {static_cast<unsigned>(plan.items),
                              static_cast<unsigned>(a.wave.m * p.hdim_v / 8), 1},
                     .block = block});
  return launch;
}

// ---- predicted times ----

// Guesses: nothing was measured.
constexpr double kSplitHipBandwidth = 0.8;        // of the memory's, when all units are busy
constexpr double kHipMergeSeconds = 3e-6;         // of the second launch, and
constexpr double kHipMergePartSeconds = 4e-7;     // more for each part that a wave adds up
constexpr double kHipSumBytesPerSecond = 1.5e12;  // of sums, stored and read again

Estimate estimate_split_hip(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                            int) {
  const Algorithm& a = spec.algorithm;
  const SplitHipPlan plan = split_hip_plan(a, p);
  const double units = std::max(1, target.units);
  const double blocks = double(plan.items) * double(plan.parts);
  const double seen = scores(p) / (double(p.batch) * double(p.heads) * double(p.seqlen_q));
  const double steps = std::max(1.0, std::ceil(seen / a.tile.n / double(plan.parts)));
  const double cycles =
      std::ceil(blocks / units) * (steps * cycles_of_tile(spec, p, target) + kFirstKeyCycles);
  const double share = std::min(1.0, blocks / units);
  const double memory =
      bytes(p) / (std::max(target.memory_gb_per_s, 1.0) * 1e9 * kSplitHipBandwidth * share);
  const double rows =
      std::min<double>(a.tile.m, double(p.seqlen_q) * double(p.heads) / double(p.heads_kv));
  const double sums = blocks * rows * double(p.hdim_v) * 4;
  const double merging = kHipMergeSeconds + 2 * sums / kHipSumBytesPerSecond +
                         double(plan.parts) / kSplitHipWaves * kHipMergePartSeconds;
  return tile::total_of(cycles / (std::max(target.clock_ghz, 0.1) * 1e9), memory,
                        2 * target.launch_us * 1e-6 + merging);
}

}  // namespace

const Way kSplitHip = {
    .backend = "hip",
    .pipeline = Pipeline::splitkv,
    .rules = kSplitHipRules,
    .serves = split_hip_serves,
    .algorithms = split_hip_algorithms,
    .emit = emit_split_hip,
    .bind = bind_split_hip,
    .estimate = estimate_split_hip,
    .own = {.packs_heads = true, .stage = "attend", .shared_bytes = mfma_lds_bytes}};

}  // namespace tessera::fmha
