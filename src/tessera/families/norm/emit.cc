// The text of kernels, and the arguments and steps of a launch.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/device/norm.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/blocks.h"
#include "tessera/families/tile/text.h"

namespace tessera::norm {
namespace {

constexpr std::int64_t kAligned = 16;  // bytes of a row's address for the widest loads

std::string config_text(const KernelSpec& spec) {
  const auto& s = std::get<NormSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  return fmt::format(
      "  using In = {};\n"
      "  using Weight = {};\n"
      "  using Out = {};\n"
      "  static constexpr NormKind kKind = NormKind::{};\n"
      "  static constexpr bool kScale = {}, kShift = {}, kResidual = {};\n"
      "  static constexpr int kTileN = {}, kWaveM = {}, kWaveN = {}, kSlices = {};\n",
      tile::storage_type(s.in), tile::storage_type(s.weight), tile::storage_type(s.out),
      to_string(s.kind), s.scale, s.shift, s.residual, a.tile.n, a.wave.m, a.wave.n, a.slices);
}

// A CPU runs the same steps, and takes no notice of blocks and of the workspace.
void add_steps(const Algorithm& a, const NormProblem& p, Launch& launch) {
  constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
  const int height = std::max(1, a.wave.m);
  const std::int64_t blocks = tile::blocks_of(p.rows, height);
  const std::int64_t layers = tile::blocks_of(blocks, kMostBlocks);
  Step step;
  step.grid = {static_cast<unsigned>(tile::blocks_of(blocks, layers)),
               static_cast<unsigned>(a.slices), static_cast<unsigned>(layers)};
  step.block = {static_cast<unsigned>(a.wave.n * kWarp), static_cast<unsigned>(height), 1};
  launch.steps.push(step);
  if (a.slices == 1) return;
  step.entry = 1;
  launch.steps.push(step);
  const auto slices = static_cast<std::size_t>(p.rows * a.slices);
  launch.workspace.bytes = device::kCounterBytes + slices * sizeof(device::ScaledStatistics);
  launch.workspace.address_offset = offsetof(device::NormArguments, workspace);
}

}  // namespace

Source emit(const KernelSpec& spec, const Target& target) {
  constexpr std::array<tile::GpuEntry, 2> kEntries = {{{"", "run"}, {"_result", "run_result"}}};
  const std::array<std::string, 2> ends = {"", "_result"};
  const std::size_t steps = spec.algorithm.slices > 1 ? 2 : 1;
  const tile::Template from = {"norm/norm_kernel.h", "NormKernel", "NormArguments",
                               config_text(spec)};
  if (target.backend == "cpu") {
    return tile::cpu_source(spec, target, kAbi, from, std::span(ends).first(steps));
  }
  if (target.backend == "cuda") {
    const int threads = spec.algorithm.wave.m * spec.algorithm.wave.n * kWarp;
    return tile::cuda_source(spec, kAbi, from, threads, std::span(kEntries).first(steps));
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: this build emits norm kernels for cpu and cuda targets, {} is a {} "
                          "target",
                          name_of(spec), target.name, target.backend));
}

Launch bind(const KernelSpec& spec, const Problem& problem, const Operands& operands) {
  const NormProblem p = with_strides(std::get<NormProblem>(problem));
  const auto& o = std::get<NormOperands>(operands);
  const bool is_aligned = tile::rows_aligned(family(), problem, operands, kAligned);
  Launch launch;
  launch.arguments.set(device::NormArguments{p.rows, p.columns, o.in, o.residual, o.scale, o.shift,
                                             o.out, o.sum, p.ld_in, p.ld_residual, p.ld_out,
                                             p.ld_sum, p.epsilon, is_aligned ? 1 : 0, nullptr});
  launch.max_threads = spec.algorithm.wave.m;  // CPU: 1, or 0 for as many as there are
  if (p.rows > 0 && p.columns > 0) add_steps(spec.algorithm, p, launch);
  for (const Tensor& tensor : tensors(problem)) {
    launch.pointers.push(pointer(operands, tensor.operand));
  }
  return launch;
}

}  // namespace tessera::norm
