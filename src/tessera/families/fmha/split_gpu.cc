// Attention with split keys on GPUs: legality, text, launch. device/cuda/fmha/split_fmha.h says how
// the kernels work, and split_latent.h how kernels of latent attention do.
#include "tessera/families/fmha/split_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <tuple>

#include "tessera/device/cuda/abi.h"
#include "tessera/device/cuda/fmha/split_arguments.h"
#include "tessera/device/cuda/fmha/split_work.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_common.h"
#include "tessera/families/tile/blocks.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::fmha {
namespace {

constexpr std::array kSplitHeads = {64, 128, 256};
constexpr std::array kSplitKeys = {16, 32, 64};
constexpr int kMostSplitWarps = 8;
constexpr int kLeastSplitStages = 2, kMostSplitStages = 8;
constexpr std::int64_t kSplitPiece = 8;  // of 16 bytes, which a thread moves at a time

// Each tile that is cut has a counter, and fewer tiles are cut than four times as many as there are
// slices.
constexpr int kMostSplitSlices =
    device::kCounterBytes / static_cast<int>(4 * sizeof(std::uint32_t));

// The one shape for heads of more than 256 elements, and the warps over its rows.
constexpr Shape3 kLatentTile = {device::kLatentRows, device::kLatentKeys, device::kLatentHead};
constexpr Shape3 kLatentWave = {device::kLatentRows / device::kSplitRows, 1, 1};
constexpr std::int64_t kLongestOtherHead = kSplitHeads.back();

device::SplitShape split_shape(const Algorithm& a) {
  return {a.tile.m, a.tile.n, a.tile.k, a.stages, a.wave.n};
}
std::int64_t split_bytes(const Algorithm& a) {
  if (is_latent(a)) return device::latent_sizes(a.stages).bytes;
  return device::split_sizes(split_shape(a)).bytes;
}
int split_threads(const Algorithm& a) {
  return is_latent(a) ? device::kLatentThreads : 32 * a.wave.m * a.wave.n;
}

// ---- which kernels there are ----

struct SplitCase {
  const FmhaSignature& signature;
  const Algorithm& algorithm;
  const Target& target;
};

template <std::size_t kCount>
bool is_split_size(const std::array<int, kCount>& all, int value) {
  return std::find(all.begin(), all.end(), value) != all.end();
}

bool is_split_tile(const Algorithm& a) {
  const Shape3& t = a.tile;
  if (is_latent(a)) return t == kLatentTile && a.wave == kLatentWave;
  return t.m == device::kSplitRows * a.wave.m && is_split_size(kSplitKeys, t.n) &&
         is_split_size(kSplitHeads, t.k);
}

constexpr tile::Rule<SplitCase> kSplitRules[] = {
    {[](const SplitCase& c) {
       return c.signature.in == DType::fp16 || c.signature.in == DType::bf16;
     },
     [](const SplitCase& c) {
       return fmt::format("splitkv computes fp16 or bf16, got {}", to_string(c.signature.in));
     }},
    {[](const SplitCase& c) { return !c.signature.dropout; },
     [](const SplitCase&) { return std::string("splitkv computes without dropout"); }},
    {[](const SplitCase& c) { return c.signature.cache_layout == FmhaCacheLayout::linear; },
     [](const SplitCase& c) {
       return fmt::format("splitkv reads pages whose layout is linear, got {}",
                          to_string(c.signature.cache_layout));
     }},
    {[](const SplitCase& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m >= 1 && w.n >= 1 && w.k == 1 && w.m <= kMostSplitWarps &&
              w.n <= kMostSplitWarps / w.m;
     },
     [](const SplitCase& c) {
       return fmt::format(
           "wave must be m x n x 1, m warps over rows and n over keys, at most {} in all, got {}",
           kMostSplitWarps, to_string(c.algorithm.wave));
     }},
    {[](const SplitCase& c) { return is_split_tile(c.algorithm); },
     [](const SplitCase& c) {
       return fmt::format(
           "tile must be {} x n x k with {} warps over rows, n 16, 32 or 64, k 64, 128 or 256, or "
           "{} with wave {}, got {}",
           device::kSplitRows * c.algorithm.wave.m, c.algorithm.wave.m, to_string(kLatentTile),
           to_string(kLatentWave), to_string(c.algorithm.tile));
     }},
    {[](const SplitCase& c) { return c.algorithm.warp_tile == Shape3{}; },
     [](const SplitCase& c) {
       return fmt::format("warp tile must be 1x1x1, got {}", to_string(c.algorithm.warp_tile));
     }},
    {[](const SplitCase& c) {
       return c.algorithm.stages >= kLeastSplitStages && c.algorithm.stages <= kMostSplitStages;
     },
     [](const SplitCase& c) {
       return fmt::format("stages must be between {} and {}, got {}", kLeastSplitStages,
                          kMostSplitStages, c.algorithm.stages);
     }},
    {[](const SplitCase& c) {
       return !is_latent(c.algorithm) || c.algorithm.stages == device::kLatentStages;
     },
     [](const SplitCase& c) {
       return fmt::format("stages must be {} with tile {}, got {}", device::kLatentStages,
                          to_string(kLatentTile), c.algorithm.stages);
     }},
    {[](const SplitCase& c) {
       return c.algorithm.slices >= 1 && c.algorithm.slices <= kMostSplitSlices;
     },
     [](const SplitCase& c) {
       return fmt::format("slices must be between 1 and {}, got {}", kMostSplitSlices,
                          c.algorithm.slices);
     }},
    {[](const SplitCase& c) { return split_bytes(c.algorithm) <= c.target.shared_memory_bytes; },
     [](const SplitCase& c) {
       return fmt::format("needs {} bytes of shared memory, {} has {}", split_bytes(c.algorithm),
                          c.target.name, c.target.shared_memory_bytes);
     }},
};

// ---- which problems they serve ----

std::string split_stride_reason(std::string_view name, const FmhaStrides& strides,
                                const FmhaProblem& p) {
  if (strides[device::kTokenElement] != 1) {
    return fmt::format("splitkv reads elements of {} that are neighbours, got a stride of {}", name,
                       strides[device::kTokenElement]);
  }
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const bool is_paged = p.pages != FmhaPages::none;
  const struct {
    std::string_view name;
    std::int64_t size, stride;
  } dimensions[] = {{"token",
                     is_paged    ? p.page_size
                     : is_packed ? p.tokens_k
                                 : p.seqlen_k,
                     strides[device::kToken]},
                    {"head", p.heads_kv, strides[device::kTokenHead]},
                    {is_paged ? "page" : "sequence",
                     is_paged    ? p.num_pages
                     : is_packed ? 1
                                 : p.batch,
                     strides[device::kTokenBatch]}};
  for (const auto& [of, size, stride] : dimensions) {
    if (size <= 1 || stride % kSplitPiece == 0) continue;
    return fmt::format(
        "the strides of {} must be multiples of {} elements with splitkv, got {} from {} to {}",
        name, kSplitPiece, stride, of, of);
  }
  return {};
}

// Each tile that is cut has a counter, and each part of it a block.
std::string asked_splits_reason(const Algorithm& a, const FmhaProblem& p) {
  const std::int64_t group = p.heads / p.heads_kv;
  const double tiles =
      double(tile::blocks_of(p.seqlen_q * group, a.tile.m)) * double(p.heads_kv) * double(p.batch);
  const double most = double(device::kCounterBytes) / sizeof(std::uint32_t);
  if (tiles <= most) return {};
  return fmt::format("splitkv cuts the keys of at most {:.0f} tiles, got {:.0f} with num_splits={}",
                     most, tiles, p.num_splits);
}

std::string split_size_reason(const Algorithm& a, const FmhaProblem& p) {
  for (const auto& [name, value, most] :
       {std::tuple{"hdim", p.hdim, a.tile.k}, {"hdim_v", p.hdim_v, most_hdim_v(a.tile.k)}}) {
    if (value <= most && value % kSplitPiece == 0) continue;
    return fmt::format("{} must be a multiple of {} of at most {} with splitkv and tile {}, got {}",
                       name, kSplitPiece, most, to_string(a.tile), value);
  }
  if (is_latent(a) && std::max(p.hdim, p.hdim_v) <= kLongestOtherHead) {
    return fmt::format(
        "tile {} serves heads of more than {} elements, got {} (hdim) and {} (hdim_v)",
        to_string(a.tile), kLongestOtherHead, p.hdim, p.hdim_v);
  }
  const std::int64_t group = p.heads / p.heads_kv;
  if (p.seqlen_k > kMostTokens) {
    return fmt::format("seqlen_k must be at most {} with splitkv, got {}", kMostTokens, p.seqlen_k);
  }
  if (p.seqlen_q > kMostTokens / group) {
    return fmt::format(
        "seqlen_q must be at most {} with splitkv and {} heads a key-value head, "
        "got {}",
        kMostTokens / group, group, p.seqlen_q);
  }
  const double most =
      double(tile::blocks_of(p.seqlen_q * group, a.tile.m)) * double(p.heads_kv) * double(p.batch) +
      4.0 * a.slices;
  if (p.num_splits > 1) return asked_splits_reason(a, p);
  if (most <= kMostBlocks) return {};
  return fmt::format("splitkv has at most {} blocks, got about {:.0f} of {} rows", kMostBlocks,
                     most, a.tile.m);
}

// ---- the launch ----

// Blocks of keys of the tile that sees the most: the longest sequence's last one.
std::int64_t key_blocks(const Algorithm& a, const FmhaProblem& p, std::int64_t tiles) {
  const device::FmhaArguments g = arguments_of(p, {});
  const device::FmhaSequence s = {p.seqlen_q, p.seqlen_k, 0, 0};
  const std::int64_t first = (tiles - 1) * a.tile.m / (p.heads / p.heads_kv);
  const std::int64_t last = p.seqlen_q - 1;
  return p.mask == FmhaMask::none ? device::split_blocks<false>(g, s, first, last, a.tile.n).count
                                  : device::split_blocks<true>(g, s, first, last, a.tile.n).count;
}

}  // namespace

