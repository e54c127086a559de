// The gradients of attention: counts, kernels, their text and launch, predicted times.
#include "tessera/families/fmha/backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "tessera/device/cpu/fmha/backward_work.h"
#include "tessera/device/cuda/fmha/backward_sizes.h"
#include "tessera/device/cuda/fmha/direct_backward_arguments.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/backward_gpu.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/blocks.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {
namespace {

// The cycles that a vector of scores takes for its exponentials, gradients and transposition.
constexpr double kCyclesOfGradients = 16;
constexpr double kCyclesOfPackedTokens = 16;  // of a vector of queries or gradients of outputs
constexpr double kCyclesOfBytes = 24;         // of a vector of scores, for dropout

constexpr double kDirectShare = 0.3;  // of the machine's products, reckoned from instructions
constexpr double kDirectStepSeconds = 2e-6;

// Types without an instruction are multiplied as fp32.
double rate_of(const Target& target, DType in) {
  const bool has_own = find_instruction(target, in, in, DType::fp32) != nullptr;
  return product_rate(target, has_own ? in : DType::fp32);
}

std::int64_t parts_of(const Algorithm& a, const FmhaProblem& p) {
  const double floats = double(p.seqlen_q) * double(p.heads) / double(p.heads_kv) * double(p.hdim);
  return device::backward_parts(p.batch * p.heads_kv, tile::blocks_of(p.seqlen_k, a.tile.m),
                                static_cast<std::int64_t>(std::min(floats, 1e18)));
}

// ---- GPUs ----

int gpu_threads(const Algorithm& a) { return 32 * a.wave.m; }

Source emit_on_gpu(const KernelSpec& spec, const FmhaSignature& s, const std::string& config) {
  constexpr std::array<tile::GpuEntry, 4> kEntries = {
      {{"", "run"}, {"_prepare", "prepare"}, {"_dq", "dq"}, {"_dbias", "dbias"}}};
  return tile::cuda_source(
      spec, kAbi,
      {"fmha/direct_backward.h", "FmhaBackwardKernel", "DirectBackwardArguments", config},
      gpu_threads(spec.algorithm), std::span(kEntries).first(s.dbias ? 4 : 3));
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
  step.block = {static_cast<unsigned>(gpu_threads(a)), 1, 1};
  step.shared_memory_bytes = static_cast<std::size_t>(
      device::fmha_backward_sizes(a.tile.m, a.tile.k, most_hdim_v(a.tile.k), size_of(p.in)).bytes);
  const std::array<std::int64_t, 3> queries = {tile::blocks_of(p.seqlen_q, a.tile.m), p.heads,
                                               p.batch};
  add_gpu_step(1, queries, step, launch);
  add_gpu_step(0, {tile::blocks_of(p.seqlen_k, a.tile.n), p.heads_kv, p.batch}, step, launch);
  add_gpu_step(2, queries, step, launch);
  if (!p.dbias) return;
  const auto [of] = device::sizes_of_dbias(g.forward);
  const std::int64_t query_blocks = of[2] > 1 ? tile::blocks_of(of[2], a.tile.m) : of[2];
  const std::int64_t key_blocks = of[3] > 1 ? tile::blocks_of(of[3], a.tile.n) : of[3];
  add_gpu_step(3, {query_blocks * key_blocks, of[1], of[0]}, step, launch);
}

void bind_on_gpu(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                 Launch& launch) {
  const device::DirectBackwardArguments g = {backward_arguments(p, o), nullptr};
  launch.arguments.set(g);
  const auto lengths = static_cast<device::FmhaLengths>(p.lengths);
  const std::int64_t floats = device::floats_of_rows(g.backward.forward, lengths);
  launch.workspace.bytes = device::kCounterBytes + static_cast<std::size_t>(floats) * 4;
  launch.workspace.address_offset = offsetof(device::DirectBackwardArguments, workspace);
  add_gpu_steps(spec, p, g.backward, launch);
}

// Scores are made twice, and a third time for dbias.
Estimate estimate_on_gpu(const Algorithm& a, const FmhaProblem& p, const Target& target) {
  const double heads = double(p.batch) * double(p.heads);
  const double key_blocks =
      double(tile::blocks_of(p.seqlen_k, a.tile.n)) * double(p.heads_kv) * double(p.batch);
  const double query_blocks = double(tile::blocks_of(p.seqlen_q, a.tile.m)) * heads;
  const double share =
      std::clamp(std::min(key_blocks, query_blocks) / target.units, 1.0 / target.units, 1.0);
  const double both = double(p.hdim) + double(p.hdim_v);
  const double products =
      scores(p) * (2 * both + 2 * double(p.hdim) + double(p.hdim_v) + (p.dbias ? both : 0));
  // The padding of heads is added up, too.
  const double waste = double(a.tile.k + most_hdim_v(a.tile.k)) / std::max(1.0, both);
  const double rate = rate_of(target, DType::fp32) * target.units * kDirectShare * share;
  const double steps = p.dbias ? 4 : 3;
  return tile::total_of(products / rate * (0.5 + 0.5 * waste),
                        bytes(p) / (target.memory_gb_per_s * 1e9),
                        steps * (target.launch_us * 1e-6 + kDirectStepSeconds));
}

}  // namespace

