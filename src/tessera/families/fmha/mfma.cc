// Attention by matrix instructions on AMD GPUs: rules, which problems they serve, text, launch,
// predicted times. device/hip/fmha/mfma_fmha.h says how the kernels work.
#include "tessera/families/fmha/mfma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/hip.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {
namespace {

constexpr int kRegistersKept = 160;  // of a wave that is alone on its SIMD, or it would spill

bool bends_scores(const FmhaSignature& s) { return s.soft_cap || s.bias != FmhaBias::none; }
bool is_split(const Algorithm& a) { return a.pipeline == Pipeline::splitkv; }

// Whether weights are rounded to 8 bits: where the reference lets them be (may_round_weights()).
// Elsewhere they are fp16, and so are values of 8 bits.
bool rounds_weights(const FmhaSignature& s) {
  return is_eight_bits(s.in) && s.kind == FmhaKind::forward && !bends_scores(s) && !s.dropout &&
         s.pages == FmhaPages::none;
}
// Whether tiles of keys have factors of their own.
bool has_tile_factors(FmhaQscale how) {
  return how == FmhaQscale::per_block || how == FmhaQscale::kv_block;
}
// Keys of a tile that a wave multiplies.
int own_keys(const Algorithm& a) { return a.tile.n / (is_split(a) ? a.wave.n : 1); }

}  // namespace

bool copies_mfma_tiles(const Algorithm& a) {
  return a.pipeline == Pipeline::qrasync || (is_split(a) && a.stages > 1);
}

device::MfmaFmhaShape mfma_shape(const FmhaSignature& s, const Algorithm& a) {
  const int waves = a.wave.m * a.wave.n;
  return {.blocks = a.tile.m / (a.wave.m * kMfmaWarpTile.m),
          .waves = waves,
          .keys = a.tile.n,
          .head = a.tile.k,
          .head_v = most_hdim_v(a.tile.k),
          .copies = copies_mfma_tiles(a),
          .bias_bytes = s.bias == FmhaBias::elementwise ? size_of(s.dtype_bias) : 0,
          .bends = bends_scores(s),
          .dropout = s.dropout,
          .teams = is_split(a) ? a.wave.n : 0,
          .pages = s.pages != FmhaPages::none,
          .kv_bytes = size_of(kv_type(s)),
          .in_bytes = size_of(s.in),
          .weight_bytes = rounds_weights(s) ? 1 : 2,
          .out_bytes = size_of(s.out)};
}

std::int64_t mfma_lds_bytes(const FmhaSignature& s, const Algorithm& a) {
  return device::mfma_fmha_lds_bytes(mfma_shape(s, a));
}

// ---- which kernels there are ----

namespace {

// What the kernels do not compute, as a field and its word; empty where they do.
std::string not_computed(const FmhaSignature& s, const Algorithm& a) {
  if (s.kind != FmhaKind::forward && s.kind != FmhaKind::extend) {
    return fmt::format("kind {}", to_string(s.kind));
  }
  if (s.qscale == FmhaQscale::per_token) return fmt::format("qscale {}", to_string(s.qscale));
  if (s.cache_layout != FmhaCacheLayout::linear) {
    return fmt::format("cache_layout {}", to_string(s.cache_layout));
  }
  if (s.dropout && is_split(a)) return "dropout 1";
  return s.random ? "random 1" : "";
}

// Chunks of a key that a tile of keys has besides, behind a power of two of them.
int chunks_behind(int chunks) {
  int power = 1;
  while (2 * power <= chunks) power *= 2;
  return chunks - power;
}

// Whether the lanes of a workgroup move whole tiles: of keys 16 bytes each, of values 2, 4 or 8
// elements of 8 keys where they transpose them, or 4 bytes of 16 keys.
bool move_whole_tiles(const device::MfmaFmhaShape& s) {
  const int lanes = device::mfma_fmha_threads(s);
  const int chunks = s.head * s.kv_bytes / kPieceBytes, behind = chunks_behind(chunks);
  const int elements = s.keys / 8 * s.head_v;
  if (s.keys * (chunks - behind) % lanes != 0 || s.keys * behind % lanes != 0) return false;
  // Rows of two chunks repeat the exchange of places less often than an instruction has rows.
  if (s.kv_bytes == 1) {
    return chunks - behind >= 4 && lanes % (s.head_v / 4) == 0 &&
           (!s.copies || s.keys * s.head_v / kPieceBytes % lanes == 0);
  }
  if (elements % lanes != 0) return false;
  const int each = elements / lanes;
  return s.copies || each == 2 || each == 4 || each == 8;
}

// A SIMD has the same registers for one wave as for two together.
int registers_left(const Case& c) {
  const int lanes = device::mfma_fmha_threads(mfma_shape(c.signature, c.algorithm));
  return std::min(c.target.registers_per_thread - kRegistersKept,
                  c.target.registers_per_unit / lanes);
}

}  // namespace

