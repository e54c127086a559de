// Predicted times: products over rates, bytes over bandwidth, and what is paid once.
#include <algorithm>
#include <cmath>

#include "tessera/device/cpu/fmha/flash_parts.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/backward.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_gpu.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/split_gpu.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::fmha {
namespace {

// Reckoned from instructions and the prototype's share, except for packing: tiles of 24, 96 and 192
// rows side by side on an AMD EPYC (Zen 4) at work gave 12 to 17 cycles for three shapes.
constexpr double kCyclesOfScores = 8;  // CPU: of a vector, for its exponentials and what is around
constexpr double kCyclesOfPacking = 16;  // CPU: of a vector of keys or values
constexpr double kFewRowsShare = 0.5;    // CPU: of the products that few rows in place reach
constexpr double kCyclesOfDropout = 2;   // CPU: of a score's random byte, measured with 64 keys
constexpr double kGpuStepSeconds = 2e-6;
constexpr double kGpuShare = 0.35;    // direct: of the machine's products that it reaches
constexpr double kTensorShare = 0.7;  // tmaws: the same, of the tensor cores
// tmaws with heads of 64 elements on an H200: 3 consumers were 1.02 to 1.04 times as fast as 2
// without a mask although 3% more rows were padding, and slower with a mask. With lengths of their
// own they have no registers left.
constexpr double kThirdConsumer = 1.07, kThirdOtherwise = 0.96;
// tmaws with dropout, reckoned from instructions: random bits take about as many as all else.
constexpr double kDropoutTensorShare = 0.4;
constexpr double kMmaShare = 0.2;  // splitkv: the same, which mma.sync reaches beside its loads
constexpr double kSplitBandwidth = 0.85;       // splitkv: of the memory's, when all units are busy
constexpr double kSplitL2Bytes = 26;           // splitkv: of a cycle and unit, from L2
constexpr double kStepCycles = 400;            // splitkv: of a block of keys, and
constexpr double kElementCycles = 0.25;        // more for each of its elements
constexpr double kLatentShare = 0.5;           // splitkv of latent attention: by wgmma
constexpr double kLatentCycles = 1400;         // and of a block of keys, by reads of shared memory
constexpr double kPartSeconds = 1.5e-6;        // splitkv: a block's begin and end
constexpr double kMergeBytesPerSecond = 30e9;  // splitkv: of the block that merges

// Blocks of rows of which each packs the keys and values that it sees.
double blocks_of(const Algorithm& a, const FmhaProblem& p) {
  const std::int64_t group = p.heads / p.heads_kv;
  const double rows = double(p.seqlen_q) * double(group);
  return std::ceil(rows / a.tile.m) * double(p.heads_kv) * double(p.batch);
}

// Scores that a mask takes away from a register block, which is multiplied whole.
double cut_scores(const Algorithm& a, const FmhaProblem& p) {
  if (p.mask == FmhaMask::none) return 0;
  const double queries =
      std::min(double(p.seqlen_q), double(a.warp_tile.m) * double(p.heads_kv) / double(p.heads));
  return double(p.batch) * double(p.heads) * double(p.seqlen_q) * std::max(1.0, queries) / 2;
}

Estimate estimate_cpu(const Algorithm& a, const FmhaProblem& p, const Target& target, int limit) {
  const double lanes = std::max(1, target.vector_bytes / 4);
  const double blocks = blocks_of(a, p);
  const auto parts = static_cast<double>(flash_cpu_parts(a, p));
  const double used = std::min<double>(limit, blocks * parts);
  const double idle = std::ceil(blocks * parts / used) * used / (blocks * parts);  // at the end
  const double rows = double(p.heads) * double(p.seqlen_q) * double(p.batch);
  const double own =
      double(p.seqlen_q) * double(p.heads) / double(p.heads_kv);  // of a key-value head
  const bool in_place = own <= device::kFlashFewRows;
  const double padding =
      in_place ? 1 / kFewRowsShare : std::ceil(own / a.warp_tile.m) * a.warp_tile.m / own;
  const double multiplied = scores(p) + cut_scores(a, p);
  const double elements = double(p.hdim) + std::ceil(double(p.hdim_v) / lanes) * lanes;
  const double products = multiplied * elements;
  const double seen = multiplied / std::max(1.0, rows);  // keys of a row
  const double packed = in_place ? 0 : blocks * seen * elements / lanes;
  const double dropout = p.p_drop == 0 ? 0 : scores(p) * kCyclesOfDropout;
  const double cycles = scores(p) / lanes * kCyclesOfScores + packed * kCyclesOfPacking + dropout;
  const bool in_pairs = !in_place && find_instruction(target, p.in, p.in, DType::fp32) != nullptr;
  const double rate = product_rate(target, in_pairs ? p.in : DType::fp32);
  const double compute =
      (products * padding / rate + cycles / (target.clock_ghz * 1e9)) * idle / used;
  const double memory = bytes(p) / tile::cpu_bandwidth(target, bytes(p), used);
  return tile::total_of(compute, memory, used > 1 ? target.launch_us * 1e-6 : 1e-7);
}

// Keys of a block are multiplied whole where the mask cuts it.
Estimate estimate_flash_gpu(const Algorithm& a, const FmhaProblem& p, const Target& target) {
  const double tiles = std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.heads) * double(p.batch);
  const double rounds = std::ceil(tiles / target.units) * target.units / tiles;
  const double padding = std::ceil(double(p.seqlen_q) / a.tile.m) * a.tile.m / double(p.seqlen_q);
  const double cut = p.mask == FmhaMask::none ? 0 : tiles * a.tile.m * a.tile.n / 2;
  // Values of 8 bits are multiplied as fp16.
  const DType of_values = is_eight_bits(p.in) ? DType::fp16 : p.in;
  const double rate_of_values = product_rate(target, of_values);
  const double elements =
      a.tile.k * rate_of_values / product_rate(target, p.in) + flash_gpu_hdim_v(a.tile.k);
  const double products = (scores(p) * padding + cut) * elements;
  const bool suits = p.mask == FmhaMask::none && p.lengths == FmhaLengths::equal;
  const double third = a.wave.m < 3 ? 1 : suits ? kThirdConsumer : kThirdOtherwise;
  const double share = p.p_drop == 0 ? kTensorShare : kDropoutTensorShare;
  const double rate = rate_of_values * target.units * share * third;
  const double memory = bytes(p) / (target.memory_gb_per_s * 1e9);
  return tile::total_of(products / rate * rounds, memory,
                        target.launch_us * 1e-6 + kGpuStepSeconds);
}

