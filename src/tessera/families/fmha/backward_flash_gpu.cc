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

// Reckoned from the cycles of tensor cores and of shared memory, not measured: docs/performance/
// hopper_fmha_backward.md has the sums.
constexpr double kGradientShare = 0.6;  // of the tensor cores
constexpr double kOrderShare = 0.95;    // of that, where sums of dq wait for their turn
constexpr double kPlainShare = 0.8;     // of the memory's bandwidth, of the steps beside

device::FlashBackwardShape backward_shape(const Algorithm& a) {
  return {a.tile.n, a.tile.k, a.stages};
}

std::int64_t backward_shared_bytes(const FmhaSignature&, const Algorithm& a) {
  return device::flash_backward_bytes(backward_shape(a));
}

// ---- which kernels there are ----

bool is_plain(const FmhaSignature& s) {
  return (s.in == DType::fp16 || s.in == DType::bf16) && !s.dropout && !s.soft_cap &&
         s.bias == FmhaBias::none;
}

std::string plain_sentence(const FmhaSignature& s) {
  return fmt::format(
      "tmaws computes gradients in fp16 or bf16 without bias, soft cap and dropout, got in {}, "
      "bias {}{}{}",
      to_string(s.in), to_string(s.bias), s.soft_cap ? ", a soft cap" : "",
      s.dropout ? ", dropout" : "");
}