bool has_mfma_types(const Case& c) {
  const FmhaSignature& s = c.signature;
  if (is_eight_bits(s.in)) return true;
  return (s.in == DType::fp16 || s.in == DType::bf16) && s.out == s.in;
}
std::string mfma_types_sentence(const Case& c) {
  return fmt::format("{} computes fp16 or bf16 with out of that type, or 8 bits, got in {}, out {}",
                     to_string(c.algorithm.pipeline), to_string(c.signature.in),
                     to_string(c.signature.out));
}
bool mfma_computes(const Case& c) { return not_computed(c.signature, c.algorithm).empty(); }
std::string mfma_computes_sentence(const Case& c) {
  return fmt::format("{} does not compute {}", to_string(c.algorithm.pipeline),
                     not_computed(c.signature, c.algorithm));
}
bool has_waves_over_rows(const Case& c) {
  const Shape3& w = c.algorithm.wave;
  return (w.m == 4 || w.m == 8) && w.n == 1 && w.k == 1;
}
std::string waves_over_rows_sentence(const Case& c) {
  return fmt::format("a block has 4 or 8 waves over m (4x1x1, 8x1x1), got {}",
                     to_string(c.algorithm.wave));
}
bool has_mfma_warp_tile(const Case& c) { return c.algorithm.warp_tile == kMfmaWarpTile; }
std::string mfma_warp_tile_sentence(const Case& c) {
  return fmt::format("the warp tile of attention on AMD GPUs is {}, got {}",
                     to_string(kMfmaWarpTile), to_string(c.algorithm.warp_tile));
}
bool lanes_move_tiles(const Case& c) {
  return move_whole_tiles(mfma_shape(c.signature, c.algorithm));
}
std::string lanes_sentence(const Case& c) {
  const device::MfmaFmhaShape s = mfma_shape(c.signature, c.algorithm);
  return fmt::format("{} lanes do not move whole tiles of {} keys and heads of {} with {}",
                     device::mfma_fmha_threads(s), s.keys, s.head, to_string(c.algorithm.pipeline));
}
bool leaves_registers(const Case& c) {
  return device::mfma_fmha_registers(mfma_shape(c.signature, c.algorithm)) <= registers_left(c);
}
std::string registers_sentence(const Case& c) {
  return fmt::format("tile {} needs about {} registers a lane, {} leaves {} to each of {} waves",
                     to_string(c.algorithm.tile),
                     device::mfma_fmha_registers(mfma_shape(c.signature, c.algorithm)),
                     c.target.name, registers_left(c), c.algorithm.wave.m * c.algorithm.wave.n);
}

