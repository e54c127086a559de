// Attention with split keys on GPUs: rules, text, launch, predicted times.
// device/cuda/fmha/split_fmha.h says how the kernels work, and split_latent.h how kernels of latent
// attention do.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <tuple>

#include "tessera/device/cuda/abi.h"
#include "tessera/device/cuda/fmha/split_arguments.h"
#include "tessera/device/cuda/fmha/split_work.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_common.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::fmha {
namespace {

constexpr std::array kSplitHeads = {64, 128, 256};
constexpr std::array kSplitKeys = {16, 32, 64};
constexpr int kMostSplitWarps = 8;
constexpr int kMostByteWarps = 4;  // over rows: more of them would look up pages of several blocks
constexpr int kLeastSplitStages = 2, kMostSplitStages = 8;
constexpr int kSplitPieceBytes = 16;  // which a thread moves at a time

// Each tile that is cut has a counter, and fewer tiles are cut than four times as many as there are
// slices.
constexpr int kMostSplitSlices =
    device::kCounterBytes / static_cast<int>(4 * sizeof(std::uint32_t));

// The one shape for heads of more than 256 elements, and the warps over its rows.
constexpr Shape3 kLatentTile = {device::kLatentRows, device::kLatentKeys, device::kLatentHead};
constexpr Shape3 kLatentWave = {device::kLatentRows / device::kSplitRows, 1, 1};
constexpr std::int64_t kLongestOtherHead = kSplitHeads.back();

constexpr double kMmaShare = 0.2;  // of the products, which mma.sync reaches beside its loads
constexpr double kSplitBandwidth = 0.85;       // of the memory's, when all units are busy
constexpr double kSplitL2Bytes = 26;           // of a cycle and unit, from L2
constexpr double kStepCycles = 400;            // of a block of keys, and
constexpr double kElementCycles = 0.25;        // more for each of its elements
constexpr double kLatentShare = 0.5;           // of latent attention's products: by wgmma
constexpr double kLatentCycles = 1400;         // of its block of keys, by reads of shared memory
constexpr double kPartSeconds = 1.5e-6;        // a block's begin and end
constexpr double kMergeBytesPerSecond = 30e9;  // of the block that merges

bool reads_bytes(const FmhaSignature& s) { return is_eight_bits(kv_type(s)); }

device::SplitShape split_shape(const FmhaSignature& s, const Algorithm& a) {
  const auto qscale = static_cast<device::FmhaQscale>(s.qscale);
  return {a.tile.m,
          a.tile.n,
          a.tile.k,
          a.stages,
          a.wave.n,
          size_of(kv_type(s)),
          device::splits_factors(qscale)};
}
std::int64_t split_bytes(const FmhaSignature& s, const Algorithm& a) {
  if (is_latent(a)) return device::latent_sizes(a.stages, reads_bytes(s)).bytes;
  return device::split_sizes(split_shape(s, a)).bytes;
}
int split_threads(const Algorithm& a) {
  return is_latent(a) ? device::kLatentThreads : 32 * a.wave.m * a.wave.n;
}

// ---- which kernels there are ----

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

// The most keys of a block: as many as make the pieces of a thread that were best with 16 bits.
// With keys of 8 bits they are twice as many, for which long heads have no registers.
int most_keys(const FmhaSignature& s, const Algorithm& a) {
  const bool is_long = a.tile.k >= kSplitHeads.back();
  const int keys = a.wave.m == 1 ? (is_long ? 16 : 16 * 128 / a.tile.k) : (is_long ? 16 : 32);
  return reads_bytes(s) && !(is_long && a.wave.m == 1) ? 2 * keys : keys;
}

int latent_stages(const FmhaSignature& s) {
  return reads_bytes(s) ? device::kLatentByteStages : device::kLatentStages;
}

constexpr Rule kSplitRules[] = {
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) {
       return c.signature.in == DType::fp16 || c.signature.in == DType::bf16 ||
              is_eight_bits(c.signature.in);
     },
     [](const Case& c) {
       return fmt::format("splitkv computes fp16, bf16, fp8 or bf8, got {}",
                          to_string(c.signature.in));
     }},
    {[](const Case& c) { return !c.signature.dropout; },
     [](const Case&) { return std::string("splitkv computes without dropout"); }},
    {[](const Case& c) { return c.signature.cache_layout == FmhaCacheLayout::linear; },
     [](const Case& c) {
       return fmt::format("splitkv reads pages whose layout is linear, got {}",
                          to_string(c.signature.cache_layout));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m >= 1 && w.n >= 1 && w.k == 1 && w.m <= kMostSplitWarps &&
              w.n <= kMostSplitWarps / w.m;
     },
     [](const Case& c) {
       return fmt::format(
           "wave must be m x n x 1, m warps over rows and n over keys, at most {} in all, got {}",
           kMostSplitWarps, to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return is_split_tile(c.algorithm); },
     [](const Case& c) {
       return fmt::format(
           "tile must be {} x n x k with {} warps over rows, n 16, 32 or 64, k 64, 128 or 256, or "
           "{} with wave {}, got {}",
           device::kSplitRows * c.algorithm.wave.m, c.algorithm.wave.m, to_string(kLatentTile),
           to_string(kLatentWave), to_string(c.algorithm.tile));
     }},
    tile::kRowOf<Case, tile::kWarpTileOfOne>,
    {[](const Case& c) {
       return c.algorithm.stages >= kLeastSplitStages && c.algorithm.stages <= kMostSplitStages;
     },
     [](const Case& c) {
       return fmt::format("stages must be between {} and {}, got {}", kLeastSplitStages,
                          kMostSplitStages, c.algorithm.stages);
     }},
    {[](const Case& c) {
       return !is_latent(c.algorithm) || c.algorithm.stages == latent_stages(c.signature);
     },
     [](const Case& c) {
       return fmt::format("stages must be {} with tile {}{}, got {}", latent_stages(c.signature),
                          to_string(kLatentTile),
                          reads_bytes(c.signature) ? " and keys of 8 bits" : "",
                          c.algorithm.stages);
     }},
    {[](const Case& c) {
       return c.algorithm.slices >= 1 && c.algorithm.slices <= kMostSplitSlices;
     },
     [](const Case& c) {
       return fmt::format("slices must be between 1 and {}, got {}", kMostSplitSlices,
                          c.algorithm.slices);
     }},
    kFitsSharedMemory,
    {[](const Case& c) {
       return !is_latent(c.algorithm) ||
              !device::splits_factors(static_cast<device::FmhaQscale>(c.signature.qscale));
     },
     [](const Case& c) {
       return fmt::format("tile {} takes factors of tensors and of heads, got qscale {}",
                          to_string(kLatentTile), to_string(c.signature.qscale));
     }},
    {[](const Case& c) {
       return is_latent(c.algorithm) || !reads_bytes(c.signature) ||
              c.algorithm.wave.m <= kMostByteWarps;
     },
     [](const Case& c) {
       return fmt::format("at most {} warps share the rows of a tile with keys of {}, got {}",
                          kMostByteWarps, to_string(kv_type(c.signature)), c.algorithm.wave.m);
     }},
    {[](const Case& c) {
       const int most = most_keys(c.signature, c.algorithm);
       return is_latent(c.algorithm) || c.algorithm.wave.m > 4 ||
              (reads_bytes(c.signature) ? c.algorithm.tile.n == most : c.algorithm.tile.n <= most);
     },
     [](const Case& c) {
       return fmt::format("n must be {}{} with {} warps over rows, k {} and keys of {}, got {}",
                          reads_bytes(c.signature) ? "" : "at most ",
                          most_keys(c.signature, c.algorithm), c.algorithm.wave.m,
                          c.algorithm.tile.k, to_string(kv_type(c.signature)), c.algorithm.tile.n);
     }},
};

