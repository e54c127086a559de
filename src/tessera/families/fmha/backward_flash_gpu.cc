// The flash kernels of Hopper for gradients: rules, text, launch, predicted times.
// device/cuda/fmha/flash_backward.h says how they work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "tessera/device/cuda/fmha/flash_backward_arguments.h"
#include "tessera/device/cuda/fmha/flash_backward_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/flash_common.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::fmha {
namespace {

using device::FlashBackwardArguments;

constexpr int kLeastRing = 2;  // stages: queries that are multiplied, and the next ones
constexpr double kMostSums = double(std::int64_t{1} << 40);  // bytes of the workspace

// Fitted to 20 problems of all kernels on an H200; docs/performance/hopper_fmha_backward.md has
// them.
constexpr double kPlainShare = 0.4;    // of the memory's bandwidth, of the steps beside
constexpr double kItemSeconds = 3e-6;  // until an item's keys are there, and its sums stored
// Heads side by side where sums of dq have an order and a mask cuts them: the fewer blocks of one
// head there are at a time, the fewer wait for each other. It is worth more than what the cache
// then does not hold.
constexpr std::int64_t kOrderedSection = 64;
constexpr double kMaskedTail = 0.5;  // of an item, for which units wait at the end

device::FlashBackwardShape backward_shape(const Algorithm& a) {
  return {a.tile.m, a.tile.n, a.tile.k, most_hdim_v(a.tile.k), a.stages};
}

std::int64_t backward_shared_bytes(const FmhaSignature&, const Algorithm& a) {
  return device::flash_backward_bytes(backward_shape(a));
}

// ---- which kernels there are ----

bool has_products_alone(const FmhaSignature& s) {
  return !s.dropout && !s.soft_cap && s.bias == FmhaBias::none;
}
bool is_wide(const Algorithm& a) { return a.tile.m == device::kFlashWideKeys; }

std::string plain_sentence(const FmhaSignature& s) {
  return fmt::format(
      "tmaws with {} keys of a block computes gradients without bias, soft cap and dropout, got "
      "bias {}{}{}",
      device::kFlashOwnKeys, to_string(s.bias), s.soft_cap ? ", a soft cap" : "",
      s.dropout ? ", dropout" : "");
}

// Keys and queries of a block and the longest heads of q and k; and the share of the tensor cores'
// rate that blocks reach, with sums of dq in any order and in one.
struct Tile {
  Shape3 shape;
  double share, ordered_share;
};
constexpr std::array kTiles = {Tile{{device::kFlashOwnKeys, 128, 64}, 0.52, 0.47},
                               Tile{{device::kFlashOwnKeys, 64, 128}, 0.56, 0.53},
                               Tile{{device::kFlashWideKeys, 64, 64}, 0.33, 0.27},
                               Tile{{device::kFlashWideKeys, 64, 128}, 0.42, 0.37},
                               Tile{{device::kFlashWideKeys, 64, 192}, 0.43, 0.36},
                               Tile{{device::kFlashWideKeys, 64, 256}, 0.47, 0.41}};

// Into how many parts the queries of a block of keys are cut, so that few keys keep all units busy.
constexpr std::array kSlices = {1, 2, 4, 8};

std::string tiles_text() {
  std::vector<std::string> names;
  for (const Tile& tile : kTiles) names.push_back(to_string(tile.shape));
  return fmt::format("one of {}", fmt::join(names, ", "));
}

constexpr Rule kGradientRules[] = {
    {[](const Case& c) { return c.signature.in == DType::fp16 || c.signature.in == DType::bf16; },
     [](const Case& c) {
       return fmt::format("tmaws computes gradients in fp16 or bf16, got in {}",
                          to_string(c.signature.in));
     }},
    {[](const Case& c) { return is_wide(c.algorithm) || has_products_alone(c.signature); },
     [](const Case& c) { return plain_sentence(c.signature); }},
    {[](const Case& c) {
       return c.algorithm.wave == Shape3{2, 1, 1};
     },
     [](const Case& c) {
       return fmt::format("tmaws has 2 consumers over m (2x1x1) with kind=backward, got {}",
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       return std::ranges::find(kTiles, c.algorithm.tile, &Tile::shape) != kTiles.end();
     },
     [](const Case& c) {
       return fmt::format("tile must be {} with kind=backward, got {}", tiles_text(),
                          to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return c.algorithm.stages >= kLeastRing; },
     [](const Case& c) {
       return fmt::format("stages must be at least {} with kind=backward, got {}", kLeastRing,
                          c.algorithm.stages);
     }},
    {[](const Case& c) { return c.algorithm.split_k != SplitK::none; },
     [](const Case& c) {
       return fmt::format(
           "split_k must be ordered or atomic with kind=backward, which says how sums of dq are "
           "added, got {}",
           to_string(c.algorithm.split_k));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       const Algorithm only = {.pipeline = a.pipeline,
                               .tile = a.tile,
                               .wave = a.wave,
                               .warp_tile = {},
                               .split_k = a.split_k,
                               .slices = a.slices,
                               .stages = a.stages};
       return a == only;
     },
     [](const Case&) {
       return std::string(
           "tmaws of fmha has nothing but tile, wave, split_k, slices and stages with "
           "kind=backward");
     }},
    {[](const Case& c) { return std::ranges::find(kSlices, c.algorithm.slices) != kSlices.end(); },
     [](const Case& c) {
       return fmt::format("slices must be one of {} with kind=backward, got {}",
                          fmt::join(kSlices, ", "), c.algorithm.slices);
     }},
    kFitsSharedMemory,
};

// For each length of heads and number of slices one that adds sums of dq by atomic additions, which
// is faster, and one that adds them in the order of the keys.
std::vector<Algorithm> flash_backward_algorithms(const Target&) {
  std::vector<Algorithm> all;
  for (const SplitK adds : {SplitK::atomic, SplitK::ordered}) {
    for (const Tile& tile : kTiles) {
      for (const int slices : kSlices) {
        all.push_back({.pipeline = Pipeline::tmaws,
                       .tile = tile.shape,
                       .wave = {device::kFlashOwnConsumers, 1, 1},
                       .warp_tile = {},
                       .split_k = adds,
                       .slices = slices,
                       .stages = tile.shape.k == 256 ? 2 : 3});
      }
    }
  }
  return all;
}

// ---- which problems they serve ----

// Those that the copy engine reads and writes, in the order of the maps in the arguments; and
// behind them those that threads read or write 16 bytes at a time.
constexpr std::size_t kMaps = 6;
std::array<WindowTokens, kMaps + 2> backward_tokens(const FmhaProblem& p) {
  const TokenCounts n = token_counts(p);
  return {{{"q", p.in, p.q_strides, p.heads, n.queries, p.hdim, n.sequences},
           {"k", p.in, p.k_strides, p.heads_kv, n.keys, p.hdim, n.sequences},
           {"v", p.in, p.v_strides, p.heads_kv, n.keys, p.hdim_v, n.sequences},
           {"dout", p.in, p.dout_strides, p.heads, n.queries, p.hdim_v, n.sequences},
           {"dk", p.in, p.dk_strides, p.heads_kv, n.keys, p.hdim, n.sequences},
           {"dv", p.in, p.dv_strides, p.heads_kv, n.keys, p.hdim_v, n.sequences},
           {"out", p.in, p.out_strides, p.heads, n.queries, p.hdim_v, n.sequences},
           {"dq", p.in, p.dq_strides, p.heads, n.queries, p.hdim, n.sequences}}};
}

// Blocks of queries of all heads and sequences, and the bytes of what belongs to one of them.
double query_blocks(const Algorithm& a, const FmhaProblem& p) {
  return double(tile::ceil_div(p.seqlen_q, a.tile.n)) * double(p.heads) * double(p.batch);
}
std::int64_t sum_bytes(const Algorithm& a) {
  return std::int64_t{4} * device::kFlashPartFloats * device::flash_dq_parts(a.tile.n, a.tile.k);
}
// At most, where sequences have lengths of their own.
double most_items(const Algorithm& a, const FmhaProblem& p) {
  const double each = double(tile::ceil_div(p.seqlen_k, a.tile.m)) * double(p.batch);
  if (!is_packed(p)) return each * double(p.heads_kv);
  return std::min(each, std::floor(double(p.tokens_k) / a.tile.m) + double(p.batch)) *
         double(p.heads_kv);
}

// The sums of dk and dv of all items, where several have the same keys.
double slice_bytes(const Algorithm& a, const FmhaProblem& p) {
  const double each = 4.0 * a.tile.m * (a.tile.k + most_hdim_v(a.tile.k));
  return a.slices == 1 ? 0 : most_items(a, p) * a.slices * each;
}
std::int64_t stat_bytes(const Algorithm& a) {
  return std::int64_t{4} * device::flash_stats_floats(a.tile.n);
}
constexpr std::int64_t kSliceUnit = 16;  // bytes; sums of slices begin at a multiple
constexpr std::int64_t kTurnBytes = std::int64_t{device::kFlashOwnConsumers} * 4;

std::string gradient_size_reason(const Algorithm& a, const FmhaProblem& p) {
  const std::int64_t unit = tma_elements(p.in);
  const std::array<SizeLimit, 7> limits = {
      {{"hdim", p.hdim, unit, a.tile.k},
       {"hdim_v", p.hdim_v, unit, most_hdim_v(a.tile.k)},
       {"batch", p.batch, 1, kMostTokens},
       {"seqlen_q", p.seqlen_q, 1, kMostTokens},
       {"seqlen_k", p.seqlen_k, 1, kMostTokens},
       {"tokens_q", is_packed(p) ? p.tokens_q : 1, 1, kMostTokens},
       {"tokens_k", is_packed(p) ? p.tokens_k : 1, 1, kMostTokens}}};
  if (std::string why = limit_reason(a, p, limits); !why.empty()) return why;
  const double items = std::max(most_items(a, p) * a.slices, query_blocks(a, p));
  if (items > kMostBlocks) {
    return fmt::format("tmaws counts its blocks up to {}, got about {:.0f}", kMostBlocks, items);
  }
  const double sums = query_blocks(a, p) * double(sum_bytes(a)) + slice_bytes(a, p);
  if (sums <= kMostSums) return {};
  return fmt::format(
      "tmaws has up to {:.0f} bytes of sums of dq, and of dk and dv in slices, got "
      "{:.0f}",
      kMostSums, sums);
}

// Elements of dbias, and whether pairs of queries and keys share one.
struct BiasElements {
  std::int64_t count;
  bool are_shared;
};
BiasElements bias_elements(const FmhaProblem& p) {
  const auto [of] =
      device::sizes_of_dbias(arguments_of(p, {}), static_cast<device::FmhaBias>(p.bias));
  const std::array<std::int64_t, 4> all = {p.batch, p.heads, p.seqlen_q, p.seqlen_k};
  return {of[0] * of[1] * of[2] * of[3], p.bias == FmhaBias::alibi || !std::ranges::equal(of, all)};
}
bool adds_bias(const FmhaProblem& p) { return p.dbias && bias_elements(p).are_shared; }

// Blocks end in any order.
std::string dbias_reason(const Algorithm& a, const FmhaProblem& p) {
  if (a.split_k == SplitK::atomic || !adds_bias(p)) return {};
  return fmt::format(
      "tmaws adds up the gradient of what {} scores share in {} elements of dbias by atomic "
      "additions, got split_k {}",
      double(p.batch) * double(p.heads) * double(p.seqlen_q) * double(p.seqlen_k),
      bias_elements(p).count, to_string(a.split_k));
}

Verdict serves_flash_backward(const KernelSpec& spec, const FmhaProblem& p, const Target&) {
  if (std::string why = gradient_size_reason(spec.algorithm, p); !why.empty()) return {why};
  for (const WindowTokens& t : backward_tokens(p)) {
    if (std::string why = window_reason(t); !why.empty()) return {why};
  }
  if (std::string why = dbias_reason(spec.algorithm, p); !why.empty()) return {why};
  // Masked scores are minus infinity before they are scaled.
  if (!(p.scale > 0)) return {fmt::format("tmaws needs a scale above 0, got {}", p.scale)};
  return {};
}

// ---- the text ----

// The instructions of a kernel; see the consumers of flash_backward.h and flash_backward_wide.h.
std::vector<tile::Wgmma> products_of(DType in, const Algorithm& a) {
  using enum tile::WgmmaFrom;
  if (!is_wide(a)) {
    return {{in, in, a.tile.n, k_lines, k_lines},
            {in, in, a.tile.k, registers, row_lines},
            {in, in, 64, row_lines, row_lines}};
  }
  std::vector<tile::Wgmma> all = {{in, in, a.tile.n / 2, k_lines, k_lines}};
  for (const int columns : {64, 128}) {
    all.push_back({in, in, columns, k_lines, row_lines});
    all.push_back({in, in, columns, row_lines, row_lines});
  }
  return all;
}

Source emit_flash_backward(const KernelSpec& spec, const Target&) {
  const FmhaSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  const std::string config =
      types_text(s) +
      fmt::format(
          "  static constexpr bool kMasked = {}, kSoftCap = {}, kDropout = {}, kDbias = {};\n"
          "  static constexpr bool kOrdered = {};\n"
          "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kHdimV = {};\n"
          "  static constexpr int kStages = {}, kSlices = {};\n",
          s.masked, s.soft_cap, s.dropout, s.dbias, a.split_k == SplitK::ordered, a.tile.m,
          a.tile.n, a.tile.k, most_hdim_v(a.tile.k), a.stages, a.slices);
  constexpr std::array<tile::GpuEntry, 4> kEntries = {
      {{"", "run"}, {"_prepare", "prepare"}, {"_convert", "convert"}, {"_merge", "merge"}}};
  return tile::cuda_source(spec, kAbi,
                           {"fmha/flash_backward.h", "FlashBackward", "FlashBackwardArguments",
                            config, tile::wgmma_text(products_of(s.in, a))},
                           device::flash_threads(a.wave.m),
                           std::span(kEntries).first(a.slices == 1 ? 3 : 4));
}

// ---- the launch ----

// What a key-value head reads and adds to.
std::int64_t head_bytes(const FmhaProblem& p) {
  return p.seqlen_q * (p.heads / p.heads_kv) * ((p.hdim + p.hdim_v) * size_of(p.in) + p.hdim * 4);
}

void set_workspace(const Algorithm& a, const FmhaProblem& p, FlashBackwardArguments& g,
                   Launch& launch) {
  const auto blocks = static_cast<std::int64_t>(query_blocks(a, p));
  g.stats = device::kCounterBytes + blocks * sum_bytes(a);
  g.turns = g.stats + blocks * stat_bytes(a);
  const std::int64_t turns = a.split_k == SplitK::ordered ? blocks * kTurnBytes : 0;
  g.slices = tile::ceil_div(g.turns + turns, kSliceUnit) * kSliceUnit;
  std::int64_t end = g.slices + static_cast<std::int64_t>(slice_bytes(a, p));
  if (adds_bias(p)) {
    g.bias_sums = end;
    end += bias_elements(p).count * 4;
  }
  launch.workspace.bytes = static_cast<std::size_t>(end);
  launch.workspace.counter_bytes = 2 * sizeof(std::uint32_t);
  launch.workspace.address_offset = offsetof(FlashBackwardArguments, workspace);
}

void push_windows(const Algorithm& a, const FmhaProblem& p, const FmhaOperands& o, Launch& launch) {
  const std::array<const void*, kMaps + 2> bases = {o.q, o.k, o.v, o.dout, o.dk, o.dv, o.out, o.dq};
  constexpr std::array<std::size_t, kMaps> kOffsets = {
      offsetof(FlashBackwardArguments, q_map),  offsetof(FlashBackwardArguments, k_map),
      offsetof(FlashBackwardArguments, v_map),  offsetof(FlashBackwardArguments, dout_map),
      offsetof(FlashBackwardArguments, dk_map), offsetof(FlashBackwardArguments, dv_map)};
  const std::array<int, kMaps> rows = {
      a.tile.n, a.tile.m, a.tile.m, a.tile.n, device::kFlashStoredRows, device::kFlashStoredRows};
  const std::array<WindowTokens, kMaps + 2> all = backward_tokens(p);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < kMaps) {
      launch.tensor_maps.push(window_of(all[i], bases[i], kOffsets[i], rows[i]));
    } else {
      refuse_unaligned(all[i].name, bases[i]);
    }
  }
}

Launch bind_flash_backward(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                           const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  FlashBackwardArguments g{};
  g.backward = backward_arguments(p, o);
  g.query_blocks = static_cast<int>(tile::ceil_div(p.seqlen_q, a.tile.n));
  g.key_blocks = static_cast<int>(tile::ceil_div(p.seqlen_k, a.tile.m));
  g.items = static_cast<int>(most_items(a, p));
  g.section = section_of(p.heads_kv * p.batch, head_bytes(p), 1);
  if (a.split_k == SplitK::ordered && p.mask != FmhaMask::none) {
    const std::int64_t heads = std::min(p.heads_kv * p.batch, kOrderedSection);
    g.section = std::max(g.section, static_cast<int>(heads));
  }
  const SeenKeys seen = seen_keys(p);
  g.left = seen.left, g.right = seen.right;
  g.sink = static_cast<int>(std::min<std::int64_t>(p.sink, kMostTokens));
  set_workspace(a, p, g, launch);
  launch.arguments.set(g);
  push_windows(a, p, o, launch);
  Step plain;
  plain.entry = 1;
  plain.grid = {static_cast<unsigned>(query_blocks(a, p)), 1, 1};
  plain.block = {device::kFlashPlainThreads, 1, 1};
  launch.steps.push(plain);
  launch.steps.push(
      flash_step(g.items * a.slices, a.wave.m, backward_shared_bytes(signature_in(spec), a)));
  plain.entry = 2;
  launch.steps.push(plain);
  if (a.slices == 1) return launch;
  plain.entry = 3;
  plain.grid = {static_cast<unsigned>(g.items), 1, 1};
  launch.steps.push(plain);
  return launch;
}

// ---- predicted times ----

// What bends scores takes of a unit, in seconds for each score, beside the products. Measured but
// for a bias without its gradient and for the gradient of slopes, which are guesses.
double bend_seconds(const FmhaProblem& p) {
  double sum = 0;
  if (p.soft_cap != 0) sum += 0.15e-9;
  if (p.p_drop != 0) sum += 0.6e-9;
  if (p.bias == FmhaBias::alibi) sum += p.dbias ? 0.2e-9 : 0.06e-9;
  if (p.bias == FmhaBias::elementwise) sum += p.dbias ? 1.5e-9 : 0.5e-9;
  return sum;
}

// How much longer the units take than if all were busy to the end. With a mask items end one by
// one, but the longest one has up to twice the scores of the others.
double idle_factor(const FmhaProblem& p, double items, double units) {
  if (p.mask == FmhaMask::none) return std::ceil(items / units) * units / items;
  const double all = double(p.batch) * double(p.heads) * double(p.seqlen_q) * double(p.seqlen_k);
  const double longest = std::min(2.0, all / std::max(1.0, scores(p)));
  return std::max(1 + kMaskedTail * units / items, longest * units / items);
}

// The steps before and behind read out, dout and sums, and write dq and sums.
Estimate estimate_flash_backward(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                                 int) {
  const Algorithm& a = spec.algorithm;
  const Tile& tile = *std::ranges::find(kTiles, a.tile, &Tile::shape);
  const double rate = product_rate(target, p.in) * target.units *
                      (a.split_k == SplitK::ordered ? tile.ordered_share : tile.share);
  // Blocks that a mask cuts are multiplied as a whole, and so is the padding of heads.
  const double heads = double(p.batch) * double(p.heads);
  const double cut =
      p.mask == FmhaMask::none ? 0 : heads * double(p.seqlen_q) * (a.tile.m + a.tile.n) / 2;
  const double keys = double(tile::ceil_div(p.seqlen_k, a.tile.m)) * a.tile.m;
  const double queries = double(tile::ceil_div(p.seqlen_q, a.tile.n)) * a.tile.n;
  const double padding = keys * queries / (double(p.seqlen_q) * double(p.seqlen_k));
  const double met = std::min(heads * keys * queries, (scores(p) + cut) * padding);
  const double walked =
      double(tile::ceil_div(p.seqlen_q, a.tile.n)) * double(p.heads) / double(p.heads_kv);
  const double items = std::max(1.0, most_items(a, p) * std::min(double(a.slices), walked));
  const double depth = 3.0 * a.tile.k + 2.0 * most_hdim_v(a.tile.k);
  const double compute =
      met * (depth / rate + bend_seconds(p) / target.units) * idle_factor(p, items, target.units) +
      items * kItemSeconds / target.units;
  const double bandwidth = target.memory_gb_per_s * 1e9;
  const double moved =
      query_blocks(a, p) * double(sum_bytes(a) + 2 * a.tile.n * a.tile.k) + slice_bytes(a, p);
  const double launches = (a.slices == 1 ? 3 : 4) * target.launch_us * 1e-6;
  return tile::total_of(compute, bytes(p) / bandwidth,
                        launches + 2 * moved / (bandwidth * kPlainShare));
}

}  // namespace

const Way kBackwardFlashGpu = {
    .backend = "cuda",
    .pipeline = Pipeline::tmaws,
    .rules = kGradientRules,
    .serves = serves_flash_backward,
    .algorithms = flash_backward_algorithms,
    .emit = emit_flash_backward,
    .bind = bind_flash_backward,
    .estimate = estimate_flash_backward,
    .own = {
        .kind = FmhaKind::backward, .stage = "dq dk dv", .shared_bytes = backward_shared_bytes}};

}  // namespace tessera::fmha
