// Attention on AMD GPUs for any problem: rules, text, launch, predicted times.
// device/hip/fmha/direct_fmha.h says how the kernels work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/hip/fmha/direct_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/hip.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::fmha {
namespace {

constexpr int kMostRowsOfWave = 4;  // for more of them a lane has too few registers
constexpr std::array kHipDirectHeads = {64, 128, 256, static_cast<int>(kMostHdim)};

// Guesses: nothing was measured.
constexpr double kHipUnitLanes = 64;  // which multiply and add in a cycle
constexpr double kHipShare = 0.35;    // of these products that the kernels reach
constexpr double kHipStepSeconds = 2e-6;

bool direct_hip_tile_fits(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  const int waves = c.algorithm.wave.m;
  return t.m >= 1 && t.m % waves == 0 && t.m / waves <= kMostRowsOfWave &&
         t.n == c.target.warp_size &&
         std::find(kHipDirectHeads.begin(), kHipDirectHeads.end(), t.k) != kHipDirectHeads.end();
}

std::vector<Algorithm> direct_hip_algorithms(const Target& target) {
  return tile::shapes_with(tile::space_of(Op::fmha, target), Pipeline::direct, {Shape3{}});
}

int direct_hip_threads(const Algorithm& a, const Target& target) {
  return target.warp_size * a.wave.m;
}

std::int64_t direct_hip_lds_bytes(const FmhaSignature&, const Algorithm& a) {
  return device::hip_direct_lds_bytes(a.tile.m, a.tile.k);
}

Source emit_direct_hip(const KernelSpec& spec, const Target& target) {
  return attention_on_hip(
      spec, target, {"fmha/direct_fmha.h", "DirectFmha", "HipFmhaArguments", config_text(spec)},
      direct_hip_threads(spec.algorithm, target));
}

// Blocks of queries, of heads, of the batch.
Launch bind_direct_hip(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                       const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  const int threads = direct_hip_threads(a, target);
  const std::array<unsigned, 3> grid =
      hip_grid_of({tile::ceil_div(p.seqlen_q, a.tile.m), p.heads, p.batch}, threads);
  device::HipFmhaArguments arguments{};
  arguments.attention = arguments_of(p, o);
  std::ranges::copy(grid, arguments.grid.side);
  begin_on_hip(spec, p, o, arguments, threads, launch, target.warp_size);
  if (!has_queries(p)) return launch;
  Step step;
  step.grid = grid;
  step.block = {static_cast<unsigned>(threads), 1, 1};
  launch.steps.push(step);
  return launch;
}

Estimate estimate_direct_hip(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                             int) {
  const Algorithm& a = spec.algorithm;
  const double tiles = std::ceil(double(p.seqlen_q) / a.tile.m);
  const double blocks = tiles * double(p.heads) * double(p.batch);
  // Rows of a tile that are not there take as long, and so do elements of v behind a head's end.
  const double padding = tiles * a.tile.m / double(p.seqlen_q);
  const double values = most_hdim_v(a.tile.k);
  return hip_direct_time({.products = scores(p) * double(p.hdim + p.hdim_v),
                          .waste = padding * (double(p.hdim) + values) / double(p.hdim + p.hdim_v),
                          .share = std::min(1.0, blocks / target.units),
                          .bytes = bytes(p)},
                         target);
}

}  // namespace

std::array<unsigned, 3> hip_grid_of(const std::array<std::int64_t, 3>& blocks, int threads) {
  constexpr std::int64_t kMostThreads = (std::int64_t{1} << 32) - 1;
  return grid_of({std::min(blocks[0], kMostThreads / threads), blocks[1], blocks[2]});
}

Estimate hip_direct_time(const HipDirectWork& work, const Target& target) {
  const double share = std::clamp(work.share, 1.0 / target.units, 1.0);
  const double rate = kHipUnitLanes * target.clock_ghz * 1e9 * target.units * kHipShare * share;
  return tile::total_of(work.products * work.waste / rate,
                        work.bytes / (target.memory_gb_per_s * 1e9 * share),
                        work.steps * (target.launch_us * 1e-6 + kHipStepSeconds));
}

constexpr Rule kDirectHipRules[] = {
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w == Shape3{kHipDirectWaves, 1, 1};
     },
     [](const Case& c) {
       return fmt::format("direct has {} waves over rows on AMD GPUs, wave {}x1x1, got {}",
                          kHipDirectWaves, kHipDirectWaves, to_string(c.algorithm.wave));
     }},
    tile::kRowOf<Case, tile::kWarpTileOfOne>,
    {direct_hip_tile_fits,
     [](const Case& c) {
       return fmt::format(
           "tile must be m x {} x k, m a multiple of {} waves and at most {} for each, k 64, 128, "
           "256 or {}, got {}",
           c.target.warp_size, c.algorithm.wave.m, kMostRowsOfWave, kMostHdim,
           to_string(c.algorithm.tile));
     }},
    kFitsSharedMemory,
};

const Way kDirectHip = {
    .backend = "hip",
    .pipeline = Pipeline::direct,
    .rules = kDirectHipRules,
    .serves = serves_heads,
    .algorithms = direct_hip_algorithms,
    .emit = emit_direct_hip,
    .bind = bind_direct_hip,
    .estimate = estimate_direct_hip,
    .own = {.is_general = true, .stage = "attend", .shared_bytes = direct_hip_lds_bytes}};

}  // namespace tessera::fmha