constexpr Rule kGradientRules[] = {
    {[](const Case& c) { return is_plain(c.signature); },
     [](const Case& c) { return plain_sentence(c.signature); }},
    {[](const Case& c) {
       return c.algorithm.wave == Shape3{2, 1, 1};
     },
     [](const Case& c) {
       return fmt::format("tmaws has 2 consumers over m (2x1x1) with kind=backward, got {}",
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m == device::kFlashOwnKeys && (t.k == 64 || t.k == 128) &&
              t.n * t.k == 2 * device::kFlashPartFloats;
     },
     [](const Case& c) {
       return fmt::format("tile must be 128x128x64 or 128x64x128 with kind=backward, got {}",
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
                               .stages = a.stages};
       return a == only;
     },
     [](const Case&) {
       return std::string(
           "tmaws of fmha has nothing but tile, wave, split_k and stages with kind=backward");
     }},
    kFitsSharedMemory,
};

// For each length of heads one that adds sums of dq by atomic additions, which is faster, and one
// that adds them in the order of the keys.
std::vector<Algorithm> flash_backward_algorithms(const Target&) {
  std::vector<Algorithm> all;
  for (const SplitK adds : {SplitK::atomic, SplitK::ordered}) {
    for (const int hdim : {64, 128}) {
      all.push_back({.pipeline = Pipeline::tmaws,
                     .tile = {device::kFlashOwnKeys, 2 * device::kFlashPartFloats / hdim, hdim},
                     .wave = {device::kFlashOwnConsumers, 1, 1},
                     .warp_tile = {},
                     .split_k = adds,
                     .stages = 3});
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
constexpr std::int64_t kSumBytes = std::int64_t{2} * device::kFlashPartFloats * 4;
std::int64_t stat_bytes(const Algorithm& a) {
  return std::int64_t{4} * device::flash_stats_floats(a.tile.n);
}
constexpr std::int64_t kTurnBytes = std::int64_t{device::kFlashOwnConsumers} * 4;

// At most, where sequences have lengths of their own.
double most_items(const Algorithm& a, const FmhaProblem& p) {
  const double each = double(tile::ceil_div(p.seqlen_k, a.tile.m)) * double(p.batch);
  if (!is_packed(p)) return each * double(p.heads_kv);
  return std::min(each, std::floor(double(p.tokens_k) / a.tile.m) + double(p.batch)) *
         double(p.heads_kv);
}

std::string gradient_size_reason(const Algorithm& a, const FmhaProblem& p) {
  const std::int64_t unit = tma_elements(p.in);
  const std::array<SizeLimit, 7> limits = {
      {{"hdim", p.hdim, unit, a.tile.k},
       {"hdim_v", p.hdim_v, unit, a.tile.k},
       {"batch", p.batch, 1, kMostTokens},
       {"seqlen_q", p.seqlen_q, 1, kMostTokens},
       {"seqlen_k", p.seqlen_k, 1, kMostTokens},
       {"tokens_q", is_packed(p) ? p.tokens_q : 1, 1, kMostTokens},
       {"tokens_k", is_packed(p) ? p.tokens_k : 1, 1, kMostTokens}}};
  if (std::string why = limit_reason(a, p, limits); !why.empty()) return why;
  const double items = std::max(most_items(a, p), query_blocks(a, p));
  if (items > kMostBlocks) {
    return fmt::format("tmaws counts its blocks up to {}, got about {:.0f}", kMostBlocks, items);
  }
  const double sums = query_blocks(a, p) * double(kSumBytes);
  if (sums <= kMostSums) return {};
  return fmt::format("tmaws has up to {:.0f} bytes of sums of dq, got {:.0f}", kMostSums, sums);
}

Verdict serves_flash_backward(const KernelSpec& spec, const FmhaProblem& p, const Target&) {
  if (std::string why = gradient_size_reason(spec.algorithm, p); !why.empty()) return {why};
  for (const WindowTokens& t : backward_tokens(p)) {
    if (std::string why = window_reason(t); !why.empty()) return {why};
  }
  if (std::string why = sink_reason(p); !why.empty()) return {why};
  // Masked scores are minus infinity before they are scaled.
  if (!(p.scale > 0)) return {fmt::format("tmaws needs a scale above 0, got {}", p.scale)};
  return {};
}

// ---- the text ----

Source emit_flash_backward(const KernelSpec& spec, const Target&) {
  const FmhaSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  using enum tile::WgmmaFrom;
  const std::array<tile::Wgmma, 3> products = {{{s.in, s.in, a.tile.n, k_lines, k_lines},
                                                {s.in, s.in, a.tile.k, registers, row_lines},
                                                {s.in, s.in, 64, row_lines, row_lines}}};
  const std::string config = fmt::format(
      "  using In = {};\n"
      "  static constexpr FmhaLengths kLengths = FmhaLengths::{};\n"
      "  static constexpr bool kMasked = {}, kOrdered = {};\n"
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kStages = {};\n",
      to_string(s.in), to_string(s.lengths), s.masked, a.split_k == SplitK::ordered, a.tile.m,
      a.tile.n, a.tile.k, a.stages);
  constexpr std::array<tile::GpuEntry, 3> kEntries = {
      {{"", "run"}, {"_prepare", "prepare"}, {"_convert", "convert"}}};
  return tile::cuda_source(spec, kAbi,
                           {"fmha/flash_backward.h", "FlashBackward", "FlashBackwardArguments",
                            config, tile::wgmma_text(products)},
                           device::flash_threads(a.wave.m), kEntries);
}

// ---- the launch ----

// What a key-value head reads and adds to.
std::int64_t head_bytes(const FmhaProblem& p) {
  return p.seqlen_q * (p.heads / p.heads_kv) * ((p.hdim + p.hdim_v) * size_of(p.in) + p.hdim * 4);
}

void set_workspace(const Algorithm& a, const FmhaProblem& p, FlashBackwardArguments& g,
                   Launch& launch) {
  const auto blocks = static_cast<std::int64_t>(query_blocks(a, p));
  g.stats = device::kCounterBytes + blocks * kSumBytes;
  g.turns = g.stats + blocks * stat_bytes(a);
  const std::int64_t turns = a.split_k == SplitK::ordered ? blocks * kTurnBytes : 0;
  launch.workspace.bytes = static_cast<std::size_t>(g.turns + turns);
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
  const SeenKeys seen = seen_keys(p);
  g.left = seen.left, g.right = seen.right;
  set_workspace(a, p, g, launch);
  launch.arguments.set(g);
  push_windows(a, p, o, launch);
  Step plain;
  plain.entry = 1;
  plain.grid = {static_cast<unsigned>(query_blocks(a, p)), 1, 1};
  plain.block = {device::kFlashPlainThreads, 1, 1};
  launch.steps.push(plain);
  launch.steps.push(flash_step(g.items, a.wave.m, backward_shared_bytes(signature_in(spec), a)));
  plain.entry = 2;
  launch.steps.push(plain);
  return launch;
}

// ---- predicted times ----

// The steps before and behind read out, dout and sums, and write dq and sums.
Estimate estimate_flash_backward(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                                 int) {
  const Algorithm& a = spec.algorithm;
  const double rate = product_rate(target, p.in) * target.units * kGradientShare *
                      (a.split_k == SplitK::ordered ? kOrderShare : 1);
  // Blocks that a mask cuts are multiplied as a whole, and so is the padding of heads.
  const double heads = double(p.batch) * double(p.heads);
  const double cut =
      p.mask == FmhaMask::none ? 0 : heads * double(p.seqlen_q) * (a.tile.m + a.tile.n) / 2;
  const double keys = double(tile::ceil_div(p.seqlen_k, a.tile.m)) * a.tile.m;
  const double queries = double(tile::ceil_div(p.seqlen_q, a.tile.n)) * a.tile.n;
  const double padding = keys * queries / (double(p.seqlen_q) * double(p.seqlen_k));
  const double all = heads * keys * queries;
  const double met = std::min(all, (scores(p) + cut) * padding);
  const double items = std::max(1.0, most_items(a, p));
  const double waves = std::ceil(items / target.units) * target.units / items;
  const double compute = met * 5 * a.tile.k / rate * waves;
  const double bandwidth = target.memory_gb_per_s * 1e9;
  const double beside = query_blocks(a, p) * double(kSumBytes + 2 * a.tile.n * a.tile.k) * 2 /
                        (bandwidth * kPlainShare);
  return tile::total_of(compute, bytes(p) / bandwidth, 3 * target.launch_us * 1e-6 + beside);
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
