// The gradients of attention by matrix instructions on AMD GPUs: rules, which problems they serve,
// text, launch, predicted times. device/hip/fmha/mfma_backward.h says how the kernels work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tessera/device/hip/fmha/gradient_arguments.h"
#include "tessera/device/hip/fmha/gradient_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/hip.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::fmha {
namespace {

using device::MfmaBackwardArguments;
using device::MfmaBackwardShape;

// Tokens of a workgroup, those of a tile that they meet, and the longest heads.
constexpr std::array kTilesByRegisters = {Shape3{128, 64, 64}, Shape3{128, 32, 128}};
constexpr std::array kTilesByCopies = {Shape3{128, 64, 32}, Shape3{128, 32, 64},
                                       Shape3{128, 64, 64}, Shape3{128, 32, 128}};

std::span<const Shape3> gradient_tiles(Pipeline pipeline) {
  if (pipeline == Pipeline::qrasync) return kTilesByCopies;
  return kTilesByRegisters;
}
std::string gradient_tiles_text(Pipeline pipeline) {
  std::vector<std::string> names;
  for (const Shape3& tile : gradient_tiles(pipeline)) names.push_back(to_string(tile));
  return fmt::format("{}", fmt::join(names, ", "));
}

MfmaBackwardShape gradient_shape(const FmhaSignature& s, const Algorithm& a) {
  return {.waves = a.wave.m,
          .met = a.tile.n,
          .head = a.tile.k,
          .head_v = most_hdim_v(a.tile.k),
          .copies = a.pipeline == Pipeline::qrasync,
          .reads_bias = s.bias == FmhaBias::elementwise,
          .dropout = s.dropout};
}

std::int64_t gradient_lds_bytes(const FmhaSignature& s, const Algorithm& a) {
  const MfmaBackwardShape shape = gradient_shape(s, a);
  return std::max(device::mfma_backward_lds_bytes(shape, false),
                  device::mfma_backward_lds_bytes(shape, true));
}

// ---- which kernels there are ----

constexpr Rule kMfmaBackwardRules[] = {
    {has_mfma, no_mfma_sentence},
    {[](const Case& c) { return c.signature.in == DType::fp16 || c.signature.in == DType::bf16; },
     [](const Case& c) {
       return fmt::format("{} computes gradients in fp16 or bf16, got in {}; direct takes any",
                          to_string(c.algorithm.pipeline), to_string(c.signature.in));
     }},
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) { return c.algorithm.warp_tile == kMfmaWarpTile; },
     [](const Case& c) {
       return fmt::format("the warp tile of attention on AMD GPUs is {}, got {}",
                          to_string(kMfmaWarpTile), to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       return c.algorithm.wave == Shape3{kHipDirectWaves, 1, 1};
     },
     [](const Case& c) {
       return fmt::format("{} has {} waves over m ({}x1x1) with kind=backward, got {}",
                          to_string(c.algorithm.pipeline), kHipDirectWaves, kHipDirectWaves,
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const auto tiles = gradient_tiles(c.algorithm.pipeline);
       return std::ranges::find(tiles, c.algorithm.tile) != tiles.end();
     },
     [](const Case& c) {
       return fmt::format("tile must be one of {} with kind=backward and {}, got {}",
                          gradient_tiles_text(c.algorithm.pipeline),
                          to_string(c.algorithm.pipeline), to_string(c.algorithm.tile));
     }},
    kFitsSharedMemory,
};

std::vector<Algorithm> gradient_algorithms(Pipeline pipeline) {
  std::vector<Algorithm> all;
  for (const Shape3& tile : gradient_tiles(pipeline)) {
    all.push_back({.pipeline = pipeline,
                   .tile = tile,
                   .wave = {kHipDirectWaves, 1, 1},
                   .warp_tile = kMfmaWarpTile});
  }
  return all;
}
std::vector<Algorithm> staged_gradient_algorithms(const Target&) {
  return gradient_algorithms(Pipeline::qr);
}
std::vector<Algorithm> copied_gradient_algorithms(const Target&) {
  return gradient_algorithms(Pipeline::qrasync);
}

// ---- which problems they serve ----

std::array<MovedTokens, 7> gradient_tokens(const Algorithm& a, const FmhaProblem& p) {
  const TokenCounts n = token_counts(p);
  const std::int64_t sequences = n.sequences, parts = n.parts;
  const int rows = a.tile.m;
  return {{{"q", p.q_strides, sequences, p.heads, n.queries, p.hdim, rows},
           {"k", p.k_strides, parts, p.heads_kv, n.keys, p.hdim, rows},
           {"v", p.v_strides, parts, p.heads_kv, n.keys, p.hdim_v, rows},
           {"dout", p.dout_strides, sequences, p.heads, n.queries, p.hdim_v, rows},
           {"dq", p.dq_strides, sequences, p.heads, n.queries, p.hdim, rows},
           {"dk", p.dk_strides, parts, p.heads_kv, n.keys, p.hdim, rows},
           {"dv", p.dv_strides, parts, p.heads_kv, n.keys, p.hdim_v, rows}}};
}

// Workgroups of dq, or of dk and dv.
double gradient_blocks(const Algorithm& a, const FmhaProblem& p, bool of_keys) {
  const std::int64_t tokens = of_keys ? p.seqlen_k : p.seqlen_q;
  const std::int64_t heads = of_keys ? p.heads_kv : p.heads;
  return std::ceil(double(tokens) / a.tile.m) * double(heads) * double(p.batch);
}

Verdict serves_gradients(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  const std::string_view pipeline = to_string(spec.algorithm.pipeline);
  if (Verdict fits = serves_heads(spec, p, target); !fits) return fits;
  if (std::string why = moved_size_reason(p, pipeline); !why.empty()) return {why};
  for (const MovedTokens& t : gradient_tokens(spec.algorithm, p)) {
    if (std::string why = stride_reason(t, pipeline); !why.empty()) return {why};
  }
  constexpr std::int64_t kMostStep = std::numeric_limits<std::int32_t>::max();
  const std::int64_t step = std::max(p.bias_strides[2], p.bias_strides[3]);
  if (p.bias == FmhaBias::elementwise && step > kMostStep) {
    return {
        fmt::format("queries and keys of the bias must be at most {} elements apart with {}, "
                    "got {}",
                    kMostStep, pipeline, step)};
  }
  constexpr double kMostThreads = std::numeric_limits<std::uint32_t>::max();
  const double most = std::floor(kMostThreads / (kHipLanes * spec.algorithm.wave.m));
  const double blocks =
      std::max(gradient_blocks(spec.algorithm, p, false), gradient_blocks(spec.algorithm, p, true));
  if (blocks <= most) return {};
  return {fmt::format("{} counts its tiles up to {:.0f}, got about {:.0f} of {} tokens", pipeline,
                      most, blocks, spec.algorithm.tile.m)};
}

// ---- the text ----

Source emit_gradients(const KernelSpec& spec, const Target& target) {
  const FmhaSignature& s = signature_in(spec);
  const MfmaBackwardShape shape = gradient_shape(s, spec.algorithm);
  const std::array<tile::GpuEntry, 4> entries = {
      {{"", "run", device::mfma_backward_waves(shape, true)},
       {"_prepare", "prepare"},
       {"_dq", "dq", device::mfma_backward_waves(shape, false)},
       {"_dbias", "dbias"}}};
  const std::string config =
      backward_config_text(spec) + fmt::format(
                                       "  static constexpr bool kCopies = {};\n"
                                       "  static constexpr int kXcds = {};\n"
                                       "  static constexpr bool kSplit = false;\n",
                                       shape.copies, target.xcds);
  return tile::hip_source(
      spec, kAbi, {"fmha/mfma_backward.h", "MfmaBackward", "MfmaBackwardArguments", config},
      device::mfma_backward_threads(shape), std::span(entries).first(s.dbias ? 4 : 3));
}

// ---- the launch ----

// The distance of tokens, of which there is one, may be too large for the kernel.
void drop_single_strides(const FmhaProblem& p, device::FmhaBackwardArguments& g) {
  using device::kToken;
  const TokenCounts n = token_counts(p);
  if (n.queries <= 1) {
    g.forward.q_stride[kToken] = g.dout_stride[kToken] = g.dq_stride[kToken] = p.hdim;
  }
  if (n.keys <= 1) {
    g.forward.k_stride[kToken] = g.forward.v_stride[kToken] = p.hdim;
    g.dk_stride[kToken] = g.dv_stride[kToken] = p.hdim;
  }
}

void refuse_gradient_pieces(const device::FmhaBackwardArguments& g, Pipeline pipeline) {
  const std::pair<std::string_view, const void*> all[] = {
      {"q", g.forward.q}, {"k", g.forward.k}, {"v", g.forward.v}, {"dout", g.dout},
      {"dq", g.dq},       {"dk", g.dk},       {"dv", g.dv}};
  for (const auto& [name, base] : all) refuse_pieces(name, base, pipeline);
}

void add_gradient_step(std::uint8_t entry, int total, int threads, Launch& launch) {
  if (total == 0) return;
  Step step;
  step.entry = entry;
  step.grid = {static_cast<unsigned>(total), 1, 1};
  step.block = {static_cast<unsigned>(threads), 1, 1};
  launch.steps.push(step);
}

Launch bind_gradients(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                      const FmhaOperands& o) {
  const Algorithm& a = spec.algorithm;
  const int threads = device::mfma_backward_threads(gradient_shape(signature_in(spec), a));
  const BackwardHipSteps steps = backward_hip_steps(device::kMfmaPlainRows, p);
  MfmaBackwardArguments g{};
  g.general = backward_hip_arguments(p, o, steps, threads);
  drop_single_strides(p, g.general.backward);
  refuse_gradient_pieces(g.general.backward, a.pipeline);
  g.query_tiles = static_cast<int>(tile::ceil_div(p.seqlen_q, a.tile.m));
  g.query_total = static_cast<int>(gradient_blocks(a, p, false));
  g.key_tiles = static_cast<int>(tile::ceil_div(p.seqlen_k, a.tile.m));
  g.key_total = static_cast<int>(gradient_blocks(a, p, true));
  Launch launch;
  launch.arguments.set(g);
  launch.workspace.bytes =
      backward_hip_workspace(g.general, p) + device::kMfmaBackwardSpare * sizeof(float);
  launch.workspace.address_offset =
      offsetof(MfmaBackwardArguments, general) + offsetof(device::HipBackwardArguments, workspace);
  add_backward_hip_step(1, steps.queries, g.general.queries, threads, launch);
  add_gradient_step(0, g.key_total, threads, launch);
  add_gradient_step(2, g.query_total, threads, launch);
  if (p.dbias) add_backward_hip_step(3, steps.biases, g.general.biases, threads, launch);
  return launch;
}

// ---- predicted times ----

// Cycles, of which none was measured.
constexpr double kLaneCycles = 4, kPowerCycles = 16;  // of an instruction of a wave
constexpr double kLaneOfScore = 8, kLaneOfBend = 8;   // instructions of a lane
constexpr double kLaneOfDropout = 12, kLaneOfTile = 60;
constexpr double kFirstTile = 6000;  // before the first product and after the last one

// Cycles in which a unit makes a tile of scores: what takes longest, and as much of the rest as too
// few waves of a SIMD hide.
double cycles_of_scores(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                        bool of_keys) {
  const FmhaSignature& signature = signature_in(spec);
  const MfmaBackwardShape s = gradient_shape(signature, spec.algorithm);
  const double depth = of_keys ? 2.0 * (s.head + s.head_v) : 2.0 * s.head + s.head_v;
  const double products = double(spec.algorithm.tile.m) * s.met * depth;
  const double multiply = products * target.clock_ghz * 1e9 / product_rate(target, p.in);
  const bool bends = signature.soft_cap || signature.bias != FmhaBias::none;
  const double scores = s.met / 2.0;
  const double more = (bends ? kLaneOfBend : 0) + (s.dropout ? kLaneOfDropout : 0);
  const double vector =
      ((kLaneOfScore + more) * scores + kLaneOfTile) * kLaneCycles + scores * kPowerCycles;
  const double weigh = vector * s.waves / 4;
  const double bytes = s.met * depth * 2;
  const double lds = (s.waves + 1) * bytes / std::max(1.0, target.shared_bytes_per_cycle);
  const double l2 = target.caches.size() > 1 ? target.caches[1].bytes_per_cycle : 0;
  const double fetch = bytes / std::max(1.0, l2);
  const double longest = std::max({multiply, weigh, lds, fetch});
  const double hidden = 2.0 * device::mfma_backward_waves(s, of_keys);
  return longest + (multiply + weigh + lds + fetch - longest) / hidden;
}

// Tiles are multiplied whole where the mask cuts them.
double cycles_of_gradients(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                           bool of_keys) {
  const Algorithm& a = spec.algorithm;
  const double blocks = gradient_blocks(a, p, of_keys);
  if (blocks == 0) return 0;
  const double tokens = double(of_keys ? p.seqlen_k : p.seqlen_q);
  const double padding = std::ceil(tokens / a.tile.m) * a.tile.m / tokens;
  const double met_heads = of_keys ? double(p.heads) / double(p.heads_kv) : 1;
  const double cut = p.mask == FmhaMask::none ? 0 : blocks * met_heads * a.tile.m * a.tile.n / 2;
  const double tiles = std::max((scores(p) * padding + cut) / (double(a.tile.m) * a.tile.n), 1.0);
  const double rounds = std::ceil(blocks / std::max(1, target.units));
  return rounds * (tiles / blocks * cycles_of_scores(spec, p, target, of_keys) + kFirstTile);
}

Estimate estimate_gradients(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                            int) {
  const double cycles =
      cycles_of_gradients(spec, p, target, true) + cycles_of_gradients(spec, p, target, false);
  const double memory = bytes(p) / (std::max(target.memory_gb_per_s, 1.0) * 1e9);
  const double of_bias = p.dbias ? backward_hip_bias_time(p, target).seconds : 0;
  return tile::total_of(cycles / (std::max(target.clock_ghz, 0.1) * 1e9) + of_bias, memory,
                        3 * target.launch_us * 1e-6);
}

constexpr Way gradient_way(Pipeline pipeline, std::vector<Algorithm> (*algorithms)(const Target&)) {
  return {
      .backend = "hip",
      .pipeline = pipeline,
      .rules = kMfmaBackwardRules,
      .serves = serves_gradients,
      .algorithms = algorithms,
      .emit = emit_gradients,
      .bind = bind_gradients,
      .estimate = estimate_gradients,
      .own = {.kind = FmhaKind::backward, .stage = "dk dv", .shared_bytes = gradient_lds_bytes}};
}

}  // namespace

const Way kBackwardQr = gradient_way(Pipeline::qr, staged_gradient_algorithms);
const Way kBackwardQrasync = gradient_way(Pipeline::qrasync, copied_gradient_algorithms);

}  // namespace tessera::fmha