bool is_latent(const Algorithm& a) { return a.tile.k == device::kLatentHead; }

std::vector<Algorithm> split_gpu_algorithms(const Target& target) {
  struct Row {
    int keys, hdim, row_warps, teams, stages;
  };
  // A unit has room for two blocks, each with about 64 KB of keys and values on their way. One
  // block a unit is as fast where the parts are long, and there is less to merge where they are
  // short (docs/performance/fmha_decode.md).
  constexpr Row kTiles[] = {{32, 64, 1, 4, 3}, {16, 128, 1, 4, 3}, {16, 256, 1, 2, 3},
                            {32, 64, 4, 1, 8}, {32, 128, 4, 1, 5}, {16, 256, 4, 1, 4}};
  std::vector<Algorithm> all;
  for (const auto& [keys, hdim, row_warps, teams, stages] : kTiles) {
    all.push_back({.pipeline = Pipeline::splitkv,
                   .tile = {row_warps * device::kSplitRows, keys, hdim},
                   .wave = {row_warps, teams, 1},
                   .warp_tile = {},
                   .slices = std::clamp(target.units, 1, kMostSplitSlices),
                   .stages = stages});
  }
  all.push_back({.pipeline = Pipeline::splitkv,
                 .tile = kLatentTile,
                 .wave = kLatentWave,
                 .warp_tile = {},
                 .slices = std::clamp(target.units, 1, kMostSplitSlices),
                 .stages = device::kLatentStages});
  return all;
}

