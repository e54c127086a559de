// What the texts of ways share, and the arguments of launches.
#include "tessera/families/fmha/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/forever.h"
#include "tessera/device/fmha_dropout.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {

std::string types_text(const FmhaSignature& s) {
  return fmt::format(
      "  using In = {};\n"
      "  using Out = {};\n"
      "  using Bias = {};\n"
      "  static constexpr FmhaLengths kLengths = FmhaLengths::{};\n"
      "  static constexpr FmhaBias kBias = FmhaBias::{};\n",
      tile::storage_type(s.in), tile::storage_type(s.out), tile::storage_type(s.dtype_bias),
      to_string(s.lengths), to_string(s.bias));
}

std::string kv_text(const FmhaSignature& s) {
  return fmt::format("  using Kv = {};\n", tile::storage_type(kv_type(s)));
}

std::string config_text(const KernelSpec& spec) {
  const FmhaSignature& s = signature_in(spec);
  const Algorithm& a = spec.algorithm;
  return types_text(s) + kv_text(s) +
         fmt::format(
             "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
             "  static constexpr FmhaCacheLayout kCacheLayout = FmhaCacheLayout::{};\n"
             "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
             "  static constexpr bool kMasked = {}, kSoftCap = {}, kLse = {};\n"
             "  static constexpr bool kDropout = {}, kRandom = {};\n"
             "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kHdimV = {};\n"
             "  static constexpr int kWaveM = {}, kWarpM = {}, kWarpN = {};\n",
             to_string(s.pages), to_string(s.cache_layout), to_string(s.qscale), s.masked,
             s.soft_cap, s.lse, s.dropout, s.random, a.tile.m, a.tile.n, a.tile.k,
             most_hdim_v(a.tile.k), a.wave.m, a.warp_tile.m, a.warp_tile.n);
}

std::string backward_config_text(const KernelSpec& spec) {
  return config_text(spec) +
         fmt::format("  static constexpr bool kDbias = {};\n", signature_in(spec).dbias);
}

std::span<const std::string> cpu_entries(const KernelSpec& spec) {
  using Ends = std::array<std::string, 2>;
  static const Forever<Ends> kEnds(Ends{"", "_check"});
  return std::span(*kEnds).first(is_paged(spec) ? 2 : 1);
}

void add_check_step(const FmhaProblem& p, int threads, Launch& launch) {
  if (!p.check_pages) return;
  Step step;
  step.entry = 1;
  step.block = {static_cast<unsigned>(threads), 1, 1};
  launch.steps.push(step);
}

void copy_strides(const FmhaStrides& from, device::i64 (&to)[device::kTokenStrides]) {
  std::copy(from.begin(), from.end(), to);
}

std::array<unsigned, 3> grid_of(const std::array<std::int64_t, 3>& blocks) {
  constexpr std::array<std::int64_t, 3> kMost = {1 << 30, 65535, 65535};
  std::array<unsigned, 3> grid{};
  for (std::size_t i = 0; i < grid.size(); ++i) {
    grid[i] = static_cast<unsigned>(std::min(blocks[i], kMost[i]));
  }
  return grid;
}

device::FmhaArguments arguments_of(const FmhaProblem& p, const FmhaOperands& o) {
  device::FmhaArguments g{};
  g.q = queries_of(p, o), g.k = o.k, g.v = values_of(p, o), g.bias = o.bias, g.slopes = o.slopes;
  g.seqlens_q = o.seqlens_q, g.seqlens_k = o.seqlens_k;
  g.out = o.out, g.lse = o.lse;
  g.batch = p.batch, g.heads = p.heads, g.heads_kv = p.heads_kv;
  g.seqlen_q = p.seqlen_q, g.seqlen_k = p.seqlen_k;
  g.tokens_q = p.tokens_q, g.tokens_k = p.tokens_k;
  g.hdim = p.hdim, g.hdim_v = p.hdim_v;
  copy_strides(query_strides(p), g.q_stride), copy_strides(p.k_strides, g.k_stride);
  copy_strides(p.v_strides, g.v_stride), copy_strides(p.out_strides, g.out_stride);
  copy_strides(p.bias_strides, g.bias_stride);
  if (is_packed(p)) {
    g.q_stride[0] = g.out_stride[0] = 0;
    if (!is_paged(p)) g.k_stride[0] = g.v_stride[0] = 0;
  }
  const LseLayout lse = lse_layout(p);
  std::copy(lse.strides.begin(), lse.strides.end(), g.lse_stride);
  g.slope_stride = p.slope_stride;
  g.window_left = p.window_left, g.window_right = p.window_right;
  g.sink = p.sink, g.skip_q = p.skip_q;
  g.num_splits = p.num_splits;
  g.scale = p.scale, g.soft_cap = p.soft_cap;
  g.at_end = p.mask == FmhaMask::bottom_right ? 1 : 0;
  g.kept = device::dropout_kept(p.p_drop);
  g.dropout_rng = reinterpret_cast<const device::u64*>(o.dropout_rng);
  g.seed = o.seed, g.offset = o.offset;
  g.random_values = o.random_values;
  set_page_fields(p, o, g);
  g.descale_q = o.descale_q, g.descale_k = o.descale_k, g.descale_v = o.descale_v;
  g.scale_o = o.scale_o;
  g.block_q = p.qscale_block_q, g.block_k = p.qscale_block_k;
  g.blocks_q = blocks_of_queries(p), g.blocks_k = blocks_of_keys(p);
  return g;
}

device::FmhaBackwardArguments backward_arguments(const FmhaProblem& p, const FmhaOperands& o) {
  device::FmhaBackwardArguments g{};
  g.forward = arguments_of(p, o);
  g.dout = o.dout, g.dq = o.dq, g.dk = o.dk, g.dv = o.dv, g.dbias = o.dbias;
  g.dlse = o.dlse;
  copy_strides(p.dout_strides, g.dout_stride), copy_strides(p.dq_strides, g.dq_stride);
  copy_strides(p.dk_strides, g.dk_stride), copy_strides(p.dv_strides, g.dv_stride);
  if (is_packed(p)) {
    for (device::i64* stride : {g.dout_stride, g.dq_stride, g.dk_stride, g.dv_stride}) {
      stride[device::kTokenBatch] = 0;
    }
  }
  return g;
}

}  // namespace tessera::fmha