namespace {

constexpr Rule kMfmaRules[] = {
    {has_mfma, no_mfma_sentence},
    {has_mfma_types, mfma_types_sentence},
    {mfma_computes, mfma_computes_sentence},
    tile::kRowOf<Case, tile::kUnusedFields>,
    {has_mfma_warp_tile, mfma_warp_tile_sentence},
    {has_waves_over_rows, waves_over_rows_sentence},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       const int rows = c.algorithm.wave.m * kMfmaWarpTile.m;
       const bool heads_fit = t.k == 32 || t.k == 64 || t.k == 128 || t.k == 192 || t.k == 256;
       return (t.m == rows || t.m == 2 * rows) && (t.n == 32 || t.n == 64 || t.n == 128) &&
              heads_fit;
     },
     [](const Case& c) {
       const int rows = c.algorithm.wave.m * kMfmaWarpTile.m;
       return fmt::format(
           "tile must be m x n x k with {} waves, m {} or {}, n 32, 64 or 128, k 32, 64, 128, 192 "
           "or 256, got {}",
           c.algorithm.wave.m, rows, 2 * rows, to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       return c.signature.kind != FmhaKind::extend || c.algorithm.wave.m == kHipAppendWaves;
     },
     [](const Case& c) {
       return fmt::format("blocks that append have {} waves, got wave {} with kind extend",
                          kHipAppendWaves, to_string(c.algorithm.wave));
     }},
    {lanes_move_tiles, lanes_sentence},
    {[](const Case& c) {
       return c.signature.bias != FmhaBias::elementwise ||
              mfma_shape(c.signature, c.algorithm).blocks == 1;
     },
     [](const Case& c) {
       return fmt::format(
           "waves with two blocks of {} rows have no registers for an elementwise bias, got tile "
           "{}",
           kMfmaWarpTile.m, to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       return !is_eight_bits(kv_type(c.signature)) ||
              mfma_shape(c.signature, c.algorithm).blocks == 1;
     },
     [](const Case& c) {
       return fmt::format(
           "waves with two blocks of {} rows have no registers for numbers of 8 bits, got tile {}",
           kMfmaWarpTile.m, to_string(c.algorithm.tile));
     }},
    {leaves_registers, registers_sentence},
    kFitsSharedMemory,
};

std::vector<Algorithm> mfma_algorithms(const Target& target, Pipeline pipeline) {
  return tile::shapes_with(tile::space_of(Op::fmha, target), pipeline, {kMfmaWarpTile});
}
std::vector<Algorithm> qr_algorithms(const Target& target) {
  return mfma_algorithms(target, Pipeline::qr);
}
std::vector<Algorithm> qrasync_algorithms(const Target& target) {
  return mfma_algorithms(target, Pipeline::qrasync);
}

// ---- which problems they serve ----

constexpr std::int64_t kMostLanes = std::numeric_limits<std::uint32_t>::max();  // of a grid
constexpr std::int64_t kMostPages = std::int64_t{1} << 30;

std::array<MovedTokens, 4> moved_tokens(const Algorithm& a, const FmhaProblem& p) {
  const TokenCounts n = token_counts(p);
  // Rows of several heads, and tokens of pages, are found one by one.
  const int rows = is_split(a) ? 1 : a.tile.m, keys = is_paged(p) ? 1 : a.tile.n;
  const bool repeats = is_paged(p);
  const int in = size_of(p.in), kv = size_of(kv_type(p)), out = size_of(p.out);
  return {{{"q", query_strides(p), n.sequences, p.heads, n.queries, p.hdim, rows, true, in},
           {"k", p.k_strides, n.parts, p.heads_kv, n.keys, p.hdim, keys, repeats, kv},
           {"v", p.v_strides, n.parts, p.heads_kv, n.keys, p.hdim_v, keys, repeats, kv},
           {"out", p.out_strides, n.sequences, p.heads, n.queries, p.hdim_v, rows, true, out}}};
}

// The kernel counts the bytes of a head's pages in 32 bits.
std::string cache_reason(std::string_view name, const FmhaStrides& strides, std::int64_t hdim,
                         std::string_view pipeline, const FmhaProblem& p) {
  const double most = double(device::kMostPlace) / size_of(kv_type(p));
  const double elements = double(p.num_pages - 1) * double(strides[device::kTokenBatch]) +
                          double(p.page_size - 1) * double(strides[device::kToken]) + double(hdim);
  if (elements <= most) return {};
  return fmt::format("{} reads a head's pages of at most {:.0f} elements, got about {:.0f} of {}",
                     pipeline, most, elements, name);
}
std::string pages_reason(std::string_view pipeline, const FmhaProblem& p) {
  if (!is_paged(p)) return {};
  if (p.num_pages > kMostPages) {
    return fmt::format("num_pages must be at most {} with {}, got {}", kMostPages, pipeline,
                       p.num_pages);
  }
  if (std::string why = cache_reason("k", p.k_strides, p.hdim, pipeline, p); !why.empty()) {
    return why;
  }
  return cache_reason("v", p.v_strides, p.hdim_v, pipeline, p);
}

// A wave has one factor of the keys that it multiplies.
std::string tile_factors_reason(const Algorithm& a, const FmhaProblem& p) {
  if (!has_tile_factors(p.qscale)) return {};
  const std::int64_t block = is_paged(p) ? p.page_size : p.qscale_block_k;
  const int keys = own_keys(a);
  if (block % keys == 0 || (!is_paged(p) && block >= p.seqlen_k)) return {};
  return fmt::format("{} must be a multiple of {} with {} and tile {}, got {}",
                     is_paged(p) ? "the page_size of factors" : "qscale_block_k", keys,
                     to_string(a.pipeline), to_string(a.tile), block);
}

}  // namespace

