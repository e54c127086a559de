// The general kernels: they read operands where they lie and run any valid problem.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/device/conv.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/objects.h"
#include "tessera/families/tile/text.h"

namespace tessera::conv {
namespace {

constexpr int kThreads = 128;              // of a GPU's block
constexpr Shape3 kGpuTile = {64, 64, 16};  // of the product, see View
constexpr double kCpuShare = 0.02;         // of a core's peak that the loops reach
constexpr double kGpuShare = 0.25;         // of the ordinary cores' peak
constexpr double kGpuStart = 1e-5;         // seconds of one tile, measured on an H200
constexpr double kGpuRound = 3.8e-6;       // of each further tile of a unit, besides its products

std::vector<Algorithm> algorithms(const Target& target) { return {direct_algorithm(target)}; }

constexpr tile::Rule<Case> kDirectRules[] = {
    {[](const Case& c) { return c.algorithm == direct_algorithm(c.target); },
     [](const Case& c) {
       const Algorithm &a = c.algorithm, only = direct_algorithm(c.target);
       return fmt::format("direct has tile {}, wave {} and warp tile {}, got {}, {} and {}",
                          to_string(only.tile), to_string(only.wave), to_string(only.warp_tile),
                          to_string(a.tile), to_string(a.wave), to_string(a.warp_tile));
     }},
};

// Kernels of the same types share all but the epilogue.
Source emit_cpu(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const std::string entry;
  Source source = tile::cpu_source(
      spec, target, kAbi,
      {"conv/direct_conv.h", "DirectConv", "ConvArguments", config_text(spec, "float")},
      std::span(&entry, 1));
  const std::string types = fmt::format(
      "ConvSums<ConvDirection::{}, {}, {}, {}, {}, {}>", to_string(s.direction),
      s.layout == ConvLayout::nhwgc, tile::storage_type(s.in), tile::storage_type(s.weight),
      tile::storage_type(s.out), s.acc == DType::int32 ? "int" : "float");
  const tile::CpuObject object = {
      "conv/direct_conv.h",
      {{"void", "direct_conv_run", types, "ConvFinish, const void*, const CpuThread&"}}};
  tile::add_objects(std::span(&object, 1), source);
  return source;
}

Source emit_cuda(const KernelSpec& spec, const Target&) {
  constexpr tile::GpuEntry kEntry = {"", "run"};
  return tile::cuda_source(
      spec, kAbi, {"conv/direct_conv.h", "DirectConv", "ConvArguments", config_text(spec, "tf32")},
      kThreads, std::span(&kEntry, 1));
}

// On GPUs a block for each tile of each group; a block takes further tiles where a grid ends. A
// CPU's step takes no notice of blocks.
Launch bind_any(const KernelSpec& spec, const ConvProblem& p, const Target&,
                const ConvOperands& o) {
  constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
  const Algorithm& a = spec.algorithm;
  const View view = view_of(p);
  const std::int64_t tiles =
      tile::ceil_div(view.rows, a.tile.m) * tile::ceil_div(view.columns, a.tile.n) * p.g;
  Launch launch;
  launch.arguments.set(arguments_of(p, o));
  Step step;
  step.grid = {static_cast<unsigned>(std::min(tiles, kMostBlocks)), 1, 1};
  step.block = {kThreads, 1, 1};
  launch.steps.push(step);
  return launch;
}

double share_of_tiles(const ConvProblem& p, const Shape3& tile) {
  const View view = view_of(p);
  const auto share = [](double size, double part) {
    return size / (std::ceil(size / part) * part);
  };
  return share(double(view.rows), tile.m) * share(double(view.columns), tile.n);
}

Estimate estimate_cpu(const KernelSpec&, const ConvProblem& p, const Target& target, int threads) {
  const Problem problem = p;
  const double used = units_used(threads, target);
  const Instruction* fma = find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
  const double peak = fma == nullptr ? 1e9 : peak_of(*fma, target, static_cast<int>(used));
  const double memory = bytes(problem) / tile::cpu_bandwidth(target, bytes(problem), used);
  return tile::total_of(flops(problem) / (peak * kCpuShare), memory, target.launch_us * 1e-6);
}

Estimate estimate_cuda(const KernelSpec& spec, const ConvProblem& p, const Target& target, int) {
  const Problem problem = p;
  const Instruction* fma = find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
  const double peak = fma == nullptr ? 1e12 : peak_of(*fma, target, target.units);
  const View view = view_of(p);
  const double tiles = std::ceil(double(view.rows) / spec.algorithm.tile.m) *
                       std::ceil(double(view.columns) / spec.algorithm.tile.n) * double(p.g);
  const double busy = std::min(1.0, tiles / target.units);
  const double useful = share_of_tiles(p, spec.algorithm.tile) * busy * kGpuShare;
  const double memory = bytes(problem) / (target.memory_gb_per_s * 1e9);
  const double further = std::max(0.0, tiles / target.units - 1) * kGpuRound;
  return tile::total_of(flops(problem) / (peak * useful), memory,
                        target.launch_us * 1e-6 + kGpuStart + further);
}

}  // namespace

const Way kDirectCpu = {.backend = "cpu",
                        .pipeline = Pipeline::direct,
                        .rules = kDirectRules,
                        .algorithms = algorithms,
                        .emit = emit_cpu,
                        .bind = bind_any,
                        .estimate = estimate_cpu};
const Way kDirectCuda = {.backend = "cuda",
                         .pipeline = Pipeline::direct,
                         .rules = kDirectRules,
                         .algorithms = algorithms,
                         .emit = emit_cuda,
                         .bind = bind_any,
                         .estimate = estimate_cuda};

Algorithm direct_algorithm(const Target& target) {
  if (target.backend == "hip") return hip_direct_algorithm(target);
  Algorithm a = {.pipeline = Pipeline::direct, .tile = {}, .wave = {0, 1, 1}, .warp_tile = {}};
  if (is_gpu(target)) a.tile = kGpuTile, a.wave = {2, 2, 1}, a.warp_tile = {4, 8, 1};
  return a;
}

}  // namespace tessera::conv
