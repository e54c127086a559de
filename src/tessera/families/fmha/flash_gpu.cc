// The flash kernels of Hopper: legality, text, launch. device/cuda/fmha/flash_fmha.h says how they
// work.
#include "tessera/families/fmha/flash_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "tessera/base/error.h"
#include "tessera/device/cuda/fmha/flash_arguments.h"
#include "tessera/device/cuda/fmha/flash_box.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_common.h"
#include "tessera/families/fmha/token_windows.h"
#include "tessera/families/tile/blocks.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::fmha {
namespace {

using device::FlashArguments;

constexpr int kMostWgmmaColumns = 256;
constexpr int kLeastStages = 3;     // keys, the values before them, and what comes next
constexpr int kPagedConsumers = 2;  // 3 have no registers left
constexpr std::int64_t kMostEntries = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostPagedElements = std::int64_t{8} << 32;  // of k, counted in 16 bytes

bool has_block_factors(FmhaQscale how) {
  return how == FmhaQscale::per_block || how == FmhaQscale::kv_block;
}

device::FlashShape shape_of(const FmhaSignature& s, const Algorithm& a) {
  const bool bends = s.soft_cap || s.bias != FmhaBias::none || s.dropout;
  return {a.wave.m,
          a.tile.n,
          a.tile.k,
          flash_gpu_hdim_v(a.tile.k),
          a.stages,
          bends,
          is_eight_bits(s.in),
          has_block_factors(s.qscale),
          size_of(s.out) != 2,
          s.pages != FmhaPages::none};
}

// ---- which kernels there are ----

struct FlashCase {
  const FmhaSignature& signature;
  const Algorithm& algorithm;
  const Target& target;
};

std::string types_of(const FmhaSignature& s) {
  return fmt::format("in {}, out {}", to_string(s.in), to_string(s.out));
}

bool sizes_fit(const Algorithm& a) {
  constexpr std::array kHeads = {64, 128, 192, 256};
  return std::find(kHeads.begin(), kHeads.end(), a.tile.k) != kHeads.end() && a.tile.n >= 64 &&
         a.tile.n <= kMostWgmmaColumns && a.tile.n % device::kFlashSlab == 0;
}

// Kernels of 8 bits that would spill registers.
bool bends_too_much(const FlashCase& c) {
  const FmhaSignature& s = c.signature;
  if (!is_eight_bits(s.in) || (!s.soft_cap && s.bias == FmhaBias::none)) return false;
  return s.lengths != FmhaLengths::equal || size_of(s.out) != 2 || has_block_factors(s.qscale) ||
         c.algorithm.tile.k > 64;
}
bool scales_too_much(const FlashCase& c) {
  const FmhaSignature& s = c.signature;
  return has_block_factors(s.qscale) && s.lengths != FmhaLengths::equal &&
         c.algorithm.tile.k == 256;
}

constexpr tile::Rule<FlashCase> kFlashRules[] = {
    {[](const FlashCase& c) {
       const FmhaSignature& s = c.signature;
       const bool is_half = (s.in == DType::fp16 || s.in == DType::bf16) && s.out == s.in;
       return is_half || is_eight_bits(s.in);
     },
     [](const FlashCase& c) {
       return fmt::format("tmaws computes fp16 or bf16 with out of that type, fp8 or bf8, got {}",
                          types_of(c.signature));
     }},
    {[](const FlashCase& c) {
       const FmhaSignature& s = c.signature;
       return !is_eight_bits(s.in) || (!s.dropout && s.pages == FmhaPages::none);
     },
     [](const FlashCase& c) {
       const FmhaSignature& s = c.signature;
       return fmt::format("tmaws computes {} without dropout and pages, got pages {}{}",
                          to_string(s.in), to_string(s.pages), s.dropout ? ", dropout" : "");
     }},
    {[](const FlashCase& c) { return !c.signature.random; },
     [](const FlashCase&) {
       return std::string("tmaws stores no random values of dropout, got random=1");
     }},
    {[](const FlashCase& c) { return c.signature.cache_layout == FmhaCacheLayout::linear; },
     [](const FlashCase& c) {
       return fmt::format("tmaws reads pages whose layout is linear, got {}",
                          to_string(c.signature.cache_layout));
     }},
    {[](const FlashCase& c) {
       const Shape3& w = c.algorithm.wave;
       return (w.m == 2 || w.m == 3) && w.n == 1 && w.k == 1;
     },
     [](const FlashCase& c) {
       return fmt::format("tmaws has 2 or 3 consumers over m (2x1x1, 3x1x1), got {}",
                          to_string(c.algorithm.wave));
     }},
    {[](const FlashCase& c) { return c.algorithm.wave.m == 2 || !is_eight_bits(c.signature.in); },
     [](const FlashCase& c) {
       return fmt::format("tmaws has 2 consumers (2x1x1) with in {}, got {}",
                          to_string(c.signature.in), c.algorithm.wave.m);
     }},
    {[](const FlashCase& c) {
       return c.signature.pages == FmhaPages::none || c.algorithm.wave.m == kPagedConsumers;
     },
     [](const FlashCase& c) {
       return fmt::format("tmaws reads pages with {} consumers, got {}", kPagedConsumers,
                          c.algorithm.wave.m);
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
    {[](const FlashCase& c) { return !bends_too_much(c); },
     [](const FlashCase& c) {
       const FmhaSignature& s = c.signature;
       return fmt::format(
           "tmaws with in {} has registers for a soft cap or a bias only with lengths equal, out "
           "fp16 "
           "or bf16, no factors of blocks and k 64, got lengths {}, out {}, qscale {}, k {}",
           to_string(s.in), to_string(s.lengths), to_string(s.out), to_string(s.qscale),
           c.algorithm.tile.k);
     }},
    {[](const FlashCase& c) { return !scales_too_much(c); },
     [](const FlashCase& c) {
       return fmt::format(
           "tmaws with tile {} has registers for factors of blocks only with lengths equal, got {}",
           to_string(c.algorithm.tile), to_string(c.signature.lengths));
     }},
    {[](const FlashCase& c) {
       const device::FlashShape shape = shape_of(c.signature, c.algorithm);
       return device::flash_registers_used(shape, false) <= device::flash_registers(shape);
     },
     [](const FlashCase& c) {
       const device::FlashShape shape = shape_of(c.signature, c.algorithm);
       return fmt::format("tile {} needs {} registers a thread, {} consumers have {}",
                          to_string(c.algorithm.tile), device::flash_registers_used(shape, false),
                          shape.consumers, device::flash_registers(shape));
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

std::array<WindowTokens, 4> tokens_of(const FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const std::int64_t sequences = is_packed ? 1 : p.batch;
  const std::int64_t queries = is_packed ? p.tokens_q : p.seqlen_q;
  const bool is_paged = p.pages != FmhaPages::none;
  const std::int64_t keys = is_paged ? p.page_size : is_packed ? p.tokens_k : p.seqlen_k;
  const std::int64_t parts = is_paged ? p.num_pages : sequences;
  const std::string_view part = is_paged ? "page" : "sequence";
  return {{{"q", p.in, query_strides(p), p.heads, queries, p.hdim, sequences},
           {"k", p.in, p.k_strides, p.heads_kv, keys, p.hdim, parts, part},
           {"v", p.in, p.v_strides, p.heads_kv, keys, p.hdim_v, parts, part},
           {"out", p.out, p.out_strides, p.heads, queries, p.hdim_v, sequences}}};
}

// At most, where sequences have lengths of their own: how many queries they may have together, and
// a tile that is not full for each.
double most_tiles(const Algorithm& a, const FmhaProblem& p) {
  const double each = std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.batch);
  if (p.lengths != FmhaLengths::packed) return each * double(p.heads);
  return std::min(each, double(p.tokens_q) / a.tile.m + double(p.batch)) * double(p.heads);
}

// The kernel counts the entries of page_table in int.
std::string page_reason(const FmhaProblem& p) {
  if (p.pages == FmhaPages::none) return {};
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

std::string size_reason(const Algorithm& a, const FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const std::int64_t unit = tma_elements(p.in);
  const bool has_tokens_k = is_packed && p.pages == FmhaPages::none;
  const std::array<SizeLimit, 6> limits = {
      {{"hdim", p.hdim, unit, a.tile.k},
       {"hdim_v", p.hdim_v, unit, flash_gpu_hdim_v(a.tile.k)},
       {"seqlen_q", p.seqlen_q, 0, kMostTokens},
       {"seqlen_k", p.seqlen_k, 1, kMostTokens},
       {"tokens_q", is_packed ? p.tokens_q : 1, 0, kMostTokens},
       {"tokens_k", has_tokens_k ? p.tokens_k : 1, has_queries(p) ? 1 : 0, kMostTokens}}};
  if (std::string why = limit_reason(a, p, limits); !why.empty()) return why;
  const double tiles = most_tiles(a, p);
  if (tiles <= kMostBlocks) return {};
  return fmt::format("tmaws counts its tiles up to {}, got about {:.0f} of {} queries", kMostBlocks,
                     tiles, a.tile.m);
}

// A block of keys of the kernel has one factor, and so do the queries of a consumer.
std::string factors_reason(const Algorithm& a, const FmhaProblem& p) {
  const bool of_queries = p.qscale == FmhaQscale::per_block;
  const bool of_keys = has_block_factors(p.qscale);
  struct Limit {
    char name;
    bool counts;
    std::int64_t block, unit, length;
  };
  for (const auto& [name, counts, block, unit, length] :
       {Limit{'q', of_queries, p.qscale_block_q, device::kWgmmaRows, p.seqlen_q},
        Limit{'k', of_keys, p.qscale_block_k, a.tile.n, p.seqlen_k}}) {
    if (!counts || block % unit == 0 || block >= length) continue;
    return fmt::format(
        "qscale_block_{} must be a multiple of {} with tmaws and tile {}, or at least seqlen_{} "
        "{}, "
        "got {}",
        name, unit, to_string(a.tile), name, length, block);
  }
  return {};
}

// ---- the launch ----

// With a mask the tiles of a head differ, and heads that read the same keys run side by side.
int tile_section(const FmhaProblem& p) {
  if (p.mask == FmhaMask::none) return 1;
  const std::int64_t read = p.seqlen_k * (p.hdim + p.hdim_v) * size_of(p.in);
  return section_of(p.heads * p.batch, read, p.heads / p.heads_kv);
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
  return tile::broken_sentence(kFlashRules, c);
}

std::string flash_gpu_unsupported(const KernelSpec& spec, const FmhaProblem& p) {
  if (std::string why = size_reason(spec.algorithm, p); !why.empty()) return why;
  for (const WindowTokens& t : tokens_of(p)) {
    if (std::string why = window_reason(t); !why.empty()) return why;
  }
  if (std::string why = page_reason(p); !why.empty()) return why;
  if (p.num_splits > 1) {
    return fmt::format("tmaws does not cut keys, num_splits must be 0 or 1, got {}", p.num_splits);
  }
  if (std::string why = sink_reason(p); !why.empty()) return why;
  // Scores of 16 bits are compared before they are scaled.
  if (!is_eight_bits(p.in) && !(p.scale > 0)) {
    return fmt::format("tmaws needs a scale above 0, got {}", p.scale);
  }
  return factors_reason(spec.algorithm, p);
}

Source emit_flash_gpu(const KernelSpec& spec) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const int hdim_v = flash_gpu_hdim_v(a.tile.k);
  const bool in_registers = device::flash_sizes(shape_of(s, a)).queries_in_registers;
  const tile::WgmmaFrom queries =
      in_registers ? tile::WgmmaFrom::registers : tile::WgmmaFrom::k_lines;
  const DType weight = is_eight_bits(s.in) ? DType::fp16 : s.in;
  const std::array<tile::Wgmma, 2> products = {
      {{s.in, s.in, a.tile.n, queries, tile::WgmmaFrom::k_lines},
       {weight, weight, hdim_v, tile::WgmmaFrom::registers, tile::WgmmaFrom::row_lines}}};
  const std::string config = fmt::format(
      "  using In = {};\n"
      "  using Out = {};\n"
      "  using Bias = {};\n"
      "  static constexpr FmhaLengths kLengths = FmhaLengths::{};\n"
      "  static constexpr FmhaBias kBias = FmhaBias::{};\n"
      "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
      "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
      "  static constexpr bool kMasked = {}, kSoftCap = {}, kLse = {}, kDropout = {};\n"
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kHdimV = {};\n"
      "  static constexpr int kStages = {}, kWaveM = {};\n",
      to_string(s.in), tile::storage_type(s.out), tile::storage_type(s.dtype_bias),
      to_string(s.lengths), to_string(s.bias), to_string(s.qscale), to_string(s.pages), s.masked,
      s.soft_cap, s.lse, s.dropout, a.tile.m, a.tile.n, a.tile.k, hdim_v, a.stages, a.wave.m);
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
  if (!has_queries(p)) return set_arguments(g, p, o, launch);  // pages may be checked all the same
  g.query_tiles = static_cast<int>(tile::blocks_of(p.seqlen_q, a.tile.m));
  g.tiles = static_cast<int>(most_tiles(a, p));
  g.section = tile_section(p);
  const SeenKeys seen = seen_keys(p);
  g.left = seen.left, g.right = seen.right;
  set_arguments(g, p, o, launch);
  launch.workspace.bytes = device::kCounterBytes;
  launch.workspace.counter_bytes = 2 * sizeof(std::uint32_t);
  launch.workspace.address_offset = offsetof(FlashArguments, workspace);
  const std::array<const void*, 4> bases = {queries_of(p, o), o.k, values_of(p, o), o.out};
  const std::array<std::size_t, 4> offsets = {
      offsetof(FlashArguments, q_map), offsetof(FlashArguments, k_map),
      offsetof(FlashArguments, v_map), offsetof(FlashArguments, out_map)};
  const int keys = p.pages == FmhaPages::none ? a.tile.n : device::flash_box(p.page_size, a.tile.n);
  const std::array<int, 4> rows = {device::kWgmmaRows, keys, keys, device::kFlashStoredRows};
  const std::array<WindowTokens, 4> all = tokens_of(p);
  const int of_values = is_eight_bits(p.in) ? flash_gpu_hdim_v(a.tile.k) : 0;
  const std::array<int, 4> elements = {0, 0, of_values, 0};
  for (std::size_t i = 0; i < all.size(); ++i) {
    refuse_unaligned(all[i].name, bases[i]);
    // Threads store results that do not have 16 bits.
    if (i == 3 && size_of(p.out) != 2) continue;
    launch.tensor_maps.push(window_of(all[i], bases[i], offsets[i], rows[i], elements[i]));
  }
  const device::FlashShape shape = shape_of(std::get<FmhaSignature>(spec.signature), a);
  launch.steps.push(flash_step(g.tiles, a.wave.m, device::flash_bytes(shape)));
}

}  // namespace tessera::fmha