std::int64_t most_mfma_blocks(const device::MfmaFmhaShape& s) {
  return kMostLanes / device::mfma_fmha_threads(s);
}

std::string mfma_reason(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  const std::string_view pipeline = to_string(spec.algorithm.pipeline);
  if (Verdict fits = serves_heads(spec, p, target); !fits) return fits.reason;
  if (std::string why = moved_size_reason(p, pipeline, size_of(kv_type(p))); !why.empty()) {
    return why;
  }
  if (std::string why = tile_factors_reason(spec.algorithm, p); !why.empty()) return why;
  for (const MovedTokens& t : moved_tokens(spec.algorithm, p)) {
    if (std::string why = stride_reason(t, pipeline); !why.empty()) return why;
  }
  if (std::string why = pages_reason(pipeline, p); !why.empty()) return why;
  constexpr std::int64_t kMostKeyStride = std::numeric_limits<std::int32_t>::max();
  if (p.bias != FmhaBias::elementwise || p.bias_strides[3] <= kMostKeyStride) return {};
  return fmt::format("keys of the bias must be at most {} elements apart with {}, got {}",
                     kMostKeyStride, pipeline, p.bias_strides[3]);
}

namespace {

std::string blocks_reason(const KernelSpec& spec, const FmhaProblem& p) {
  const std::int64_t most = most_mfma_blocks(mfma_shape(signature_in(spec), spec.algorithm));
  const double blocks =
      std::ceil(double(p.seqlen_q) / spec.algorithm.tile.m) * double(p.heads) * double(p.batch);
  if (blocks <= double(most)) return {};
  return fmt::format("{} counts its tiles up to {}, got about {:.0f} of {} queries",
                     to_string(spec.algorithm.pipeline), most, blocks, spec.algorithm.tile.m);
}

Verdict mfma_serves(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  if (std::string why = mfma_reason(spec, p, target); !why.empty()) return {why};
  if (std::string why = blocks_reason(spec, p); !why.empty()) return {why};
  if (p.num_splits <= 1) return {};
  return {fmt::format("{} does not cut keys, num_splits must be 0 or 1, got {}",
                      to_string(spec.algorithm.pipeline), p.num_splits)};
}

}  // namespace

// ---- the text ----