std::string split_gpu_illegal(const FmhaSignature& signature, const Algorithm& algorithm,
                              const Target& target) {
  const SplitCase c = {signature, algorithm, target};
  return tile::broken_sentence(kSplitRules, c);
}

std::string split_gpu_unsupported(const KernelSpec& spec, const FmhaProblem& p) {
  if (std::string why = split_size_reason(spec.algorithm, p); !why.empty()) return why;
  if (std::string why = split_stride_reason("k", p.k_strides, p); !why.empty()) return why;
  return split_stride_reason("v", p.v_strides, p);
}

SplitPlan split_gpu_plan(const Algorithm& a, const FmhaProblem& p) {
  SplitPlan plan;
  plan.tiles = tile::blocks_of(p.seqlen_q * (p.heads / p.heads_kv), a.tile.m);
  plan.items = plan.tiles * p.heads_kv * p.batch;
  const std::int64_t steps = tile::blocks_of(key_blocks(a, p, plan.tiles), a.wave.n);
  const std::int64_t rows = std::min<std::int64_t>(a.tile.m, p.seqlen_q * (p.heads / p.heads_kv));
  const std::int64_t elements = p.hdim + (p.v_in_k ? 0 : p.hdim_v);  // that are read of a key
  const std::int64_t merge =
      device::split_merge_cost(rows * p.hdim_v * 4, a.tile.n * a.wave.n * elements * 2);
  plan.parts = p.num_splits == 0 ? device::split_parts(plan.items, steps, a.slices, merge)
                                 : std::clamp<std::int64_t>(std::min(p.num_splits, steps), 1,
                                                            device::kMostSplitParts);
  return plan;
}

