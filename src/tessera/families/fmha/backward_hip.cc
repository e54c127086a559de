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

int backward_hip_threads(const Algorithm& a) { return kHipLanes * a.wave.m; }

// Queries with dout, or keys with values, as floats.
std::int64_t backward_hip_bytes(const FmhaSignature&, const Algorithm& a) {
  return device::hip_direct_lds_bytes(a.tile.m, a.tile.k) +
         device::hip_direct_lds_bytes(a.tile.m, most_hdim_v(a.tile.k));
}

Source emit_backward_hip(const KernelSpec& spec, const Target&) {
  constexpr std::array<tile::GpuEntry, 4> kEntries = {
      {{"", "run"}, {"_prepare", "prepare"}, {"_dq", "dq"}, {"_dbias", "dbias"}}};
  return tile::hip_source(spec, kAbi,
                          {"fmha/direct_backward.h", "DirectBackward", "HipBackwardArguments",
                           backward_config_text(spec)},
                          backward_hip_threads(spec.algorithm),
                          std::span(kEntries).first(signature_in(spec).dbias ? 4 : 3));
}

// Blocks of an entry, along the sides of its grid.
using HipBlocks = std::array<std::int64_t, 3>;
struct BackwardHipBlocks {
  HipBlocks queries, keys, biases;
};
BackwardHipBlocks backward_hip_blocks(const Algorithm& a, const FmhaProblem& p,
                                      const device::FmhaArguments& g) {
  BackwardHipBlocks blocks = {{tile::ceil_div(p.seqlen_q, a.tile.m), p.heads, p.batch},
                              {tile::ceil_div(p.seqlen_k, a.tile.m), p.heads_kv, p.batch},
                              {0, 0, 0}};
  if (!p.dbias) return blocks;
  const auto [of] = device::sizes_of_dbias(g, static_cast<device::FmhaBias>(p.bias));
  const std::int64_t query_blocks = of[2] > 1 ? tile::ceil_div(of[2], a.tile.m) : of[2];
  const std::int64_t key_blocks = of[3] > 1 ? tile::ceil_div(of[3], a.tile.n) : of[3];
  blocks.biases = {query_blocks * key_blocks, of[1], of[0]};
  return blocks;
}

void add_backward_hip_step(std::uint8_t entry, const HipBlocks& blocks, const device::HipGrid& grid,
                           int threads, Launch& launch) {
  if (std::find(blocks.begin(), blocks.end(), 0) != blocks.end()) return;
  Step step;
  step.entry = entry;
  step.block = {static_cast<unsigned>(threads), 1, 1};
  std::copy_n(grid.side, 3, step.grid.begin());
  launch.steps.push(step);
}

Launch bind_backward_hip(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                         const FmhaOperands& o) {
  const int threads = backward_hip_threads(spec.algorithm);
  const auto grid = [&](const HipBlocks& blocks) -> device::HipGrid {
    const auto sides = hip_grid_of(blocks, threads);
    return {{sides[0], sides[1], sides[2]}};
  };
  device::HipBackwardArguments g{};
  g.backward = backward_arguments(p, o);
  const BackwardHipBlocks blocks = backward_hip_blocks(spec.algorithm, p, g.backward.forward);
  g.queries = grid(blocks.queries), g.keys = grid(blocks.keys), g.biases = grid(blocks.biases);
  Launch launch;
  launch.arguments.set(g);
  const auto lengths = static_cast<device::FmhaLengths>(p.lengths);
  const std::int64_t floats = device::floats_of_rows(g.backward.forward, lengths);
  launch.workspace.bytes = device::kHipBackwardCounters + static_cast<std::size_t>(floats) * 4;
  launch.workspace.address_offset = offsetof(device::HipBackwardArguments, workspace);
  add_backward_hip_step(1, blocks.queries, g.queries, threads, launch);
  add_backward_hip_step(0, blocks.keys, g.keys, threads, launch);
  add_backward_hip_step(2, blocks.queries, g.queries, threads, launch);
  if (p.dbias) add_backward_hip_step(3, blocks.biases, g.biases, threads, launch);
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
