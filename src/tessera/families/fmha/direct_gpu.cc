// Attention on GPUs for any problem: rules, text, launch, predicted times.
// device/cuda/fmha/direct_fmha.h says how the kernels work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/cuda/fmha/direct_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::fmha {
namespace {

constexpr int kMostRows = 4096;
constexpr int kLaneKeys = 32;  // a lane for each key of a block
constexpr std::array kDirectHeads = {64, 128, 256, static_cast<int>(kMostHdim)};
constexpr double kGpuStepSeconds = 2e-6;
constexpr double kGpuShare = 0.35;  // of the machine's products that it reaches

bool direct_tile_fits(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  return t.m >= 1 && t.m <= kMostRows && t.n == kLaneKeys && t.m % c.algorithm.wave.m == 0 &&
         std::find(kDirectHeads.begin(), kDirectHeads.end(), t.k) != kDirectHeads.end();
}

std::vector<Algorithm> direct_algorithms(const Target& target) {
  return tile::shapes_with(tile::space_of(Op::fmha, target), Pipeline::direct, {Shape3{}});
}

int direct_threads(const Algorithm& a) { return 32 * a.wave.m; }

std::int64_t direct_shared_bytes(const FmhaSignature& s, const Algorithm& a) {
  return device::fmha_direct_shared_bytes(a.tile.m, a.tile.k, most_hdim_v(a.tile.k),
                                          size_of(kv_type(s)));
}

Source emit_direct_gpu(const KernelSpec& spec, const Target&) {
  return attention_on_gpu(spec,
                          {"fmha/direct_fmha.h", "FmhaKernel", "FmhaArguments", config_text(spec)},
                          direct_threads(spec.algorithm));
}

// Blocks of queries, of heads, of the batch.
Launch bind_direct_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                       const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  add_first_steps(spec, p, direct_threads(a), launch);
  set_arguments(arguments_of(p, o), p, o, launch);
  if (!has_queries(p)) return launch;
  Step step;
  step.grid = grid_of({tile::ceil_div(p.seqlen_q, a.tile.m), p.heads, p.batch});
  step.block = {static_cast<unsigned>(direct_threads(a)), 1, 1};
  step.shared_memory_bytes = static_cast<std::size_t>(direct_shared_bytes(signature_in(spec), a));
  launch.steps.push(step);
  return launch;
}

Estimate estimate_direct_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                             int) {
  const Algorithm& a = spec.algorithm;
  const double blocks =
      std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.heads) * double(p.batch);
  const double share = std::min(1.0, blocks / target.units);
  // The padding of heads is loaded, the products stop at the heads' ends.
  const double waste = double(a.tile.k + most_hdim_v(a.tile.k)) / double(p.hdim + p.hdim_v);
  const double rate = product_rate(target, DType::fp32) * target.units * kGpuShare * share;
  // Rows of a tile that are not there take as long, and so do keys of a step: a lane has one.
  const double padding = std::ceil(double(p.seqlen_q) / a.tile.m) * a.tile.m / double(p.seqlen_q);
  const double rows = double(p.batch) * double(p.heads) * double(p.seqlen_q);
  const double pairs = std::max(scores(p), rows * kLaneKeys) * padding;
  const double products = pairs * double(p.hdim + p.hdim_v);
  const double compute = products / rate * (0.9 + 0.1 * waste);
  const double memory = bytes(p) / (target.memory_gb_per_s * 1e9 * share);
  return tile::total_of(compute, memory, target.launch_us * 1e-6 + kGpuStepSeconds);
}

}  // namespace

constexpr Rule kDirectGpuRules[] = {
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m >= 1 && w.m * 32 <= c.target.max_threads_per_block && w.n == 1 && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format("wave must be m x 1 x 1 warps of 32 threads, at most {} threads, got {}",
                          c.target.max_threads_per_block, to_string(c.algorithm.wave));
     }},
    tile::kRowOf<Case, tile::kWarpTileOfOne>,
    {direct_tile_fits,
     [](const Case& c) {
       return fmt::format(
           "tile must be m x {} x k, m a multiple of {} warps, k 64, 128, 256 or {}, got {}",
           kLaneKeys, c.algorithm.wave.m, kMostHdim, to_string(c.algorithm.tile));
     }},
    kFitsSharedMemory,
};

const Way kDirectGpu = {
    .backend = "cuda",
    .pipeline = Pipeline::direct,
    .rules = kDirectGpuRules,
    .serves = serves_heads,
    .algorithms = direct_algorithms,
    .emit = emit_direct_gpu,
    .bind = bind_direct_gpu,
    .estimate = estimate_direct_gpu,
    .own = {.is_general = true, .stage = "attend", .shared_bytes = direct_shared_bytes}};

}  // namespace tessera::fmha