device::FmhaBackwardArguments backward_arguments(const FmhaProblem& p, const FmhaOperands& o) {
  device::FmhaBackwardArguments g{};
  g.forward = arguments_of(p, o);
  g.dout = o.dout, g.dq = o.dq, g.dk = o.dk, g.dv = o.dv, g.dbias = o.dbias;
  copy_strides(p.dout_strides, g.dout_stride), copy_strides(p.dq_strides, g.dq_stride);
  copy_strides(p.dk_strides, g.dk_stride), copy_strides(p.dv_strides, g.dv_stride);
  if (p.lengths == FmhaLengths::packed) {
    for (device::i64* stride : {g.dout_stride, g.dq_stride, g.dk_stride, g.dv_stride}) {
      stride[device::kTokenBatch] = 0;
    }
  }
  return g;
}

// Five products: of q and k, of dout and v, and those that give dq, dk and dv.
double backward_flops(const FmhaProblem& p) {
  return 2 * scores(p) * (3 * double(p.hdim) + 2 * double(p.hdim_v));
}

std::vector<FmhaSignature> backward_signatures(const std::vector<FmhaSignature>& forward) {
  std::vector<FmhaSignature> all;
  for (FmhaSignature s : forward) {
    if (s.lse || is_eight_bits(s.in)) continue;
    s.kind = FmhaKind::backward;
    all.push_back(s);
    s.dbias = true;
    if (s.bias == FmhaBias::elementwise) all.push_back(s);
  }
  return all;
}

Source emit_backward(const KernelSpec& spec, const Target& target) {
  if (spec.algorithm.pipeline == Pipeline::tmaws) return emit_flash_backward(spec);
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const std::string config =
      config_text(spec) + fmt::format("  static constexpr bool kDbias = {};\n", s.dbias);
  if (is_gpu(target)) return emit_on_gpu(spec, s, config);
  const std::array<std::string, 1> ends = {""};
  Source source = tile::cpu_source(
      spec, target, kAbi,
      {"fmha/flash_backward.h", "FmhaBackwardKernel", "FmhaBackwardArguments", config}, ends);
  tile::add_objects(product_objects(spec, target), source);
  return source;
}

void bind_backward(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                   Launch& launch) {
  if (spec.algorithm.pipeline == Pipeline::tmaws) return bind_flash_backward(spec, p, o, launch);
  if (spec.algorithm.pipeline == Pipeline::direct) return bind_on_gpu(spec, p, o, launch);
  launch.arguments.set(backward_arguments(p, o));
  launch.steps.push({});
  launch.parts = parts_of(spec.algorithm, p);
}

Estimate estimate_backward(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                           int threads) {
  if (spec.algorithm.pipeline == Pipeline::tmaws) return estimate_flash_backward(spec, p, target);
  if (is_gpu(target)) return estimate_on_gpu(spec.algorithm, p, target);
  const Algorithm& a = spec.algorithm;
  const double pairs = double(p.batch) * double(p.heads_kv), seen = scores(p);
  const int limit = units_used(threads, target);
  if (seen == 0) return tile::total_of(0, bytes(p) / 1e9, target.launch_us * 1e-6);
  const double lanes = std::max(1, target.vector_bytes / 4);
  const double items = pairs * double(parts_of(a, p));
  const double used = std::clamp<double>(limit, 1, std::max(1.0, items));
  const double idle = std::ceil(items / used) * used / items;
  // Keys behind the last one of a block, and what a mask cuts from blocks, are multiplied, too.
  const double keys = std::max(1.0, double(p.seqlen_k));
  const double padding = std::ceil(keys / a.warp_tile.m) * a.warp_tile.m / keys;
  const double cut = p.mask == FmhaMask::none
                         ? 0
                         : double(p.batch) * double(p.heads) * double(p.seqlen_q) * a.tile.n / 2;
  const double elements = 3 * double(p.hdim) + 2 * double(p.hdim_v);
  const double passes = p.dbias ? 1 + (double(p.hdim) + double(p.hdim_v)) / elements : 1;
  const double products = (seen + cut) * elements * padding * passes;
  const double packed = seen / std::min<double>(a.tile.m, keys) * 2 * double(p.hdim + p.hdim_v);
  const double cycles = (seen * (kCyclesOfGradients + (p.p_drop == 0 ? 0 : kCyclesOfBytes)) +
                         packed * kCyclesOfPackedTokens) *
                        passes / lanes;
  const double compute =
      (products / rate_of(target, p.in) + cycles / (target.clock_ghz * 1e9)) * idle / used;
  return tile::total_of(compute, bytes(p) / tile::cpu_bandwidth(target, bytes(p), used),
                        used > 1 ? target.launch_us * 1e-6 : 1e-7);
}

}  // namespace tessera::fmha