// Keys and values come from memory once; the tiles of a key-value head read them in L2. Blocks run
// `slices` at a time, and half as many, one for each unit, are enough for the memory. Each takes
// its blocks of keys one after the other. The blocks of a tile store the sums of a part and read as
// many, or a tile's last one reads the sums of all its parts.
Estimate estimate_split_gpu(const Algorithm& a, const FmhaProblem& p, const Target& target) {
  const SplitPlan plan = split_gpu_plan(a, p);
  const double hertz = target.clock_ghz * 1e9;
  const double blocks = double(plan.items) * double(plan.parts);
  const double rounds = std::ceil(blocks / a.slices);
  const double share = blocks / (rounds * a.slices);
  const double seen = scores(p) / (double(p.batch) * double(p.heads) * double(p.seqlen_q));
  const double products =
      double(plan.items) * a.tile.m * seen * double(a.tile.k + most_hdim_v(a.tile.k));
  const double compute = products / (product_rate(target, p.in) * target.units *
                                     (is_latent(a) ? kLatentShare : kMmaShare));
  const double elements = double(p.hdim) + (p.v_in_k ? 0 : double(p.hdim_v));
  const double read = double(plan.items) * seen * elements * size_of(p.in);
  const double memory = std::max(bytes(p) / (target.memory_gb_per_s * 1e9 * kSplitBandwidth),
                                 read / (kSplitL2Bytes * hertz * target.units));
  const double steps = std::ceil(seen / (double(a.tile.n) * a.wave.n * double(plan.parts)));
  const double step_cycles =
      is_latent(a) ? kLatentCycles : kStepCycles + kElementCycles * a.tile.n * a.tile.k;
  const double chain = rounds * steps * step_cycles / hertz;
  const double rows =
      std::min<double>(a.tile.m, double(p.seqlen_q) * double(p.heads) / double(p.heads_kv));
  const double merged = blocks <= a.slices ? 2 : double(plan.parts);  // parts that a block reads
  const double merging =
      plan.parts == 1 ? 0 : merged * rows * double(p.hdim_v) * 4 / kMergeBytesPerSecond;
  return tile::total_of(std::max(compute / share, chain),
                        memory / (rounds > 1 ? share : std::min(1.0, 2 * share)),
                        target.launch_us * 1e-6 + rounds * kPartSeconds + merging);
}

