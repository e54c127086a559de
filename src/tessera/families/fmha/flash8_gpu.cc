// The flash kernels of Hopper whose products both have 8 bits: rules, text, launch, predicted
// times. device/cuda/fmha/flash8_fmha.h says how they work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/cuda/fmha/flash8_sizes.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_forward.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::fmha {
namespace {

constexpr int kMostKeys = 256;    // columns of an instruction
constexpr int kLeastOfKeys = 2;   // keys, and those that come next
constexpr int kMostBetween = 64;  // blocks of keys between two sums: more would be one sum

constexpr double kFlash8StepSeconds = 2e-6;
// The share of what the busier of tensor cores and exponential units could do, after measurements
// of the prototype of these kernels on an H200: both were busy for 0.64 of the time with heads and
// blocks of 128, blocks of 64 keys were 0.83 times as fast as blocks of 96 with heads of 256, and a
// second level of sums in fp32 took 0.93 of the speed. So a block costs as much as some keys more.
constexpr double kBusyShare = 0.85, kLevelsShare = 0.95, kKeysOfBlock = 40;
constexpr double kOtherShare = 1.0 / 16;  // of the other unit's time that is not hidden

// Blocks of keys between two sums of the second level; 0: the tensor cores add up all keys of a
// tile.
int between_of(const Algorithm& a) { return a.split_k == SplitK::none ? 0 : a.splits; }

device::Flash8Shape shape8_of(const FmhaSignature& s, const Algorithm& a) {
  return {a.wave.m,
          a.tile.n,
          a.tile.k,
          most_hdim_v(a.tile.k),
          a.stages,
          between_of(a),
          has_block_factors(s.qscale),
          size_of(s.out) != 2};
}

std::int64_t flash8_shared_bytes(const FmhaSignature& s, const Algorithm& a) {
  return device::flash8_bytes(shape8_of(s, a));
}

// ---- which kernels there are ----

bool tile_fits(const Algorithm& a) {
  constexpr std::array kHeads = {64, 128, 192, 256};
  return std::find(kHeads.begin(), kHeads.end(), a.tile.k) != kHeads.end() && a.tile.n >= 64 &&
         a.tile.n <= kMostKeys && a.tile.n % kBytesOfProduct == 0;
}

// Scores are products and nothing else, and keys and values lie in order.
bool is_plain(const FmhaSignature& s) {
  return !s.soft_cap && s.bias == FmhaBias::none && !s.dropout && s.pages == FmhaPages::none;
}

// Kernels of heads above 192 that would spill registers.
bool has_too_many_factors(const Case& c) {
  const FmhaSignature& s = c.signature;
  return c.algorithm.tile.k == 256 && has_block_factors(s.qscale) &&
         (s.lengths != FmhaLengths::equal || c.algorithm.tile.n > 64);
}
bool has_too_many_lengths(const Case& c) {
  return c.algorithm.tile.k == 256 && c.algorithm.tile.n > 64 &&
         c.signature.lengths != FmhaLengths::equal;
}

constexpr Rule kFlash8Rules[] = {
    {[](const Case& c) { return is_eight_bits(c.signature.in); },
     [](const Case& c) {
       return fmt::format("tmaws multiplies 8 bits with a warp tile of k {}, got in {}",
                          kBytesOfProduct, to_string(c.signature.in));
     }},
    {[](const Case& c) { return is_plain(c.signature); },
     [](const Case& c) {
       const FmhaSignature& s = c.signature;
       return fmt::format(
           "tmaws with products of 8 bits has no soft cap, bias, dropout and pages, got bias {}, "
           "pages {}{}{}",
           to_string(s.bias), to_string(s.pages), s.soft_cap ? ", a soft cap" : "",
           s.dropout ? ", dropout" : "");
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return (w.m == 2 || (w.m == 3 && c.algorithm.tile.k == 64)) && w.n == 1 && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format(
           "tmaws with products of 8 bits has 2 consumers over m (2x1x1), or 3 with k 64, got {} "
           "with k {}",
           to_string(c.algorithm.wave), c.algorithm.tile.k);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return tile_fits(a) && a.tile.m == a.wave.m * device::kWgmmaRows;
     },
     [](const Case& c) {
       return fmt::format(
           "tile must be {} x n x k with {} consumers, n a multiple of {} from 64 to {}, k 64, "
           "128, "
           "192 or 256, got {}",
           c.algorithm.wave.m * device::kWgmmaRows, c.algorithm.wave.m, kBytesOfProduct, kMostKeys,
           to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.warp_tile == Shape3{device::kWgmmaRows, a.tile.n, kBytesOfProduct};
     },
     [](const Case& c) {
       return fmt::format("warp tile must be {}x{}x{}, one instruction for scores, got {}",
                          device::kWgmmaRows, c.algorithm.tile.n, kBytesOfProduct,
                          to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) { return c.algorithm.stages >= kLeastOfKeys; },
     [](const Case& c) {
       return fmt::format("stages must be at least {}, got {}", kLeastOfKeys, c.algorithm.stages);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       const bool is_one = a.split_k == SplitK::none && a.splits == 1;
       return is_one || (a.split_k == SplitK::ordered && a.splits >= 1 && a.splits <= kMostBetween);
     },
     [](const Case& c) {
       return fmt::format(
           "split_k must be none, or ordered with 1 to {} blocks of keys between two sums, got {} "
           "with {}",
           kMostBetween, to_string(c.algorithm.split_k), c.algorithm.splits);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       const Algorithm only = {.pipeline = a.pipeline,
                               .tile = a.tile,
                               .wave = a.wave,
                               .warp_tile = a.warp_tile,
                               .split_k = a.split_k,
                               .splits = a.splits,
                               .stages = a.stages};
       return a == only;
     },
     [](const Case&) {
       return std::string(
           "tmaws of fmha with products of 8 bits has nothing but tile, wave, warp tile, stages "
           "and "
           "a split of K");
     }},
    {[](const Case& c) { return !has_too_many_factors(c); },
     [](const Case& c) {
       return fmt::format(
           "tmaws with products of 8 bits and k 256 has registers for factors of blocks only with "
           "lengths equal and n 64, got lengths {}, n {}",
           to_string(c.signature.lengths), c.algorithm.tile.n);
     }},
    {[](const Case& c) { return !has_too_many_lengths(c); },
     [](const Case& c) {
       return fmt::format(
           "tmaws with products of 8 bits and k 256 has registers for lengths of sequences only "
           "with n 64, got lengths {}, n {}",
           to_string(c.signature.lengths), c.algorithm.tile.n);
     }},
    {[](const Case& c) {
       const device::Flash8Shape shape = shape8_of(c.signature, c.algorithm);
       return device::flash8_registers_used(shape, false) <= device::flash8_registers(shape);
     },
     [](const Case& c) {
       const device::Flash8Shape shape = shape8_of(c.signature, c.algorithm);
       return fmt::format("tile {} needs {} registers a thread, {} consumers have {}",
                          to_string(c.algorithm.tile), device::flash8_registers_used(shape, false),
                          shape.consumers, device::flash8_registers(shape));
     }},
    kFitsSharedMemory,
};

// What is worth a try. The sums of about 1024 keys are added in the second level, whatever a block
// has.
std::vector<Algorithm> flash8_gpu_algorithms(const Target&) {
  struct Row {
    int consumers, keys, hdim, between, stages;
  };
  constexpr Row kRows[] = {{3, 128, 64, 8, 3},  {2, 128, 64, 8, 4},  {2, 128, 128, 8, 3},
                           {2, 128, 192, 8, 3}, {2, 96, 256, 10, 2}, {2, 64, 256, 16, 2}};
  std::vector<Algorithm> all;
  for (const auto& [consumers, keys, hdim, between, stages] : kRows) {
    all.push_back({.pipeline = Pipeline::tmaws,
                   .tile = {consumers * device::kWgmmaRows, keys, hdim},
                   .wave = {consumers, 1, 1},
                   .warp_tile = {device::kWgmmaRows, keys, kBytesOfProduct},
                   .split_k = SplitK::ordered,
                   .splits = between,
                   .stages = stages});
  }
  return all;
}

// ---- which problems they serve ----

std::string windows_reason(const FmhaProblem& p) {
  for (const WindowTokens& tokens : tokens_of(p)) {
    if (std::string why = window_reason(tokens); !why.empty()) return why;
  }
  return {};
}

Verdict serves_flash8_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target&) {
  for (const std::string& why :
       {size_reason(spec.algorithm, p), windows_reason(p), splits_reason(p), sink_reason(p)}) {
    if (!why.empty()) return {why};
  }
  return {factors_reason(spec.algorithm, p)};
}

// ---- the text ----

Source emit_flash8_gpu(const KernelSpec& spec, const Target&) {
  const FmhaSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  const int hdim_v = most_hdim_v(a.tile.k);
  const bool in_registers = device::flash8_sizes(shape8_of(s, a)).queries_in_registers;
  const tile::WgmmaFrom queries =
      in_registers ? tile::WgmmaFrom::registers : tile::WgmmaFrom::k_lines;
  const std::array<tile::Wgmma, 2> products = {
      {{s.in, s.in, a.tile.n, queries, tile::WgmmaFrom::k_lines},
       {DType::fp8, s.in, hdim_v, tile::WgmmaFrom::registers, tile::WgmmaFrom::k_lines}}};
  const std::string config =
      types_text(s) +
      fmt::format(
          "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
          "  static constexpr FmhaPages kPages = FmhaPages::none;\n"
          "  static constexpr bool kMasked = {}, kSoftCap = false, kLse = {}, kDropout = false;\n"
          "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kHdimV = {};\n"
          "  static constexpr int kStages = {}, kWaveM = {}, kBetween = {};\n",
          to_string(s.qscale), s.masked, s.lse, a.tile.m, a.tile.n, a.tile.k, hdim_v, a.stages,
          a.wave.m, between_of(a));
  return attention_on_gpu(
      spec,
      {"fmha/flash8_fmha.h", "Flash8Fmha", "FlashArguments", config, tile::wgmma_text(products)},
      device::flash_threads(a.wave.m));
}

// ---- the launch ----

Launch bind_flash8_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                       const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  const auto [q, k, v, out] = tokens_of(p);
  return forward_launch(spec, p, o,
                        {{{q, device::kWgmmaRows, 0},
                          {k, a.tile.n, 0},
                          {v, a.tile.n, 0},
                          {out, device::kFlashStoredRows, 0}}},
                        flash8_shared_bytes(signature_in(spec), a));
}

// ---- predicted times ----

// Keys of a block are multiplied whole where the mask cuts it. Each score takes an exponential.
Estimate estimate_flash8_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                             int) {
  const Algorithm& a = spec.algorithm;
  const double rows = std::ceil(double(p.seqlen_q) / a.tile.m);
  const double tiles = rows * double(p.heads) * double(p.batch);
  const double rounds = std::ceil(tiles / target.units) * target.units / tiles;
  const double padding = rows * a.tile.m / double(p.seqlen_q);
  const double cut = p.mask == FmhaMask::none ? 0 : tiles * a.tile.m * a.tile.n / 2;
  const double elements = a.tile.k + most_hdim_v(a.tile.k);
  const double multiplying = elements / product_rate(target, p.in);
  const double weighing = 1 / exponential_rate(target);
  const double seconds =
      std::max(multiplying, weighing) + kOtherShare * std::min(multiplying, weighing);
  const double busy = kBusyShare * a.tile.n / (a.tile.n + kKeysOfBlock);
  const double share = between_of(a) == 0 ? busy : busy * kLevelsShare;
  const double products = (scores(p) * padding + cut) * seconds / (target.units * share);
  const double memory = bytes(p) / (target.memory_gb_per_s * 1e9);
  return tile::total_of(products * rounds, memory, target.launch_us * 1e-6 + kFlash8StepSeconds);
}

}  // namespace

const Way kFlash8Gpu = {
    .backend = "cuda",
    .pipeline = Pipeline::tmaws,
    .rules = kFlash8Rules,
    .serves = serves_flash8_gpu,
    .algorithms = flash8_gpu_algorithms,
    .emit = emit_flash8_gpu,
    .bind = bind_flash8_gpu,
    .estimate = estimate_flash8_gpu,
    .own = {.is_bytes = true, .stage = "attend", .shared_bytes = flash8_shared_bytes}};

}  // namespace tessera::fmha