std::string mfma_config(const KernelSpec& spec, const Target& target, int teams) {
  const FmhaSignature& s = signature_in(spec);
  const device::MfmaFmhaShape shape = mfma_shape(s, spec.algorithm);
  return types_text(s) + kv_text(s) +
         fmt::format(
             "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
             "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
             "  static constexpr bool kByteWeights = {};\n"
             "  static constexpr bool kMasked = {}, kLse = {}, kCopies = {};\n"
             "  static constexpr bool kSoftCap = {}, kDropout = {}, kSplit = {};\n"
             "  static constexpr int kHeadSize = {}, kHdimV = {}, kKeys = {}, kTeams = {};\n"
             "  static constexpr int kBlocks = {}, kWaves = {}, kXcds = {};\n",
             to_string(s.pages), to_string(s.qscale), shape.weight_bytes == 1, s.masked, s.lse,
             shape.copies, s.soft_cap, s.dropout, shape.teams > 0, shape.head, shape.head_v,
             shape.keys, teams, shape.blocks, shape.waves, target.xcds);
}

namespace {

Source emit_mfma(const KernelSpec& spec, const Target& target) {
  const device::MfmaFmhaShape shape = mfma_shape(signature_in(spec), spec.algorithm);
  return attention_on_hip(spec, target,
                          {"fmha/mfma_fmha.h", "MfmaFmha", "MfmaFmhaArguments",
                           mfma_config(spec, target, device::mfma_fmha_teams(shape))},
                          device::mfma_fmha_threads(shape),
                          device::mfma_fmha_waves(shape) * 4 / shape.waves);
}

// ---- the launch ----

// The distance of tokens, of which there is one, may be too large for the kernel.
void drop_unused_strides(const FmhaProblem& p, device::FmhaArguments& g) {
  const TokenCounts n = token_counts(p);
  if (n.queries <= 1) g.q_stride[device::kToken] = g.out_stride[device::kToken] = p.hdim;
  if (n.keys <= 1) g.k_stride[device::kToken] = g.v_stride[device::kToken] = p.hdim;
}

}  // namespace

device::MfmaFmhaArguments mfma_arguments(const Algorithm& a, const FmhaProblem& p,
                                         const FmhaOperands& o) {
  device::MfmaFmhaArguments arguments{};
  device::FmhaArguments& g = arguments.fmha;
  g = arguments_of(p, o);
  drop_unused_strides(p, g);
  if (!has_queries(p)) return arguments;
  refuse_pieces("q", g.q, a.pipeline), refuse_pieces("k", g.k, a.pipeline);
  refuse_pieces("v", g.v, a.pipeline), refuse_pieces("out", g.out, a.pipeline);
  return arguments;
}

namespace {

Launch bind_mfma(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                 const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  device::MfmaFmhaArguments arguments = mfma_arguments(a, p, o);
  arguments.tiles = static_cast<int>(tile::ceil_div(p.seqlen_q, a.tile.m));
  arguments.total = static_cast<int>(arguments.tiles * p.heads * p.batch);
  arguments.parts = 1;
  const int threads = device::mfma_fmha_threads(mfma_shape(signature_in(spec), a));
  Launch launch;
  begin_on_hip(spec, p, o, arguments, threads, launch);
  if (!has_queries(p)) return launch;
  launch.steps.push({.grid = {static_cast<unsigned>(arguments.total), 1, 1},
                     .block = {static_cast<unsigned>(threads), 1, 1}});
  return launch;
}

// ---- predicted times ----

// Cycles, of which none was measured.
constexpr double kVectorCycles = 4, kExponentialCycles = 16;  // of an instruction of a wave
constexpr double kVectorOfScore = 3, kVectorOfTile = 25;      // instructions of a lane
constexpr double kVectorOfFactor = 0.5, kVectorOfBend = 4, kVectorOfDropout = 10;
constexpr double kVectorOfPages = 60;

}  // namespace