// Tiles of 16 and of 64 rows for each length of heads, and one of 64 rows for latent attention,
// with as many slices as blocks run at once.
std::vector<Algorithm> split_algorithms(const Target& target) {
  struct SplitRow {
    int keys, hdim, row_warps, teams, stages;
  };
  // A unit has room for two blocks, each with about 64 KB of keys and values on their way. One
  // block a unit is as fast where the parts are long, and there is less to merge where they are
  // short (docs/performance/fmha_decode.md).
  constexpr SplitRow kWordTiles[] = {{32, 64, 1, 4, 3}, {16, 128, 1, 4, 3}, {16, 256, 1, 2, 3},
                                     {32, 64, 4, 1, 8}, {32, 128, 4, 1, 5}, {16, 256, 4, 1, 4}};
  // About the same bytes of keys of 8 bits.
  constexpr SplitRow kByteTiles[] = {{64, 64, 1, 4, 3}, {32, 128, 1, 4, 3}, {16, 256, 1, 2, 5},
                                     {64, 64, 4, 1, 8}, {64, 128, 4, 1, 5}, {32, 256, 4, 1, 4}};
  const int slices = std::clamp(target.units, 1, kMostSplitSlices);
  std::vector<Algorithm> all;
  const auto add = [&](const SplitRow& row) {
    all.push_back({.pipeline = Pipeline::splitkv,
                   .tile = {row.row_warps * device::kSplitRows, row.keys, row.hdim},
                   .wave = {row.row_warps, row.teams, 1},
                   .warp_tile = {},
                   .slices = slices,
                   .stages = row.stages});
  };
  for (const SplitRow& row : kWordTiles) add(row);
  const auto add_latent = [&](int stages) {
    all.push_back({.pipeline = Pipeline::splitkv,
                   .tile = kLatentTile,
                   .wave = kLatentWave,
                   .warp_tile = {},
                   .slices = slices,
                   .stages = stages});
  };
  add_latent(device::kLatentStages);
  for (const SplitRow& row : kByteTiles) add(row);
  add_latent(device::kLatentByteStages);
  return all;
}

