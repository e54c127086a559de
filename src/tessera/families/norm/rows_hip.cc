// Kernels for AMD GPUs: a workgroup of waves takes whole rows, or slices of few long ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/device/cuda/abi.h"
#include "tessera/device/hip/norm/norm_arguments.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::norm {
namespace {

using tile::block_lanes;

constexpr int kHipVectorBytes = 16;     // that a lane moves at once
constexpr int kMoreLaneRegisters = 72;  // than the elements that a lane holds
// Vector instructions name so many registers without moving them.
constexpr int kNamedRegisters = 256;

constexpr double kHipStepSeconds = 2e-6;  // first bytes, last bytes
constexpr double kLanesPerCycle = 64;     // of a unit: 16 of each of its 4 SIMDs
constexpr double kOpsOfElement = 16;      // converting, both passes
constexpr double kOpsOfExp = 5;           // v_exp takes four times as long as an addition

// Elements as floats, and as they came from memory.
int lane_registers(const Algorithm& a, const Target& target) {
  return 2 * a.tile.n / (target.warp_size * std::max(1, a.wave.n)) + kMoreLaneRegisters;
}
int registers_of_lane(const Case& c) {
  return std::min(kNamedRegisters,
                  c.target.registers_per_unit / block_lanes(c.algorithm, c.target));
}
int hip_tile_unit(const Case& c) {
  return c.algorithm.wave.n * c.target.warp_size * kHipVectorBytes / size_of(c.signature.in);
}

constexpr tile::Rule<Case> kHipRules[] = {
    tile::kRowOf<Case, tile::kWarpTileOfOne>,
    tile::kRowOf<Case, kClusterOfOne>,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       const int most = c.target.max_threads_per_block;
       return w.m >= 1 && w.n >= 1 && (w.m == 1 || w.n == 1) && w.k == 1 && w.m <= most &&
              w.n <= most && block_lanes(c.algorithm, c.target) <= most;
     },
     [](const Case& c) {
       return fmt::format(
           "wave must be m x 1 x 1 or 1 x n x 1 waves of {} lanes, at most {} in all, got {}",
           c.target.warp_size, c.target.max_threads_per_block, to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       return tile_fits(c.algorithm.tile, c.algorithm.wave.m, hip_tile_unit(c));
     },
     [](const Case& c) {
       return tile_does_not_fit(c.algorithm.tile, c.algorithm.wave.m, hip_tile_unit(c));
     }},
    {[](const Case& c) { return lane_registers(c.algorithm, c.target) <= registers_of_lane(c); },
     [](const Case& c) {
       return fmt::format("needs {} registers a lane, {} has {} for each of {} lanes",
                          lane_registers(c.algorithm, c.target), c.target.name,
                          registers_of_lane(c), block_lanes(c.algorithm, c.target));
     }},
};

// A workgroup has as many rows as its waves stand for.
std::vector<Algorithm> hip_algorithms(const Target& target) {
  return rows_algorithms(target, [](const Algorithm& a) { return a.wave.m; });
}

Verdict hip_serves(const KernelSpec& spec, const NormProblem& p, const Target& target) {
  return is_cut(p) ? cut_rows_serve(spec.algorithm, p) : rows_serve(spec, p, target);
}

Source emit_hip(const KernelSpec& spec, const Target& target) {
  constexpr std::array<tile::GpuEntry, 2> kEntries = {{{"", "run"}, {"_result", "run_result"}}};
  tile::Template from = rows_template(spec);
  from.arguments = "HipNormArguments";
  const auto steps = static_cast<std::size_t>(steps_of(spec.algorithm));
  return tile::hip_source(spec, kAbi, from, block_lanes(spec.algorithm, target),
                          std::span(kEntries).first(steps));
}

// A grid has less than 2^32 lanes along x. Further rows are in layers along z.
Step step_of(const Algorithm& a, const NormProblem& p, const Target& target) {
  const std::int64_t most = std::numeric_limits<std::uint32_t>::max() / block_lanes(a, target);
  const std::int64_t blocks = tile::ceil_div(p.rows, std::int64_t{a.wave.m});
  const std::int64_t layers = tile::ceil_div(blocks, most);
  Step step;
  step.grid = {static_cast<unsigned>(tile::ceil_div(blocks, layers)),
               static_cast<unsigned>(a.slices), static_cast<unsigned>(layers)};
  step.block = {static_cast<unsigned>(block_lanes(a, target)), 1, 1};
  return step;
}

Launch bind_hip(const KernelSpec& spec, const NormProblem& p, const Target& target,
                const NormOperands& o) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  device::HipNormArguments arguments{rows_arguments(p, o), 0, device::kCounterBytes};
  if (p.rows > 0 && p.columns > 0) {
    Step step = step_of(a, p, target);
    arguments.blocks = step.grid[0];
    if (is_cut(p)) step.grid[1] = tiles_of(a, p);
    for (; step.entry < steps_of(a); ++step.entry) launch.steps.push(step);
    if (a.slices > 1) reserve_statistics(a, p, launch);
  }
  launch.arguments.set(arguments);
  for (const Tensor& tensor : tensors(p)) launch.pointers.push(pointer(o, tensor.operand));
  return launch;
}

// The longer of the lanes' work and of the traffic: no kernel was measured.
Estimate estimate_hip(const KernelSpec& spec, const NormProblem& p, const Target& target, int) {
  const Algorithm& a = spec.algorithm;
  const double blocks = std::ceil(static_cast<double>(p.rows) / a.wave.m) * a.slices *
                        (is_cut(p) ? tiles_of(a, p) : 1);
  const double columns = std::min<double>(a.tile.n, static_cast<double>(p.columns) / a.slices);
  const double bandwidth =
      tile::gpu_bandwidth(target, blocks, block_lanes(a, target), lane_registers(a, target),
                          a.wave.m * columns * size_of(p.in));
  const double again = bytes_again(a, p);
  const bool is_cached = again < 0.5 * tile::cache_bytes(target);
  const double memory = (bytes(p) + (is_cached ? again / 3 : again)) / bandwidth;
  const double each = static_cast<double>(p.columns) / a.slices;
  const double tiles = std::ceil(each / a.tile.n) * a.tile.n * a.wave.m;  // padding included
  const double ops =
      kOpsOfElement + (p.kind == NormKind::softmax || is_gated(p.kind) ? 2 * kOpsOfExp : 0);
  const double units = std::min<double>(target.units, blocks);
  const double lanes = blocks * tiles * ops / (units * kLanesPerCycle * target.clock_ghz * 1e9);
  return tile::total_of(lanes, memory, target.launch_us * 1e-6 + steps_of(a) * kHipStepSeconds);
}

}  // namespace

const Way kRowsHip = {
    .backend = "hip",
    .pipeline = Pipeline::rows,
    .rules = kHipRules,
    .serves = hip_serves,
    .algorithms = hip_algorithms,
    .emit = emit_hip,
    .bind = bind_hip,
    .estimate = estimate_hip,
    .own = {
        {.pipeline = Pipeline::rows, .tile = {1, 4096, 1}, .wave = {1, 4, 1}, .warp_tile = {}},
        {.pipeline = Pipeline::rows, .tile = {1, 4096, 1}, .wave = {1, 4, 1}, .warp_tile = {}}}};

}  // namespace tessera::norm