// Cycles in which a unit makes a tile: what takes longest, and as much of the rest as too few waves
// of a SIMD hide.
double cycles_of_tile(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  if (is_latent_mfma(spec.algorithm)) return cycles_of_latent_tile(spec, p, target);
  const Algorithm& a = spec.algorithm;
  const device::MfmaFmhaShape s = mfma_shape(signature_in(spec), a);
  const double bytes = double(s.keys) * (s.head + s.head_v) * s.kv_bytes;
  const double products = double(a.tile.m) * s.keys;
  const DType of_values = s.kv_bytes == 1 && s.weight_bytes == 2 ? DType::fp16 : p.in;
  const double multiply =
      products * target.clock_ghz * 1e9 *
      (s.head / product_rate(target, p.in) + s.head_v / product_rate(target, of_values));
  const double scores = double(s.blocks) * s.keys / 2 / device::mfma_fmha_teams(s);
  const double more = (s.bends ? kVectorOfBend : 0) + (s.dropout ? kVectorOfDropout : 0) +
                      (s.kv_bytes == 1 ? kVectorOfFactor : 0);
  // A lane widens numbers of 8 bits one by one.
  const int widened =
      (s.kv_bytes < s.in_bytes ? s.head : 0) + (s.kv_bytes < s.weight_bytes ? s.head_v : 0);
  const double of_tile = kVectorOfTile + (s.pages ? kVectorOfPages : 0) +
                         double(s.keys) / device::mfma_fmha_teams(s) * widened / kHipLanes;
  const double vector =
      ((kVectorOfScore + more) * scores + of_tile) * kVectorCycles + scores * kExponentialCycles;
  const double weigh = vector * s.waves / 4;
  const double lds = (double(s.waves) / device::mfma_fmha_teams(s) + 1) * bytes /
                     std::max(1.0, target.shared_bytes_per_cycle);
  const double l2 = target.caches.size() > 1 ? target.caches[1].bytes_per_cycle : 0;
  const double fetch = bytes / std::max(1.0, l2);
  const double longest = std::max({multiply, weigh, lds, fetch});
  return longest + (multiply + weigh + lds + fetch - longest) / (2 * device::mfma_fmha_waves(s));
}

namespace {

// Keys of a tile are multiplied whole where the mask cuts it.
Estimate estimate_mfma(const KernelSpec& spec, const FmhaProblem& p, const Target& target, int) {
  const Algorithm& a = spec.algorithm;
  const double units = std::max(1, target.units);
  const double blocks =
      std::ceil(double(p.seqlen_q) / a.tile.m) * double(p.heads) * double(p.batch);
  const double rounds = std::ceil(blocks / units);
  const double padding = std::ceil(double(p.seqlen_q) / a.tile.m) * a.tile.m / double(p.seqlen_q);
  const double cut = p.mask == FmhaMask::none ? 0 : blocks * a.tile.m * a.tile.n / 2;
  const double tiles = std::max((scores(p) * padding + cut) / (double(a.tile.m) * a.tile.n), 1.0);
  const double cycles =
      rounds * (tiles / blocks * cycles_of_tile(spec, p, target) + kFirstKeyCycles);
  const double memory = bytes(p) / (std::max(target.memory_gb_per_s, 1.0) * 1e9);
  return tile::total_of(cycles / (std::max(target.clock_ghz, 0.1) * 1e9), memory,
                        target.launch_us * 1e-6);
}

constexpr Way mfma_way(Pipeline pipeline, std::vector<Algorithm> (*algorithms)(const Target&)) {
  return {.backend = "hip",
          .pipeline = pipeline,
          .rules = kMfmaRules,
          .serves = mfma_serves,
          .algorithms = algorithms,
          .emit = emit_mfma,
          .bind = bind_mfma,
          .estimate = estimate_mfma,
          .own = {.stage = "attend", .shared_bytes = mfma_lds_bytes}};
}

}  // namespace

const Way kQr = mfma_way(Pipeline::qr, qr_algorithms);
const Way kQrasync = mfma_way(Pipeline::qrasync, qrasync_algorithms);

}  // namespace tessera::fmha
