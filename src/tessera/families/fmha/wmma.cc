// Attention by WMMA on AMD GPUs with waves of 32 lanes: rules, which problems they serve, text,
// launch, predicted times. device/hip/fmha/wmma_fmha.h says how the kernels work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/device/hip/fmha/wmma_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/mfma.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::fmha {
namespace {

constexpr Shape3 kWmmaWarpTile = {16, 16, 16};
constexpr int kBentKeys = 32, kSmallHead = 32;

device::WmmaFmhaShape wmma_shape(const Algorithm& a) {
  return {.waves = a.wave.m, .keys = a.tile.n, .head = a.tile.k, .head_v = most_hdim_v(a.tile.k)};
}
std::int64_t wmma_lds_bytes(const FmhaSignature&, const Algorithm& a) {
  return device::wmma_fmha_lds_bytes(wmma_shape(a));
}

// What the kernels do not compute, as a field and its word; empty where they do.
std::string not_by_wmma(const FmhaSignature& s) {
  if (s.kind != FmhaKind::forward) return fmt::format("kind {}", to_string(s.kind));
  if (has_own_kv(s)) return fmt::format("kv {}", to_string(s.kv));
  if (s.qscale != FmhaQscale::none) return fmt::format("qscale {}", to_string(s.qscale));
  if (s.pages != FmhaPages::none) return fmt::format("pages {}", to_string(s.pages));
  if (s.dropout) return "dropout 1";
  return s.random ? "random 1" : "";
}

bool has_wmma(const Case& c) {
  return std::any_of(
      c.target.instructions.begin(), c.target.instructions.end(),
      [&](const Instruction& i) { return i.name == "wmma" && i.a == c.signature.in; });
}

constexpr Rule kWmmaRules[] = {
    {has_wmma,
     [](const Case& c) {
       return fmt::format("{} has no wmma for {}, the warp tile 16x16x16", c.target.name,
                          to_string(c.signature.in));
     }},
    {has_mfma_types, mfma_types_sentence},
    {[](const Case& c) { return not_by_wmma(c.signature).empty(); },
     [](const Case& c) {
       return fmt::format("{} does not compute {} on {}, direct does",
                          to_string(c.algorithm.pipeline), not_by_wmma(c.signature), c.target.name);
     }},
    tile::kRowOf<Case, tile::kUnusedFields>,
    {has_waves_over_rows, waves_over_rows_sentence},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       const bool head_fits = t.k == 32 || t.k == 64 || t.k == 128;
       return t.m == c.algorithm.wave.m * kWmmaWarpTile.m && (t.n == 32 || t.n == 64) && head_fits;
     },
     [](const Case& c) {
       return fmt::format(
           "tile must be {} x n x k with {} waves, n 32 or 64, k 32, 64 or 128, "
           "got {}",
           c.algorithm.wave.m * kWmmaWarpTile.m, c.algorithm.wave.m, to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.n * t.k / piece_elements(2) % device::wmma_fmha_threads(wmma_shape(c.algorithm)) ==
              0;
     },
     [](const Case& c) {
       return fmt::format("{} lanes do not move whole tiles of {} keys and heads of {} with {}",
                          device::wmma_fmha_threads(wmma_shape(c.algorithm)), c.algorithm.tile.n,
                          c.algorithm.tile.k, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) {
       return device::wmma_fmha_registers(wmma_shape(c.algorithm)) <= c.target.registers_per_thread;
     },
     [](const Case& c) {
       return fmt::format("tile {} needs about {} registers a lane, {} has {}",
                          to_string(c.algorithm.tile),
                          device::wmma_fmha_registers(wmma_shape(c.algorithm)), c.target.name,
                          c.target.registers_per_thread);
     }},
    {[](const Case& c) {
       const FmhaSignature& sig = c.signature;
       const bool masks = sig.masked && c.algorithm.tile.k > kSmallHead;
       const bool bends = sig.soft_cap || sig.bias != FmhaBias::none;
       return (!bends && !masks) || c.algorithm.tile.n == kBentKeys;
     },
     [](const Case& c) {
       return fmt::format(
           "tiles with a bias or a soft cap, or with a mask and heads of more than {}, have {} "
           "keys, for more there are no registers, got tile {}",
           kSmallHead, kBentKeys, to_string(c.algorithm.tile));
     }},
    kFitsSharedMemory,
};

std::vector<Algorithm> wmma_algorithms(const Target& target) {
  return tile::shapes_with(tile::space_of(Op::fmha, target), Pipeline::qr, {kWmmaWarpTile});
}

std::int64_t most_blocks(const Algorithm& a) {
  return std::numeric_limits<std::uint32_t>::max() / device::wmma_fmha_threads(wmma_shape(a));
}
Verdict wmma_serves(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  if (std::string why = mfma_reason(spec, p, target); !why.empty()) return {why};
  const double blocks =
      std::ceil(double(p.seqlen_q) / spec.algorithm.tile.m) * double(p.heads) * double(p.batch);
  if (blocks > double(most_blocks(spec.algorithm))) {
    return {fmt::format("{} counts its tiles up to {}, got about {:.0f} of {} queries",
                        to_string(spec.algorithm.pipeline), most_blocks(spec.algorithm), blocks,
                        spec.algorithm.tile.m)};
  }
  if (p.num_splits <= 1) return {};
  return {fmt::format("{} does not cut keys, num_splits must be 0 or 1, got {}",
                      to_string(spec.algorithm.pipeline), p.num_splits)};
}

Source emit_wmma(const KernelSpec& spec, const Target& target) {
  const FmhaSignature& s = signature_in(spec);
  const device::WmmaFmhaShape shape = wmma_shape(spec.algorithm);
  const std::string config =
      types_text(s) +
      fmt::format(
          "  using Kv = In;\n"
          "  static constexpr FmhaPages kPages = FmhaPages::none;\n"
          "  static constexpr bool kMasked = {}, kLse = {}, kSoftCap = {}, kSplit = false;\n"
          "  static constexpr int kHeadSize = {}, kHdimV = {}, kKeys = {}, kWaves = {};\n"
          "  static constexpr int kXcds = {};\n",
          s.masked, s.lse, s.soft_cap, shape.head, shape.head_v, shape.keys, shape.waves,
          target.xcds);
  return attention_on_hip(spec, target,
                          {"fmha/wmma_fmha.h", "WmmaFmha", "MfmaFmhaArguments", config},
                          device::wmma_fmha_threads(shape));
}

Launch bind_wmma(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                 const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  device::MfmaFmhaArguments arguments = mfma_arguments(a, p, o);
  // Lines of values behind the only one have to lie behind it.
  if (token_counts(p).keys <= 1) arguments.fmha.v_stride[device::kToken] = p.hdim_v;
  arguments.tiles = static_cast<int>(tile::ceil_div(p.seqlen_q, a.tile.m));
  arguments.total = static_cast<int>(arguments.tiles * p.heads * p.batch);
  arguments.parts = 1;
  const int threads = device::wmma_fmha_threads(wmma_shape(a));
  Launch launch;
  begin_on_hip(spec, p, o, arguments, threads, launch, target.warp_size);
  if (!has_queries(p)) return launch;
  launch.steps.push({.grid = {static_cast<unsigned>(arguments.total), 1, 1},
                     .block = {static_cast<unsigned>(threads), 1, 1}});
  return launch;
}

// Guesses: nothing was measured. Vector instructions of a score, cycles of one of a wave.
constexpr double kWmmaVectorOfScore = 8, kWmmaVectorCycles = 1;

Estimate estimate_wmma(const KernelSpec& spec, const FmhaProblem& p, const Target& target, int) {
  const Algorithm& a = spec.algorithm;
  const device::WmmaFmhaShape s = wmma_shape(a);
  const double hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  const double blocks =
      std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.heads) * double(p.batch);
  const double rounds = std::ceil(blocks / std::max(1, target.units));
  const double tiles = std::max(1.0, scores(p) / (double(a.tile.m) * a.tile.n));
  const double products = double(a.tile.m) * s.keys * (s.head + s.head_v);
  const double multiply = products * hertz / product_rate(target, p.in);
  // A unit has two SIMDs.
  const double weigh = double(s.keys) / 2 * kWmmaVectorOfScore * kWmmaVectorCycles * s.waves / 2;
  const double lds = (s.waves + 1.0) * s.keys * (s.head + s.head_v) * 2 /
                     std::max(1.0, target.shared_bytes_per_cycle);
  const double cycles = rounds * (tiles / blocks * (multiply + weigh + lds) + kFirstKeyCycles);
  const double memory = bytes(p) / (std::max(target.memory_gb_per_s, 1.0) * 1e9);
  return tile::total_of(cycles / hertz, memory, target.launch_us * 1e-6);
}

}  // namespace

const Way kWmmaQr = {.backend = "hip",
                     .pipeline = Pipeline::qr,
                     .rules = kWmmaRules,
                     .serves = wmma_serves,
                     .algorithms = wmma_algorithms,
                     .emit = emit_wmma,
                     .bind = bind_wmma,
                     .estimate = estimate_wmma,
                     .own = {.is_wmma = true, .stage = "attend", .shared_bytes = wmma_lds_bytes}};

}  // namespace tessera::fmha
