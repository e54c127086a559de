// The gradients of attention on AMD GPUs for any problem: text, launch, predicted times.
// device/hip/fmha/direct_backward.h says how the kernels work, which have the rules of attention's.
#include <algorithm>
#include <array>
#include <cstddef>

#include "tessera/device/hip/fmha/backward_arguments.h"
#include "tessera/device/hip/fmha/direct_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/hip.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::fmha {
namespace {

int backward_hip_threads(const Algorithm& a, const Target& target) {
  return target.warp_size * a.wave.m;
}

// Queries with dout, or keys with values, as floats.
std::int64_t backward_hip_bytes(const FmhaSignature&, const Algorithm& a) {
  return device::hip_direct_lds_bytes(a.tile.m, a.tile.k) +
         device::hip_direct_lds_bytes(a.tile.m, most_hdim_v(a.tile.k));
}

Source emit_backward_hip(const KernelSpec& spec, const Target& target) {
  constexpr std::array<tile::GpuEntry, 4> kEntries = {
      {{"", "run"}, {"_prepare", "prepare"}, {"_dq", "dq"}, {"_dbias", "dbias"}}};
  return tile::hip_source(spec, kAbi,
                          {"fmha/direct_backward.h", "DirectBackward", "HipBackwardArguments",
                           backward_config_text(spec)},
                          backward_hip_threads(spec.algorithm, target),
                          std::span(kEntries).first(signature_in(spec).dbias ? 4 : 3));
}

Launch bind_backward_hip(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                         const FmhaOperands& o) {
  const int threads = backward_hip_threads(spec.algorithm, target);
  const BackwardHipSteps steps = backward_hip_steps(spec.algorithm.tile.m, p, target.warp_size);
  const device::HipBackwardArguments g = backward_hip_arguments(p, o, steps, threads);
  Launch launch;
  launch.arguments.set(g);
  launch.workspace.bytes = backward_hip_workspace(g, p);
  launch.workspace.address_offset = offsetof(device::HipBackwardArguments, workspace);
  add_backward_hip_step(1, steps.queries, g.queries, threads, launch);
  add_backward_hip_step(0, steps.keys, g.keys, threads, launch);
  add_backward_hip_step(2, steps.queries, g.queries, threads, launch);
  if (p.dbias) add_backward_hip_step(3, steps.biases, g.biases, threads, launch);
  return launch;
}

// Scores are made twice, and a third time for dbias.
Estimate estimate_backward_hip(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                               int) {
  const Algorithm& a = spec.algorithm;
  const double key_blocks =
      double(tile::ceil_div(p.seqlen_k, a.tile.m)) * double(p.heads_kv) * double(p.batch);
  const double query_blocks =
      double(tile::ceil_div(p.seqlen_q, a.tile.m)) * double(p.heads) * double(p.batch);
  const double both = double(p.hdim) + double(p.hdim_v);
  const double products =
      scores(p) * (2 * both + 2 * double(p.hdim) + double(p.hdim_v) + (p.dbias ? both : 0));
  const double padded = double(a.tile.k + most_hdim_v(a.tile.k)) / std::max(1.0, both);
  return hip_direct_time({.products = products,
                          .waste = 0.5 + 0.5 * padded,
                          .share = std::min(1.0, std::min(key_blocks, query_blocks) / target.units),
                          .bytes = bytes(p),
                          .steps = p.dbias ? 4.0 : 3.0},
                         target);
}

}  // namespace

BackwardHipSteps backward_hip_steps(int rows, const FmhaProblem& p, int lanes) {
  BackwardHipSteps steps = {{tile::ceil_div(p.seqlen_q, rows), p.heads, p.batch},
                            {tile::ceil_div(p.seqlen_k, rows), p.heads_kv, p.batch},
                            {0, 0, 0}};
  if (!p.dbias) return steps;
  const auto [of] =
      device::sizes_of_dbias(arguments_of(p, {}), static_cast<device::FmhaBias>(p.bias));
  const std::int64_t query_blocks = of[2] > 1 ? tile::ceil_div(of[2], rows) : of[2];
  const std::int64_t key_blocks = of[3] > 1 ? tile::ceil_div(of[3], std::int64_t{lanes}) : of[3];
  steps.biases = {query_blocks * key_blocks, of[1], of[0]};
  return steps;
}

device::HipBackwardArguments backward_hip_arguments(const FmhaProblem& p, const FmhaOperands& o,
                                                    const BackwardHipSteps& steps, int threads) {
  const auto grid = [&](const std::array<std::int64_t, 3>& blocks) -> device::HipGrid {
    const auto sides = hip_grid_of(blocks, threads);
    return {{sides[0], sides[1], sides[2]}};
  };
  device::HipBackwardArguments g{};
  g.backward = backward_arguments(p, o);
  g.queries = grid(steps.queries), g.keys = grid(steps.keys), g.biases = grid(steps.biases);
  return g;
}

std::size_t backward_hip_workspace(const device::HipBackwardArguments& g, const FmhaProblem& p) {
  const auto lengths = static_cast<device::FmhaLengths>(p.lengths);
  const std::int64_t floats = device::floats_of_rows(g.backward.forward, lengths);
  return device::kHipBackwardCounters + static_cast<std::size_t>(floats) * 4;
}

void add_backward_hip_step(std::uint8_t entry, const std::array<std::int64_t, 3>& blocks,
                           const device::HipGrid& grid, int threads, Launch& launch) {
  if (std::find(blocks.begin(), blocks.end(), 0) != blocks.end()) return;
  Step step;
  step.entry = entry;
  step.block = {static_cast<unsigned>(threads), 1, 1};
  std::copy_n(grid.side, 3, step.grid.begin());
  launch.steps.push(step);
}

Estimate backward_hip_bias_time(const FmhaProblem& p, const Target& target) {
  return hip_direct_time(
      {.products = scores(p) * double(p.hdim + p.hdim_v), .waste = 1, .share = 1, .bytes = 0},
      target);
}

const Way kBackwardHip = {.backend = "hip",
                          .pipeline = Pipeline::direct,
                          .rules = kDirectHipRules,
                          .serves = serves_heads,
                          .emit = emit_backward_hip,
                          .bind = bind_backward_hip,
                          .estimate = estimate_backward_hip,
                          .own = {.kind = FmhaKind::backward,
                                  .is_general = true,
                                  .stage = "dk dv",
                                  .shared_bytes = backward_hip_bytes}};

}  // namespace tessera::fmha
