// The flash kernels of Hopper: rules, text, launch, predicted times. device/cuda/fmha/flash_fmha.h
// says how they work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/cuda/fmha/flash_box.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_forward.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::fmha {
namespace {

constexpr int kMostWgmmaColumns = 256;
constexpr int kLeastStages = 3;     // keys, the values before them, and what comes next
constexpr int kPagedConsumers = 2;  // 3 have no registers left
constexpr std::int64_t kMostEntries = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostPagedElements = std::int64_t{8} << 32;  // of k, counted in 16 bytes

constexpr double kFlashStepSeconds = 2e-6;
constexpr double kTensorShare = 0.7;  // of the tensor cores' products that it reaches
// With heads of 64 elements on an H200: 3 consumers were 1.02 to 1.04 times as fast as 2 without a
// mask although 3% more rows were padding, and slower with a mask. With lengths of their own they
// have no registers left.
constexpr double kThirdConsumer = 1.07, kThirdOtherwise = 0.96;
// The share of exponentials that a unit makes where values of 8 bits are converted.
constexpr double kExponentialShare = 0.6;
// With dropout, reckoned from instructions: random bits take about as many as all else.
constexpr double kDropoutTensorShare = 0.4;

device::FlashShape shape_of(const FmhaSignature& s, const Algorithm& a) {
  const bool bends = s.soft_cap || s.bias != FmhaBias::none || s.dropout;
  return {a.wave.m,
          a.tile.n,
          a.tile.k,
          most_hdim_v(a.tile.k),
          a.stages,
          bends,
          is_eight_bits(s.in),
          has_block_factors(s.qscale),
          size_of(s.out) != 2,
          s.pages != FmhaPages::none};
}

std::int64_t flash_shared_bytes(const FmhaSignature& s, const Algorithm& a) {
  return device::flash_bytes(shape_of(s, a));
}

// ---- which kernels there are ----

std::string types_of(const FmhaSignature& s) {
  return fmt::format("in {}, out {}", to_string(s.in), to_string(s.out));
}

bool sizes_fit(const Algorithm& a) {
  constexpr std::array kHeads = {64, 128, 192, 256};
  return std::find(kHeads.begin(), kHeads.end(), a.tile.k) != kHeads.end() && a.tile.n >= 64 &&
         a.tile.n <= kMostWgmmaColumns && a.tile.n % device::kFlashSlab == 0;
}

// Pages may cut the keys of a sequence, too.
bool has_own_lengths(const FmhaSignature& s) {
  return s.lengths != FmhaLengths::equal || s.pages != FmhaPages::none;
}

// Kernels of 8 bits that would spill registers.
bool bends_too_much(const Case& c) {
  const FmhaSignature& s = c.signature;
  if (!is_eight_bits(s.in) || (!s.soft_cap && s.bias == FmhaBias::none)) return false;
  return has_own_lengths(s) || size_of(s.out) != 2 || has_block_factors(s.qscale) ||
         c.algorithm.tile.k > 64;
}
bool scales_too_much(const Case& c) {
  const FmhaSignature& s = c.signature;
  return has_block_factors(s.qscale) && has_own_lengths(s) && c.algorithm.tile.k == 256;
}

constexpr Rule kFlashRules[] = {
    {[](const Case& c) {
       const FmhaSignature& s = c.signature;
       const bool is_half = (s.in == DType::fp16 || s.in == DType::bf16) && s.out == s.in;
       return is_half || is_eight_bits(s.in);
     },
     [](const Case& c) {
       return fmt::format("tmaws computes fp16 or bf16 with out of that type, fp8 or bf8, got {}",
                          types_of(c.signature));
     }},
    {[](const Case& c) { return !is_eight_bits(c.signature.in) || !c.signature.dropout; },
     [](const Case& c) {
       return fmt::format("tmaws computes {} without dropout", to_string(c.signature.in));
     }},
    {[](const Case& c) {
       const FmhaSignature& s = c.signature;
       return s.pages == FmhaPages::none || s.qscale != FmhaQscale::kv_block;
     },
     [](const Case&) {
       return std::string("tmaws reads pages without factors of their own, got qscale kv_block");
     }},
    {[](const Case& c) {
       const FmhaSignature& s = c.signature;
       return !has_own_kv(s) && s.qscale != FmhaQscale::per_head &&
              s.qscale != FmhaQscale::per_token;
     },
     [](const Case& c) {
       const FmhaSignature& s = c.signature;
       return fmt::format(
           "tmaws reads keys of the queries' type, with factors of tensors or of "
           "blocks, got kv {}, qscale {}",
           to_string(s.kv), to_string(s.qscale));
     }},
    {[](const Case& c) { return !c.signature.random; },
     [](const Case&) {
       return std::string("tmaws stores no random values of dropout, got random=1");
     }},
    {[](const Case& c) { return c.signature.cache_layout == FmhaCacheLayout::linear; },
     [](const Case& c) {
       return fmt::format("tmaws reads pages whose layout is linear, got {}",
                          to_string(c.signature.cache_layout));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return (w.m == 2 || w.m == 3) && w.n == 1 && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format("tmaws has 2 or 3 consumers over m (2x1x1, 3x1x1), got {}",
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return c.algorithm.wave.m == 2 || !is_eight_bits(c.signature.in); },
     [](const Case& c) {
       return fmt::format("tmaws has 2 consumers (2x1x1) with in {}, got {}",
                          to_string(c.signature.in), c.algorithm.wave.m);
     }},
    {[](const Case& c) {
       return c.signature.pages == FmhaPages::none || c.algorithm.wave.m == kPagedConsumers;
     },
     [](const Case& c) {
       return fmt::format("tmaws reads pages with {} consumers, got {}", kPagedConsumers,
                          c.algorithm.wave.m);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return sizes_fit(a) && a.tile.m == a.wave.m * device::kWgmmaRows;
     },
     [](const Case& c) {
       return fmt::format(
           "tile must be {} x n x k with {} consumers, n 64, 128, 192 or 256, k 64, 128, 192 or "
           "256, got {}",
           c.algorithm.wave.m * device::kWgmmaRows, c.algorithm.wave.m,
           to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return c.algorithm.stages >= kLeastStages; },
     [](const Case& c) {
       return fmt::format("stages must be at least {}, got {}", kLeastStages, c.algorithm.stages);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       const Algorithm only = {.pipeline = a.pipeline,
                               .tile = a.tile,
                               .wave = a.wave,
                               .warp_tile = {},
                               .stages = a.stages};
       return a == only;
     },
     [](const Case&) {
       return std::string("tmaws of fmha has nothing but tile, wave and stages");
     }},
    {[](const Case& c) { return !bends_too_much(c); },
     [](const Case& c) {
       const FmhaSignature& s = c.signature;
       return fmt::format(
           "tmaws with in {} has registers for a soft cap or a bias only with lengths equal, no "
           "pages, out fp16 or bf16, no factors of blocks and k 64, got lengths {}, pages {}, out "
           "{}, qscale {}, k {}",
           to_string(s.in), to_string(s.lengths), to_string(s.pages), to_string(s.out),
           to_string(s.qscale), c.algorithm.tile.k);
     }},
    {[](const Case& c) { return !scales_too_much(c); },
     [](const Case& c) {
       return fmt::format(
           "tmaws with tile {} has registers for factors of blocks only with lengths equal and no "
           "pages, got {}, pages {}",
           to_string(c.algorithm.tile), to_string(c.signature.lengths),
           to_string(c.signature.pages));
     }},
    {[](const Case& c) {
       const device::FlashShape shape = shape_of(c.signature, c.algorithm);
       return device::flash_registers_used(shape, false) <= device::flash_registers(shape);
     },
     [](const Case& c) {
       const device::FlashShape shape = shape_of(c.signature, c.algorithm);
       return fmt::format("tile {} needs {} registers a thread, {} consumers have {}",
                          to_string(c.algorithm.tile), device::flash_registers_used(shape, false),
                          shape.consumers, device::flash_registers(shape));
     }},
    kFitsSharedMemory,
};

// What is worth a try, the first of each length of heads being the best on most problems.
std::vector<Algorithm> flash_gpu_algorithms(const Target&) {
  struct Row {
    int consumers, keys, hdim, stages;
  };
  constexpr Row kRows[] = {
      {3, 128, 64, 6}, {2, 128, 64, 6}, {2, 128, 128, 4}, {2, 128, 192, 3}, {2, 64, 256, 4}};
  std::vector<Algorithm> all;
  for (const auto& [consumers, keys, hdim, stages] : kRows) {
    all.push_back({.pipeline = Pipeline::tmaws,
                   .tile = {consumers * device::kWgmmaRows, keys, hdim},
                   .wave = {consumers, 1, 1},
                   .warp_tile = {},
                   .stages = stages});
  }
  return all;
}

// ---- which problems they serve ----

// The kernel counts the entries of page_table in int.
std::string page_reason(const FmhaProblem& p) {
  if (!is_paged(p)) return {};
  if (p.page_size % device::kFlashLeastBox != 0) {
    return fmt::format("page_size must be a multiple of {} with tmaws, got {}",
                       device::kFlashLeastBox, p.page_size);
  }
  const double entries = p.pages == FmhaPages::list
                             ? double(p.page_entries)
                             : double(p.batch) * double(p.table_stride) + double(p.max_pages);
  if (entries > kMostEntries) {
    return fmt::format("tmaws counts the entries of page_table up to {}, got about {:.0f}",
                       kMostEntries, entries);
  }
  const FmhaStrides& k = p.k_strides;
  const double elements = double(p.num_pages) * double(k[device::kTokenBatch]) +
                          double(p.heads_kv) * double(k[device::kTokenHead]) +
                          double(p.page_size) * double(k[device::kToken]);
  if (elements <= kMostPagedElements) return {};
  return fmt::format("tmaws reads a cache of keys of at most {} elements, got about {:.0f}",
                     kMostPagedElements, elements);
}

Verdict serves_flash_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target&) {
  if (std::string why = size_reason(spec.algorithm, p); !why.empty()) return {why};
  for (const WindowTokens& t : tokens_of(p)) {
    if (std::string why = window_reason(t); !why.empty()) return {why};
  }
  if (std::string why = page_reason(p); !why.empty()) return {why};
  if (std::string why = splits_reason(p); !why.empty()) return {why};
  if (std::string why = sink_reason(p); !why.empty()) return {why};
  // Scores of 16 bits are compared before they are scaled.
  if (!is_eight_bits(p.in) && !(p.scale > 0)) {
    return {fmt::format("tmaws needs a scale above 0, got {}", p.scale)};
  }
  return {factors_reason(spec.algorithm, p)};
}

// ---- the text ----

Source emit_flash_gpu(const KernelSpec& spec, const Target&) {
  const FmhaSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  const int hdim_v = most_hdim_v(a.tile.k);
  const bool in_registers = device::flash_sizes(shape_of(s, a)).queries_in_registers;
  const tile::WgmmaFrom queries =
      in_registers ? tile::WgmmaFrom::registers : tile::WgmmaFrom::k_lines;
  const DType weight = is_eight_bits(s.in) ? DType::fp16 : s.in;
  const std::array<tile::Wgmma, 2> products = {
      {{s.in, s.in, a.tile.n, queries, tile::WgmmaFrom::k_lines},
       {weight, weight, hdim_v, tile::WgmmaFrom::registers, tile::WgmmaFrom::row_lines}}};
  const std::string config =
      types_text(s) +
      fmt::format(
          "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
          "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
          "  static constexpr bool kMasked = {}, kSoftCap = {}, kLse = {}, kDropout = {};\n"
          "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kHdimV = {};\n"
          "  static constexpr int kStages = {}, kWaveM = {};\n",
          to_string(s.qscale), to_string(s.pages), s.masked, s.soft_cap, s.lse, s.dropout, a.tile.m,
          a.tile.n, a.tile.k, hdim_v, a.stages, a.wave.m);
  return attention_on_gpu(
      spec,
      {"fmha/flash_fmha.h", "FlashFmha", "FlashArguments", config, tile::wgmma_text(products)},
      device::flash_threads(a.wave.m));
}

// ---- the launch ----

Launch bind_flash_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                      const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  const auto [q, k, v, out] = tokens_of(p);
  const int keys = is_paged(p) ? device::flash_box(p.page_size, a.tile.n) : a.tile.n;
  const int of_values = is_eight_bits(p.in) ? most_hdim_v(a.tile.k) : 0;
  return forward_launch(spec, p, o,
                        {{{q, device::kWgmmaRows, 0},
                          {k, keys, 0},
                          {v, keys, of_values},
                          {out, device::kFlashStoredRows, 0}}},
                        flash_shared_bytes(signature_in(spec), a));
}

// ---- predicted times ----

// Keys of a block are multiplied whole where the mask cuts it.
Estimate estimate_flash_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                            int) {
  const Algorithm& a = spec.algorithm;
  const double tiles = std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.heads) * double(p.batch);
  const double rounds = std::ceil(tiles / target.units) * target.units / tiles;
  const double padding = std::ceil(double(p.seqlen_q) / a.tile.m) * a.tile.m / double(p.seqlen_q);
  const double cut = p.mask == FmhaMask::none ? 0 : tiles * a.tile.m * a.tile.n / 2;
  // Values of 8 bits are multiplied as fp16.
  const DType of_values = is_eight_bits(p.in) ? DType::fp16 : p.in;
  const double rate_of_values = product_rate(target, of_values);
  const double elements =
      a.tile.k * rate_of_values / product_rate(target, p.in) + most_hdim_v(a.tile.k);
  const double products = (scores(p) * padding + cut) * elements;
  const bool suits = p.mask == FmhaMask::none && p.lengths == FmhaLengths::equal;
  const double third = a.wave.m < 3 ? 1 : suits ? kThirdConsumer : kThirdOtherwise;
  const double share = p.p_drop == 0 ? kTensorShare : kDropoutTensorShare;
  const double rate = rate_of_values * target.units * share * third;
  const double exponentials =
      is_eight_bits(p.in)
          ? products / elements / (exponential_rate(target) * target.units * kExponentialShare)
          : 0;
  const double memory = bytes(p) / (target.memory_gb_per_s * 1e9);
  return tile::total_of(std::max(products / rate, exponentials) * rounds, memory,
                        target.launch_us * 1e-6 + kFlashStepSeconds);
}

}  // namespace

const Way kFlashGpu = {.backend = "cuda",
                       .pipeline = Pipeline::tmaws,
                       .rules = kFlashRules,
                       .serves = serves_flash_gpu,
                       .algorithms = flash_gpu_algorithms,
                       .emit = emit_flash_gpu,
                       .bind = bind_flash_gpu,
                       .estimate = estimate_flash_gpu,
                       .own = {.stage = "attend", .shared_bytes = flash_shared_bytes}};

}  // namespace tessera::fmha