Source emit_split_gpu(const KernelSpec& spec) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const auto word = [](DType dtype) {
    return dtype == DType::fp32 ? std::string_view("float") : to_string(dtype);
  };
  const std::string config = fmt::format(
      "  using In = {};\n"
      "  using Out = {};\n"
      "  using Bias = {};\n"
      "  static constexpr FmhaLengths kLengths = FmhaLengths::{};\n"
      "  static constexpr FmhaBias kBias = FmhaBias::{};\n"
      "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
      "  static constexpr bool kMasked = {}, kSoftCap = {}, kLse = {};\n"
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kStages = {}, kWaveM = {}, kWaveN = {};\n",
      word(s.in), word(s.out), word(s.dtype_bias), to_string(s.lengths), to_string(s.bias),
      to_string(s.pages), s.masked, s.soft_cap, s.lse, a.tile.m, a.tile.n, a.tile.k, a.stages,
      a.wave.m, a.wave.n);
  if (!is_latent(a)) {
    return attention_on_gpu(spec, {"fmha/split_fmha.h", "SplitFmha", "SplitArguments", config},
                            split_threads(a));
  }
  using enum tile::WgmmaFrom;
  const std::array<tile::Wgmma, 3> products = {
      {{s.in, s.in, device::kLatentKeys, k_lines, k_lines},
       {s.in, s.in, device::kLatentKeys, registers, k_lines},
       {s.in, s.in, device::kLatentProduct, registers, row_lines}}};
  return attention_on_gpu(
      spec,
      {"fmha/split_latent.h", "SplitLatent", "SplitArguments", config, tile::wgmma_text(products)},
      split_threads(a));
}

void bind_split_gpu(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                    Launch& launch) {
  const Algorithm& a = spec.algorithm;
  device::SplitArguments g{};
  g.fmha = arguments_of(p, o);
  if (!has_queries(p)) return set_arguments(g, p, o, launch);  // pages may be checked all the same
  const SplitPlan plan = split_gpu_plan(a, p);
  g.tiles = static_cast<int>(plan.tiles);
  g.parts = static_cast<int>(plan.parts);
  g.waits = plan.items * plan.parts <= a.slices ? 1 : 0;
  set_arguments(g, p, o, launch);
  launch.parts = plan.parts;
  if (plan.parts > 1) {
    const std::int64_t floats =
        plan.items * plan.parts * device::split_part_floats(a.tile.m, p.hdim_v);
    launch.workspace.bytes = device::kCounterBytes + static_cast<std::size_t>(floats) * 4;
    launch.workspace.counter_bytes = static_cast<std::size_t>(plan.items) * sizeof(std::uint32_t);
    launch.workspace.address_offset = offsetof(device::SplitArguments, workspace);
  }
  Step step;
  step.grid = {static_cast<unsigned>(plan.items * plan.parts), 1, 1};
  step.block = {static_cast<unsigned>(split_threads(a)), 1, 1};
  step.shared_memory_bytes = static_cast<std::size_t>(split_bytes(a));
  launch.steps.push(step);
}

}  // namespace tessera::fmha