Estimate estimate_gpu(const Algorithm& a, const FmhaProblem& p, const Target& target) {
  const double blocks =
      std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.heads) * double(p.batch);
  const double share = std::min(1.0, blocks / target.units);
  // The padding of heads is loaded, the products stop at the heads' ends.
  const double waste = double(a.tile.k + most_hdim_v(a.tile.k)) / double(p.hdim + p.hdim_v);
  const double rate = product_rate(target, DType::fp32) * target.units * kGpuShare * share;
  // Rows of a tile that are not there take as long.
  const double padding = std::ceil(double(p.seqlen_q) / a.tile.m) * a.tile.m / double(p.seqlen_q);
  const double products = scores(p) * padding * double(p.hdim + p.hdim_v);
  const double compute = products / rate * (0.9 + 0.1 * waste);
  const double memory = bytes(p) / (target.memory_gb_per_s * 1e9 * share);
  return tile::total_of(compute, memory, target.launch_us * 1e-6 + kGpuStepSeconds);
}

// The problem has its strides.
Estimate estimate_attention(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                            int threads) {
  if (spec.algorithm.pipeline == Pipeline::tmaws) {
    return estimate_flash_gpu(spec.algorithm, p, target);
  }
  if (spec.algorithm.pipeline == Pipeline::splitkv) {
    return estimate_split_gpu(spec.algorithm, p, target);
  }
  if (is_gpu(target)) return estimate_gpu(spec.algorithm, p, target);
  return estimate_cpu(spec.algorithm, p, target, units_used(threads, target));
}

// Two steps of a launch.
Estimate one_after_the_other(const Estimate& first, const Estimate& second) {
  Estimate both = second;
  both.seconds += first.seconds;
  both.compute_seconds += first.compute_seconds;
  both.memory_seconds += first.memory_seconds;
  both.overhead_seconds += first.overhead_seconds;
  return both;
}

}  // namespace

double product_rate(const Target& target, DType in) {
  const Instruction* one = find_instruction(target, in, in, DType::fp32);
  const double products = one == nullptr ? 1 : double(one->shape.m) * one->shape.n * one->shape.k;
  return products * (one == nullptr ? 1 : one->per_cycle) * target.clock_ghz * 1e9;
}

std::int64_t flash_cpu_parts(const Algorithm& a, const FmhaProblem& p) {
  const device::FmhaArguments g = arguments_of(p, {});
  const auto layout = static_cast<device::FmhaCacheLayout>(p.cache_layout);
  const std::int64_t heads = device::flash_heads_together(g, layout, size_of(p.in), a.tile.m);
  const double shared = std::ceil(double(p.heads_kv) / double(heads)) / double(p.heads_kv);
  const double items = std::min(std::round(blocks_of(a, p) * shared), 1e18);
  return device::flash_parts(
      {static_cast<device::i64>(items), heads, p.seqlen_k, p.num_splits, a.tile.n});
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (appends(spec)) return estimate_append(spec, p, target, threads);
  if (goes_back(spec)) return estimate_backward(spec, p, target, threads);
  if (!has_queries(p)) return tile::total_of(0, 0, target.launch_us * 1e-6);
  if (!extends(spec)) return estimate_attention(spec, p, target, threads);
  const Estimate attention =
      estimate_attention(spec, with_strides(attention_part(p)), target, threads);
  return one_after_the_other(estimate_append(spec, with_strides(append_part(p)), target, threads),
                             attention);
}

}  // namespace tessera::fmha
