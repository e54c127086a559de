// The general kernel for AMD GPUs: it reads operands where they lie and runs any valid problem.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/device/hip/conv/direct_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/families/tile/text.h"

namespace tessera::conv {
namespace {

// A lane has one result. The waves of a workgroup share its products: many where a few results have
// many, as gradients by filters do.
constexpr Shape3 kFewWaves = {1, 1, 4}, kManyWaves = {1, 1, 16};
Algorithm direct_by(const Shape3& wave, const Target& target) {
  return {.pipeline = Pipeline::direct,
          .tile = {target.warp_size, 1, 1},
          .wave = wave,
          .warp_tile = {}};
}

constexpr double kProductCycles = 16;      // of a SIMD: two loads, their places, one product
constexpr double kPlaceCycles = 3000;      // of a wave: where its results lie
constexpr double kProductLatency = 250;    // cycles, of a load among several under way
constexpr double kSimds = 4;               // of a unit
constexpr double kWavesOfSimd = 8;         // at most
constexpr double kReachedBandwidth = 0.8;  // of the nominal one

std::vector<Algorithm> hip_algorithms(const Target& target) {
  return {direct_by(kFewWaves, target), direct_by(kManyWaves, target)};
}

bool is_eight_bits(DType dtype) { return dtype == DType::fp8 || dtype == DType::bf8; }

constexpr tile::Rule<Case> kHipDirectRules[] = {
    {[](const Case& c) {
       return c.algorithm == direct_by(kFewWaves, c.target) ||
              c.algorithm == direct_by(kManyWaves, c.target);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("direct has tile {}, wave {} or {} and warp tile {}, got {}, {} and {}",
                          to_string(Shape3{c.target.warp_size, 1, 1}), to_string(kFewWaves),
                          to_string(kManyWaves), to_string(Shape3{}), to_string(a.tile),
                          to_string(a.wave), to_string(a.warp_tile));
     }},
    {[](const Case& c) {
       return !is_eight_bits(c.signature.in) ||
              find_instruction(c.target, c.signature.in, c.signature.in, DType::fp32) != nullptr;
     },
     [](const Case& c) {
       return fmt::format("{} has no {}", c.target.name, to_string(c.signature.in));
     }},
};

Source emit_direct_hip(const KernelSpec& spec, const Target& target) {
  constexpr tile::GpuEntry kEntry = {"", "run"};
  return tile::hip_source(
      spec, kAbi,
      {"conv/direct_conv.h", "DirectConv", "HipDirectConvArguments", config_text(spec, "tf32")},
      tile::block_lanes(spec.algorithm, target), std::span(&kEntry, 1));
}

// Results and, for each of them, products: as many as there are without borders.
struct Work {
  std::int64_t results;
  double products;
};
Work work_of(const ConvProblem& p) {
  const View view = view_of(p);
  return {view.rows * view.columns * p.g, static_cast<double>(view.depth)};
}

Launch bind_direct_hip(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                       const ConvOperands& o) {
  const int lanes = tile::block_lanes(spec.algorithm, target);
  const std::int64_t most = std::numeric_limits<std::uint32_t>::max() / lanes;
  const std::int64_t blocks =
      std::min(tile::ceil_div(work_of(p).results, std::int64_t{spec.algorithm.tile.m}), most);
  Launch launch;
  launch.arguments.set(device::HipDirectConvArguments{arguments_of(p, o), blocks});
  Step step;
  step.grid = {static_cast<unsigned>(blocks), 1, 1};
  step.block = {static_cast<unsigned>(lanes), 1, 1};
  launch.steps.push(step);
  return launch;
}

// The longest of memory, of the instructions of all waves, and of one wave's loads, which wait for
// each other where there are few waves. No kernel was measured.
Estimate estimate_direct_hip(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                             int) {
  const Problem problem = p;
  const Work work = work_of(p);
  const double waves = spec.algorithm.wave.k;
  const double blocks = std::ceil(static_cast<double>(work.results) / spec.algorithm.tile.m);
  const double share = std::ceil(work.products / waves);  // of a wave
  const double hertz = target.clock_ghz * 1e9;
  const double cycles = blocks * waves * (share * kProductCycles + kPlaceCycles) / kSimds;
  const double rounds =
      std::ceil(blocks * waves / (target.units * kSimds * kWavesOfSimd));  // of waves at a time
  const double busy = std::min<double>(target.units, blocks);
  const double compute =
      std::max(cycles / busy, rounds * (share * kProductLatency + kPlaceCycles)) / hertz;
  const double memory = bytes(problem) / (target.memory_gb_per_s * 1e9 * kReachedBandwidth);
  return tile::total_of(compute, memory, target.launch_us * 1e-6);
}

}  // namespace

Algorithm hip_direct_algorithm(const Target& target) { return direct_by(kFewWaves, target); }

const Way kDirectHip = {.backend = "hip",
                        .pipeline = Pipeline::direct,
                        .rules = kHipDirectRules,
                        .algorithms = hip_algorithms,
                        .emit = emit_direct_hip,
                        .bind = bind_direct_hip,
                        .estimate = estimate_direct_hip};

}  // namespace tessera::conv
