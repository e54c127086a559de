// The flash kernels of Hopper: legality, text, launch. device/cuda/fmha/flash_fmha.h says how they
// work.
#include "tessera/families/fmha/flash_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "tessera/base/error.h"
#include "tessera/device/cuda/fmha/flash_arguments.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/tmaws.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::fmha {
namespace {

using device::FlashArguments;

constexpr int kMostWgmmaColumns = 256;
constexpr int kLeastStages = 3;           // keys, the values before them, and what comes next
constexpr std::int64_t kTmaElements = 8;  // elements of 16 bytes, which the copy engine moves
constexpr std::int64_t kMostTokens = std::int64_t{1} << 28;  // the kernel adds up a few of these
constexpr std::int64_t kMostTiles = std::int64_t{1} << 30;
constexpr std::int64_t kMostStride = (std::int64_t{1} << 40) / 2;  // elements

// A section's keys and values are to stay in L2, and it has enough tiles for all blocks.
constexpr std::int64_t kSectionBytes = std::int64_t{32} << 20;
constexpr std::int64_t kLeastSection = 8;  // heads

device::FlashShape shape_of(const FmhaSignature& s, const Algorithm& a) {
  const bool bends = s.soft_cap || s.bias != FmhaBias::none;
  return {a.wave.m, a.tile.n, a.tile.k, flash_gpu_hdim_v(a.tile.k), a.stages, bends};
}

// ---- which kernels there are ----

struct FlashCase {
  const FmhaSignature& signature;
  const Algorithm& algorithm;
  const Target& target;
};

std::string features_of(const FmhaSignature& s) {
  return fmt::format("in {}, out {}, pages {}{}", to_string(s.in), to_string(s.out),
                     to_string(s.pages), s.dropout ? ", dropout" : "");
}

bool sizes_fit(const Algorithm& a) {
  constexpr std::array kHeads = {64, 128, 192, 256};
  return std::find(kHeads.begin(), kHeads.end(), a.tile.k) != kHeads.end() && a.tile.n >= 64 &&
         a.tile.n <= kMostWgmmaColumns && a.tile.n % device::kFlashSlab == 0;
}

constexpr tile::Rule<FlashCase> kFlashRules[] = {
    {[](const FlashCase& c) {
       const FmhaSignature& s = c.signature;
       return (s.in == DType::fp16 || s.in == DType::bf16) && s.out == s.in && !s.dropout &&
              s.pages == FmhaPages::none;
     },
     [](const FlashCase& c) {
       return fmt::format(
           "tmaws computes fp16 or bf16 with out of that type, no dropout and no pages, got {}",
           features_of(c.signature));
     }},
    {[](const FlashCase& c) {
       const Shape3& w = c.algorithm.wave;
       return (w.m == 2 || w.m == 3) && w.n == 1 && w.k == 1;
     },
     [](const FlashCase& c) {
       return fmt::format("tmaws has 2 or 3 consumers over m (2x1x1, 3x1x1), got {}",
                          to_string(c.algorithm.wave));
     }},
    {[](const FlashCase& c) {
       const Algorithm& a = c.algorithm;
       return sizes_fit(a) && a.tile.m == a.wave.m * device::kWgmmaRows;
     },
     [](const FlashCase& c) {
       return fmt::format(
           "tile must be {} x n x k with {} consumers, n 64, 128, 192 or 256, k 64, 128, 192 or "
           "256, got {}",
           c.algorithm.wave.m * device::kWgmmaRows, c.algorithm.wave.m,
           to_string(c.algorithm.tile));
     }},
    {[](const FlashCase& c) { return c.algorithm.stages >= kLeastStages; },
     [](const FlashCase& c) {
       return fmt::format("stages must be at least {}, got {}", kLeastStages, c.algorithm.stages);
     }},
    {[](const FlashCase& c) {
       const Algorithm& a = c.algorithm;
       const Algorithm only = {.pipeline = a.pipeline,
                               .tile = a.tile,
                               .wave = a.wave,
                               .warp_tile = {},
                               .stages = a.stages};
       return a == only;
     },
     [](const FlashCase&) {
       return std::string("tmaws of fmha has nothing but tile, wave and stages");
     }},
    {[](const FlashCase& c) {
       return device::flash_registers_used(shape_of(c.signature, c.algorithm), false) <=
              device::flash_registers(c.algorithm.wave.m);
     },
     [](const FlashCase& c) {
       const int consumers = c.algorithm.wave.m;
       return fmt::format("tile {} needs {} registers a thread, {} consumers have {}",
                          to_string(c.algorithm.tile),
                          device::flash_registers_used(shape_of(c.signature, c.algorithm), false),
                          consumers, device::flash_registers(consumers));
     }},
    {[](const FlashCase& c) {
       return device::flash_bytes(shape_of(c.signature, c.algorithm)) <=
              c.target.shared_memory_bytes;
     },
     [](const FlashCase& c) {
       return fmt::format("needs {} bytes of shared memory, {} has {}",
                          device::flash_bytes(shape_of(c.signature, c.algorithm)), c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// ---- which problems they serve ----

// A tensor of tokens as the copy engine sees it.
struct Tokens {
  std::string_view name;
  const FmhaStrides& strides;
  std::int64_t heads, tokens, hdim, sequences;
};

std::array<Tokens, 4> tokens_of(const FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const std::int64_t sequences = is_packed ? 1 : p.batch;
  const std::int64_t queries = is_packed ? p.tokens_q : p.seqlen_q;
  const std::int64_t keys = is_packed ? p.tokens_k : p.seqlen_k;
  return {{{"q", query_strides(p), p.heads, queries, p.hdim, sequences},
           {"k", p.k_strides, p.heads_kv, keys, p.hdim, sequences},
           {"v", p.v_strides, p.heads_kv, keys, p.hdim_v, sequences},
           {"out", p.out_strides, p.heads, queries, p.hdim_v, sequences}}};
}

// {token, head, sequence}: how many, and their distance.
struct Dimension {
  std::string_view name;
  std::int64_t size, stride;
};
std::array<Dimension, 3> dimensions(const Tokens& t) {
  return {{{"token", t.tokens, t.strides[device::kToken]},
           {"head", t.heads, t.strides[device::kTokenHead]},
           {"sequence", t.sequences, t.strides[device::kTokenBatch]}}};
}

std::string stride_reason(const Tokens& t) {
  if (t.hdim > 1 && t.strides[device::kTokenElement] != 1) {
    return fmt::format("tmaws reads elements of {} that are neighbours, got a stride of {}", t.name,
                       t.strides[device::kTokenElement]);
  }
  for (const auto& [name, size, stride] : dimensions(t)) {
    if (size <= 1 || (stride > 0 && stride % kTmaElements == 0 && stride < kMostStride)) continue;
    return fmt::format(
        "the strides of {} must be multiples of {} elements, above 0 and below {}, with tmaws, got "
        "{} from {} to {}",
        t.name, kTmaElements, kMostStride, stride, name, name);
  }
  return {};
}

struct FlashLimit {
  std::string_view name;
  std::int64_t value, least, most;
};

// At most, where sequences have lengths of their own: how many queries they may have together, and
// a tile that is not full for each.
double most_tiles(const Algorithm& a, const FmhaProblem& p) {
  const double each = std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.batch);
  if (p.lengths != FmhaLengths::packed) return each * double(p.heads);
  return std::min(each, double(p.tokens_q) / a.tile.m + double(p.batch)) * double(p.heads);
}

std::string size_reason(const Algorithm& a, const FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const std::array<FlashLimit, 6> limits = {
      {{"hdim", p.hdim, kTmaElements, a.tile.k},
       {"hdim_v", p.hdim_v, kTmaElements, flash_gpu_hdim_v(a.tile.k)},
       {"seqlen_q", p.seqlen_q, 0, kMostTokens},
       {"seqlen_k", p.seqlen_k, 1, kMostTokens},
       {"tokens_q", is_packed ? p.tokens_q : 1, 0, kMostTokens},
       {"tokens_k", is_packed ? p.tokens_k : 1, has_queries(p) ? 1 : 0, kMostTokens}}};
  for (const auto& [name, value, least, most] : limits) {
    if (value >= least && value <= most) continue;
    return fmt::format("{} must be {} to {} with tmaws and tile {}, got {}", name, least, most,
                       to_string(a.tile), value);
  }
  for (const auto& [name, value] : {std::pair{"hdim", p.hdim}, std::pair{"hdim_v", p.hdim_v}}) {
    if (value % kTmaElements == 0) continue;
    return fmt::format("{} must be a multiple of {} with tmaws, got {}", name, kTmaElements, value);
  }
  const double tiles = most_tiles(a, p);
  if (tiles <= kMostTiles) return {};
  return fmt::format("tmaws counts its tiles up to {}, got about {:.0f} of {} queries", kMostTiles,
                     tiles, a.tile.m);
}

// ---- the launch ----

// A window of `rows` tokens of one head by 64 elements.
TensorMap window(const Tokens& t, const void* base, const FmhaProblem& p, std::size_t offset,
                 int rows) {
  const auto excess = reinterpret_cast<std::uintptr_t>(base) % tile::kTmaBytes;
  if (excess != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("fmha: {} must be aligned to {} bytes for tmaws, got an address {} past "
                    "a multiple of that; use a direct kernel",
                    t.name, tile::kTmaBytes, excess));
  }
  TensorMap map{};
  map.offset = offset;
  map.base = base;
  map.dtype = p.in;
  map.rank = 4;
  map.sizes[0] = static_cast<std::uint64_t>(t.hdim);
  map.box = {device::kFlashSlab, static_cast<std::uint32_t>(rows), 1, 1};
  map.swizzle_bytes = device::kLineBytes;
  std::size_t i = 0;
  for (const auto& [name, size, stride] : dimensions(t)) {
    // A dimension of one element has any stride; the copy engine wants a multiple of 16 bytes.
    const std::int64_t elements = size == 1 ? kTmaElements : stride;
    map.strides[i++] = static_cast<std::uint64_t>(elements * size_of(p.in));
    map.sizes[i] = static_cast<std::uint64_t>(size);
  }
  return map;
}

// With a mask the tiles of a head differ, and heads that read the same keys run side by side.
int section_of(const FmhaProblem& p) {
  if (p.mask == FmhaMask::none) return 1;
  const std::int64_t pairs = p.heads * p.batch;
  const std::int64_t read = p.seqlen_k * (p.hdim + p.hdim_v) * size_of(p.in);
  const std::int64_t fit = kSectionBytes / read * (p.heads / p.heads_kv);
  const std::int64_t most = std::max(kLeastSection, fit);
  const std::int64_t sections = (pairs + most - 1) / most;
  return static_cast<int>((pairs + sections - 1) / sections);
}

// Query i sees the keys from i + left on and below i + right. The kernel adds the diagonal of
// sequences that have lengths of their own.
void set_window(const FmhaProblem& p, FlashArguments& g) {
  constexpr std::int64_t kAll = 2 * kMostTokens;
  const bool is_known = p.lengths == FmhaLengths::equal && p.mask == FmhaMask::bottom_right;
  const std::int64_t diagonal = is_known ? p.seqlen_k - p.seqlen_q : 0;
  const std::int64_t right = p.window_right < 0 ? kAll : std::min(p.window_right, kAll);
  const std::int64_t left = p.window_left < 0 ? kAll : std::min(p.window_left, kAll);
  g.right = static_cast<int>(std::clamp(diagonal + right + 1, -kAll, kAll));
  g.left = static_cast<int>(std::clamp(diagonal - left, -kAll, kAll));
}

}  // namespace

int flash_gpu_hdim_v(int hdim) { return hdim == 192 ? 128 : hdim; }

std::vector<Algorithm> flash_gpu_algorithms() {
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

std::string flash_gpu_illegal(const FmhaSignature& signature, const Algorithm& algorithm,
                              const Target& target) {
  const FlashCase c = {signature, algorithm, target};
  const tile::Rule<FlashCase>* rule = tile::first_broken(kFlashRules, c);
  return rule == nullptr ? std::string() : rule->sentence(c);
}

std::string flash_gpu_unsupported(const KernelSpec& spec, const FmhaProblem& p) {
  if (std::string why = size_reason(spec.algorithm, p); !why.empty()) return why;
  for (const Tokens& t : tokens_of(p)) {
    if (std::string why = stride_reason(t); !why.empty()) return why;
  }
  if (p.num_splits > 1) {
    return fmt::format("tmaws does not cut keys, num_splits must be 0 or 1, got {}", p.num_splits);
  }
  if (p.mask != FmhaMask::none && p.window_left >= 0 && p.sink > 0) {
    return fmt::format(
        "tmaws keeps no keys outside of a window, got a sink of {} with a window_left "
        "of {}",
        p.sink, p.window_left);
  }
  // Scores are compared before they are scaled.
  if (!(p.scale > 0)) return fmt::format("tmaws needs a scale above 0, got {}", p.scale);
  return {};
}

Source emit_flash_gpu(const KernelSpec& spec) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const int hdim_v = flash_gpu_hdim_v(a.tile.k);
  const bool in_registers = device::flash_sizes(shape_of(s, a)).queries_in_registers;
  const tile::WgmmaFrom queries =
      in_registers ? tile::WgmmaFrom::registers : tile::WgmmaFrom::k_lines;
  const std::array<tile::Wgmma, 2> products = {
      {{s.in, s.in, a.tile.n, queries, tile::WgmmaFrom::k_lines},
       {s.in, s.in, hdim_v, tile::WgmmaFrom::registers, tile::WgmmaFrom::row_lines}}};
  const std::string config = fmt::format(
      "  using In = {};\n"
      "  using Bias = {};\n"
      "  static constexpr FmhaLengths kLengths = FmhaLengths::{};\n"
      "  static constexpr FmhaBias kBias = FmhaBias::{};\n"
      "  static constexpr bool kMasked = {}, kSoftCap = {}, kLse = {};\n"
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kHdimV = {};\n"
      "  static constexpr int kStages = {}, kWaveM = {};\n",
      to_string(s.in), tile::storage_type(s.dtype_bias), to_string(s.lengths), to_string(s.bias),
      s.masked, s.soft_cap, s.lse, a.tile.m, a.tile.n, a.tile.k, hdim_v, a.stages, a.wave.m);
  return attention_on_gpu(
      spec,
      {"fmha/flash_fmha.h", "FlashFmha", "FlashArguments", config, tile::wgmma_text(products)},
      device::flash_threads(a.wave.m));
}

void bind_flash_gpu(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                    Launch& launch) {
  const Algorithm& a = spec.algorithm;
  FlashArguments g{};
  g.fmha = arguments_of(p, o);
  g.query_tiles = static_cast<int>((p.seqlen_q + a.tile.m - 1) / a.tile.m);
  g.tiles = static_cast<int>(most_tiles(a, p));
  g.section = section_of(p);
  set_window(p, g);
  set_arguments(g, p, o, launch);
  launch.workspace.bytes = device::kCounterBytes;
  launch.workspace.counter_bytes = 2 * sizeof(std::uint32_t);
  launch.workspace.address_offset = offsetof(FlashArguments, workspace);
  const std::array<const void*, 4> bases = {queries_of(p, o), o.k, values_of(p, o), o.out};
  const std::array<std::size_t, 4> offsets = {
      offsetof(FlashArguments, q_map), offsetof(FlashArguments, k_map),
      offsetof(FlashArguments, v_map), offsetof(FlashArguments, out_map)};
  const std::array<int, 4> rows = {device::kWgmmaRows, a.tile.n, a.tile.n,
                                   device::kFlashStoredRows};
  const std::array<Tokens, 4> all = tokens_of(p);
  for (std::size_t i = 0; i < all.size(); ++i) {
    launch.tensor_maps.push(window(all[i], bases[i], p, offsets[i], rows[i]));
  }
  Step step;
  step.extent = Step::Extent::resident;
  step.grid = {static_cast<unsigned>(g.tiles), 1, 1};
  step.block = {static_cast<unsigned>(device::flash_threads(a.wave.m)), 1, 1};
  step.shared_memory_bytes = static_cast<std::size_t>(
      device::flash_bytes(shape_of(std::get<FmhaSignature>(spec.signature), a)));
  launch.steps.push(step);
}

}  // namespace tessera::fmha