// ---- which problems they serve ----

// Elements of a piece.
std::int64_t split_piece(const FmhaProblem& p) { return kSplitPieceBytes / size_of(kv_type(p)); }

std::string split_stride_reason(std::string_view name, const FmhaStrides& strides,
                                const FmhaProblem& p) {
  if (strides[device::kTokenElement] != 1) {
    return fmt::format("splitkv reads elements of {} that are neighbours, got a stride of {}", name,
                       strides[device::kTokenElement]);
  }
  const TokenCounts n = token_counts(p);
  const std::tuple<std::string_view, std::int64_t, std::int64_t> dimensions[] = {
      {"token", n.keys, strides[device::kToken]},
      {"head", p.heads_kv, strides[device::kTokenHead]},
      {n.part, n.parts, strides[device::kTokenBatch]}};
  for (const auto& [of, size, stride] : dimensions) {
    if (size <= 1 || stride % split_piece(p) == 0) continue;
    return fmt::format(
        "the strides of {} must be multiples of {} elements with splitkv, got {} from {} to {}",
        name, split_piece(p), stride, of, of);
  }
  return {};
}

// Each tile that is cut has a counter, and each part of it a block.
std::string asked_splits_reason(const Algorithm& a, const FmhaProblem& p) {
  const std::int64_t group = p.heads / p.heads_kv;
  const double tiles =
      double(tile::ceil_div(p.seqlen_q * group, a.tile.m)) * double(p.heads_kv) * double(p.batch);
  const double most = double(device::kCounterBytes) / sizeof(std::uint32_t);
  if (tiles <= most) return {};
  return fmt::format("splitkv cuts the keys of at most {:.0f} tiles, got {:.0f} with num_splits={}",
                     most, tiles, p.num_splits);
}

