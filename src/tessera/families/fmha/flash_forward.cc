#include "tessera/families/fmha/flash_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tessera/device/cuda/fmha/flash_arguments.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::fmha {
namespace {

using device::FlashArguments;

// At most, where sequences have lengths of their own: how many queries they may have together, and
// a tile that is not full for each.
double most_tiles(const Algorithm& a, const FmhaProblem& p) {
  const double each = std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.batch);
  if (!is_packed(p)) return each * double(p.heads);
  return std::min(each, double(p.tokens_q) / a.tile.m + double(p.batch)) * double(p.heads);
}

// With a mask the tiles of a head differ, and heads that read the same keys run side by side.
int tile_section(const FmhaProblem& p) {
  if (p.mask == FmhaMask::none) return 1;
  const std::int64_t read = p.seqlen_k * (p.hdim + p.hdim_v) * size_of(p.in);
  return section_of(p.heads * p.batch, read, p.heads / p.heads_kv);
}

FlashArguments arguments_for(const Algorithm& a, const FmhaProblem& p, const FmhaOperands& o) {
  FlashArguments g{};
  g.fmha = arguments_of(p, o);
  if (!has_queries(p)) return g;
  g.query_tiles = static_cast<int>(tile::ceil_div(p.seqlen_q, a.tile.m));
  g.tiles = static_cast<int>(most_tiles(a, p));
  g.section = tile_section(p);
  const SeenKeys seen = seen_keys(p);
  g.left = seen.left, g.right = seen.right;
  return g;
}

}  // namespace

bool has_block_factors(FmhaQscale how) {
  return how == FmhaQscale::per_block || how == FmhaQscale::kv_block;
}

std::array<WindowTokens, 4> tokens_of(const FmhaProblem& p) {
  const TokenCounts n = token_counts(p);
  return {{{"q", p.in, query_strides(p), p.heads, n.queries, p.hdim, n.sequences},
           {"k", p.in, p.k_strides, p.heads_kv, n.keys, p.hdim, n.parts, n.part},
           {"v", p.in, p.v_strides, p.heads_kv, n.keys, p.hdim_v, n.parts, n.part},
           {"out", p.out, p.out_strides, p.heads, n.queries, p.hdim_v, n.sequences}}};
}

std::string size_reason(const Algorithm& a, const FmhaProblem& p) {
  const std::int64_t unit = tma_elements(p.in);
  const std::array<SizeLimit, 6> limits = {
      {{"hdim", p.hdim, unit, a.tile.k},
       {"hdim_v", p.hdim_v, unit, most_hdim_v(a.tile.k)},
       {"seqlen_q", p.seqlen_q, 0, kMostTokens},
       {"seqlen_k", p.seqlen_k, 1, kMostTokens},
       {"tokens_q", is_packed(p) ? p.tokens_q : 1, 0, kMostTokens},
       {"tokens_k", is_packed(p) && !is_paged(p) ? p.tokens_k : 1, has_queries(p) ? 1 : 0,
        kMostTokens}}};
  if (std::string why = limit_reason(a, p, limits); !why.empty()) return why;
  const double tiles = most_tiles(a, p);
  if (tiles <= kMostBlocks) return {};
  return fmt::format("tmaws counts its tiles up to {}, got about {:.0f} of {} queries", kMostBlocks,
                     tiles, a.tile.m);
}

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

std::string splits_reason(const FmhaProblem& p) {
  if (p.num_splits <= 1) return {};
  return fmt::format("tmaws does not cut keys, num_splits must be 0 or 1, got {}", p.num_splits);
}

double exponential_rate(const Target& target) {
  constexpr double kInACycle = 16;
  return kInACycle * target.clock_ghz * 1e9;
}

Launch forward_launch(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                      const ForwardWindows& windows, std::int64_t shared_bytes) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  add_first_steps(spec, p, device::flash_threads(a.wave.m), launch);
  const FlashArguments g = arguments_for(a, p, o);
  set_arguments(g, p, o, launch);
  if (!has_queries(p)) return launch;  // pages may be checked all the same
  launch.workspace.bytes = device::kCounterBytes;
  launch.workspace.counter_bytes = 2 * sizeof(std::uint32_t);
  launch.workspace.address_offset = offsetof(FlashArguments, workspace);
  const std::array<const void*, 4> bases = {queries_of(p, o), o.k, values_of(p, o), o.out};
  const std::array<std::size_t, 4> offsets = {
      offsetof(FlashArguments, q_map), offsetof(FlashArguments, k_map),
      offsetof(FlashArguments, v_map), offsetof(FlashArguments, out_map)};
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const ForwardWindow& w = windows[i];
    refuse_unaligned(w.tokens.name, bases[i]);
    // Threads store results that do not have 16 bits.
    if (i == 3 && size_of(p.out) != 2) continue;
    launch.tensor_maps.push(window_of(w.tokens, bases[i], offsets[i], w.rows, w.elements));
  }
  launch.steps.push(flash_step(g.tiles, a.wave.m, shared_bytes));
  return launch;
}

}  // namespace tessera::fmha
