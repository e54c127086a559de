// The gradients of attention on GPUs for any problem: text, launch, predicted times.
// device/cuda/fmha/direct_backward.h says how the kernels work, which have the rules of
// attention's.
#include <algorithm>
#include <array>
#include <cstddef>

#include "tessera/device/cuda/fmha/backward_sizes.h"
#include "tessera/device/cuda/fmha/direct_backward_arguments.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {
namespace {

constexpr double kDirectShare = 0.3;  // of the machine's products, reckoned from instructions
constexpr double kDirectStepSeconds = 2e-6;

int block_threads(const Algorithm& a) { return 32 * a.wave.m; }

std::int64_t direct_backward_bytes(const FmhaSignature& s, const Algorithm& a) {
  return device::fmha_backward_sizes(a.tile.m, a.tile.k, most_hdim_v(a.tile.k), size_of(s.in))
      .bytes;
}

Source emit_direct_backward(const KernelSpec& spec, const Target&) {
  constexpr std::array<tile::GpuEntry, 4> kEntries = {
      {{"", "run"}, {"_prepare", "prepare"}, {"_dq", "dq"}, {"_dbias", "dbias"}}};
  return tile::cuda_source(spec, kAbi,
                           {"fmha/direct_backward.h", "FmhaBackwardKernel",
                            "DirectBackwardArguments", backward_config_text(spec)},
                           block_threads(spec.algorithm),
                           std::span(kEntries).first(signature_in(spec).dbias ? 4 : 3));
}

void add_gpu_step(std::uint8_t entry, const std::array<std::int64_t, 3>& blocks, Step step,
                  Launch& launch) {
  if (std::find(blocks.begin(), blocks.end(), 0) != blocks.end()) return;
  step.entry = entry;
  step.grid = grid_of(blocks);
  launch.steps.push(step);
}

void add_gpu_steps(const KernelSpec& spec, const FmhaProblem& p,
                   const device::FmhaBackwardArguments& g, Launch& launch) {
  const Algorithm& a = spec.algorithm;
  Step step;
  step.block = {static_cast<unsigned>(block_threads(a)), 1, 1};
  step.shared_memory_bytes = static_cast<std::size_t>(direct_backward_bytes(signature_in(spec), a));
  const std::array<std::int64_t, 3> queries = {tile::ceil_div(p.seqlen_q, a.tile.m), p.heads,
                                               p.batch};
  add_gpu_step(1, queries, step, launch);
  add_gpu_step(0, {tile::ceil_div(p.seqlen_k, a.tile.n), p.heads_kv, p.batch}, step, launch);
  add_gpu_step(2, queries, step, launch);
  if (!p.dbias) return;
  const auto [of] = device::sizes_of_dbias(g.forward, static_cast<device::FmhaBias>(p.bias));
  const std::int64_t query_blocks = of[2] > 1 ? tile::ceil_div(of[2], a.tile.m) : of[2];
  const std::int64_t key_blocks = of[3] > 1 ? tile::ceil_div(of[3], a.tile.n) : of[3];
  add_gpu_step(3, {query_blocks * key_blocks, of[1], of[0]}, step, launch);
}

Launch bind_direct_backward(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                            const FmhaOperands& o) {
  Launch launch;
  const device::DirectBackwardArguments g = {backward_arguments(p, o), nullptr};
  launch.arguments.set(g);
  const auto lengths = static_cast<device::FmhaLengths>(p.lengths);
  const std::int64_t floats = device::floats_of_rows(g.backward.forward, lengths);
  launch.workspace.bytes = device::kCounterBytes + static_cast<std::size_t>(floats) * 4;
  launch.workspace.address_offset = offsetof(device::DirectBackwardArguments, workspace);
  add_gpu_steps(spec, p, g.backward, launch);
  return launch;
}

// Scores are made twice, and a third time for dbias.
Estimate estimate_direct_backward(const KernelSpec& spec, const FmhaProblem& p,
                                  const Target& target, int) {
  const Algorithm& a = spec.algorithm;
  const double heads = double(p.batch) * double(p.heads);
  const double key_blocks =
      double(tile::ceil_div(p.seqlen_k, a.tile.n)) * double(p.heads_kv) * double(p.batch);
  const double query_blocks = double(tile::ceil_div(p.seqlen_q, a.tile.m)) * heads;
  const double share =
      std::clamp(std::min(key_blocks, query_blocks) / target.units, 1.0 / target.units, 1.0);
  const double both = double(p.hdim) + double(p.hdim_v);
  const double products =
      scores(p) * (2 * both + 2 * double(p.hdim) + double(p.hdim_v) + (p.dbias ? both : 0));
  // The padding of heads is added up, too.
  const double waste = double(a.tile.k + most_hdim_v(a.tile.k)) / std::max(1.0, both);
  const double rate = product_rate(target, DType::fp32) * target.units * kDirectShare * share;
  const double steps = p.dbias ? 4 : 3;
  return tile::total_of(products / rate * (0.5 + 0.5 * waste),
                        bytes(p) / (target.memory_gb_per_s * 1e9),
                        steps * (target.launch_us * 1e-6 + kDirectStepSeconds));
}

}  // namespace

const Way kBackwardDirectGpu = {.backend = "cuda",
                                .pipeline = Pipeline::direct,
                                .rules = kDirectGpuRules,
                                .serves = serves_heads,
                                .emit = emit_direct_backward,
                                .bind = bind_direct_backward,
                                .estimate = estimate_direct_backward,
                                .own = {.kind = FmhaKind::backward,
                                        .is_general = true,
                                        .stage = "dk dv",
                                        .shared_bytes = direct_backward_bytes}};

}  // namespace tessera::fmha