std::string split_size_reason(const Algorithm& a, const FmhaProblem& p) {
  for (const auto& [name, value, most] :
       {std::tuple{"hdim", p.hdim, a.tile.k}, {"hdim_v", p.hdim_v, most_hdim_v(a.tile.k)}}) {
    if (value <= most && value % split_piece(p) == 0) continue;
    return fmt::format("{} must be a multiple of {} of at most {} with splitkv and tile {}, got {}",
                       name, split_piece(p), most, to_string(a.tile), value);
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
      double(tile::ceil_div(p.seqlen_q * group, a.tile.m)) * double(p.heads_kv) * double(p.batch) +
      4.0 * a.slices;
  if (p.num_splits > 1 || p.num_splits < 0) return asked_splits_reason(a, p);
  if (most <= kMostBlocks) return {};
  return fmt::format("splitkv has at most {} blocks, got about {:.0f} of {} rows", kMostBlocks,
                     most, a.tile.m);
}

// The kernel counts the pieces of a cache in 32 bits.
std::string split_cache_reason(std::string_view name, const FmhaStrides& strides,
                               const FmhaProblem& p) {
  if (!is_paged(p)) return {};
  const double most = 0x1p32 * double(split_piece(p));
  const double elements = double(p.num_pages) * double(strides[device::kTokenBatch]) +
                          double(p.page_size) * double(strides[device::kToken]);
  if (elements <= most) return {};
  return fmt::format(
      "splitkv reads pages of a cache of at most {:.0f} elements, got about {:.0f} "
      "of {}",
      most, elements, name);
}

Verdict serves_split(const KernelSpec& spec, const FmhaProblem& p, const Target&) {
  if (std::string why = split_size_reason(spec.algorithm, p); !why.empty()) return {why};
  if (std::string why = split_stride_reason("k", p.k_strides, p); !why.empty()) return {why};
  if (std::string why = split_stride_reason("v", p.v_strides, p); !why.empty()) return {why};
  if (std::string why = split_cache_reason("k", p.k_strides, p); !why.empty()) return {why};
  return {split_cache_reason("v", p.v_strides, p)};
}

// ---- the text ----

Source emit_split_gpu(const KernelSpec& spec, const Target&) {
  const FmhaSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  const std::string config = types_text(s) + kv_text(s) +
                             fmt::format(
                                 "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
                                 "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
                                 "  static constexpr bool kMasked = {}, kSoftCap = {}, kLse = {};\n"
                                 "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
                                 "  static constexpr int kStages = {}, kWaveM = {}, kWaveN = {};\n",
                                 to_string(s.qscale), to_string(s.pages), s.masked, s.soft_cap,
                                 s.lse, a.tile.m, a.tile.n, a.tile.k, a.stages, a.wave.m, a.wave.n);
  if (!is_latent(a)) {
    return attention_on_gpu(spec, {"fmha/split_fmha.h", "SplitFmha", "SplitArguments", config},
                            split_threads(a));
  }
  using enum tile::WgmmaFrom;
  const DType in = reads_bytes(s) ? DType::fp16 : s.in;
  const std::array<tile::Wgmma, 3> products = {
      {{in, in, device::kLatentKeys, k_lines, k_lines},
       {in, in, device::kLatentKeys, registers, k_lines},
       {in, in, device::kLatentProduct, registers, row_lines}}};
  return attention_on_gpu(
      spec,
      {"fmha/split_latent.h", "SplitLatent", "SplitArguments", config, tile::wgmma_text(products)},
      split_threads(a));
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

// Steps of a part where each sequence's keys say how many parts there are.
std::int64_t own_steps(const Algorithm& a) {
  return device::split_own_steps(std::int64_t{a.tile.n} * a.wave.n);
}

// How a problem is divided: tiles of rows of a key-value head, tiles of all of them, and the parts
// of the keys of a tile.
struct SplitPlan {
  std::int64_t tiles = 0, items = 0, parts = 1;
};
SplitPlan split_plan(const Algorithm& a, const FmhaProblem& p) {
  SplitPlan plan;
  plan.tiles = tile::ceil_div(p.seqlen_q * (p.heads / p.heads_kv), a.tile.m);
  plan.items = plan.tiles * p.heads_kv * p.batch;
  const std::int64_t steps = tile::ceil_div(key_blocks(a, p, plan.tiles), a.wave.n);
  const std::int64_t rows = std::min<std::int64_t>(a.tile.m, p.seqlen_q * (p.heads / p.heads_kv));
  const std::int64_t elements = p.hdim + (p.v_in_k ? 0 : p.hdim_v);  // that are read of a key
  const std::int64_t merge = device::split_merge_cost(
      rows * p.hdim_v * 4, a.tile.n * a.wave.n * elements * size_of(kv_type(p)));
  plan.parts =
      p.num_splits == 0 ? device::split_parts(plan.items, steps, a.slices, merge)
      : p.num_splits < 0
          ? device::split_own_parts(steps + device::kSplitSpareSteps, own_steps(a))
          : std::clamp<std::int64_t>(std::min(p.num_splits, steps), 1, device::kMostSplitParts);
  return plan;
}

Launch bind_split_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                      const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  add_first_steps(spec, p, 32 * a.wave.m * a.wave.n, launch);
  device::SplitArguments g{};
  g.fmha = arguments_of(p, o);
  if (p.num_splits < 0) g.fmha.num_splits = -own_steps(a);
  if (!has_queries(p)) {  // pages may be checked all the same
    set_arguments(g, p, o, launch);
    return launch;
  }
  const SplitPlan plan = split_plan(a, p);
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
  step.shared_memory_bytes = static_cast<std::size_t>(split_bytes(signature_in(spec), a));
  launch.steps.push(step);
  return launch;
}

// ---- predicted times ----

// Keys and values of 8 bits are multiplied as fp16.
DType of_products(const FmhaProblem& p) { return is_eight_bits(kv_type(p)) ? DType::fp16 : p.in; }

// Keys and values come from memory once; the tiles of a key-value head read them in L2. Blocks run
// `slices` at a time, and half as many, one for each unit, are enough for the memory. Each takes
// its blocks of keys one after the other. The blocks of a tile store the sums of a part and read as
// many, or a tile's last one reads the sums of all its parts.
Estimate estimate_split_gpu(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                            int) {
  const Algorithm& a = spec.algorithm;
  const SplitPlan plan = split_plan(a, p);
  const double hertz = target.clock_ghz * 1e9;
  const double blocks = double(plan.items) * double(plan.parts);
  const double rounds = std::ceil(blocks / a.slices);
  const double share = blocks / (rounds * a.slices);
  const double seen = scores(p) / (double(p.batch) * double(p.heads) * double(p.seqlen_q));
  const double products =
      double(plan.items) * a.tile.m * seen * double(a.tile.k + most_hdim_v(a.tile.k));
  const double compute = products / (product_rate(target, of_products(p)) * target.units *
                                     (is_latent(a) ? kLatentShare : kMmaShare));
  const double elements = double(p.hdim) + (p.v_in_k ? 0 : double(p.hdim_v));
  const double read = double(plan.items) * seen * elements * size_of(kv_type(p));
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

}  // namespace

bool is_latent(const Algorithm& a) {
  return a.pipeline == Pipeline::splitkv && a.tile.k == device::kLatentHead;
}

const Way kSplitGpu = {
    .backend = "cuda",
    .pipeline = Pipeline::splitkv,
    .rules = kSplitRules,
    .serves = serves_split,
    .algorithms = split_algorithms,
    .emit = emit_split_gpu,
    .bind = bind_split_gpu,
    .estimate = estimate_split_gpu,
    .own = {.packs_heads = true, .stage = "attend", .shared_bytes = split_bytes}};

}  // namespace tessera::fmha
