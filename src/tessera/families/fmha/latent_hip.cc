// Latent attention by matrix instructions on AMD GPUs, whole and with keys in parts: rules, which
// problems they serve, text, predicted times. device/hip/fmha/latent_fmha.h says how the kernels
// work; the launches are those of mfma.cc and split_hip.cc.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/device/hip/fmha/latent_sizes.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/mfma.h"
#include "tessera/families/tile/algorithm_space.h"

namespace tessera::fmha {
namespace {

constexpr int kLatentWaves = 4;
constexpr int kMostLatentSlices = 4096;
constexpr int kLongestOtherMfmaHead = 256;

bool latent_splits(const Algorithm& a) { return a.pipeline == Pipeline::splitkv; }
int latent_waves(const Algorithm& a) { return a.wave.m * a.wave.n; }

std::int64_t latent_mfma_bytes(const FmhaSignature&, const Algorithm& a) {
  return device::latent_lds_bytes(latent_waves(a), copies_mfma_tiles(a));
}

// ---- which kernels there are ----

// What the kernels do not compute, as a field and its word; empty where they do.
std::string not_latent(const FmhaSignature& s) {
  if (s.kind != FmhaKind::forward) return fmt::format("kind {}", to_string(s.kind));
  if (has_own_kv(s)) return fmt::format("kv {}", to_string(s.kv));
  if (s.cache_layout != FmhaCacheLayout::linear) {
    return fmt::format("cache_layout {}", to_string(s.cache_layout));
  }
  return s.dropout ? "dropout 1" : "";
}

bool can_copy(const Target& target) {
  return tile::has_pipeline(Op::fmha, target, Pipeline::qrasync);
}

bool is_latent_tile(const Algorithm& a) {
  return a.tile == Shape3{32 * a.wave.m, device::kLatentMfmaKeys, device::kLatentMfmaHead};
}

int latent_registers(const Case& c) {
  const FmhaSignature& s = c.signature;
  const bool reads = s.bias == FmhaBias::elementwise;
  return device::latent_registers(latent_waves(c.algorithm), c.algorithm.wave.n,
                                  copies_mfma_tiles(c.algorithm), reads ? size_of(s.dtype_bias) : 0,
                                  s.soft_cap || s.bias != FmhaBias::none);
}

constexpr Rule kLatentRules[] = {
    {has_mfma, no_mfma_sentence},
    {[](const Case& c) {
       const FmhaSignature& s = c.signature;
       return (s.in == DType::fp16 || s.in == DType::bf16) && s.out == s.in;
     },
     [](const Case& c) {
       return fmt::format(
           "{} with k {} computes fp16 or bf16 with out of that type, got in {}, out {}",
           to_string(c.algorithm.pipeline), c.algorithm.tile.k, to_string(c.signature.in),
           to_string(c.signature.out));
     }},
    {[](const Case& c) { return not_latent(c.signature).empty(); },
     [](const Case& c) {
       return fmt::format("{} with k {} does not compute {}", to_string(c.algorithm.pipeline),
                          c.algorithm.tile.k, not_latent(c.signature));
     }},
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return (w == Shape3{2, 2, 1}) || (w == Shape3{1, 4, 1});
     },
     [](const Case& c) {
       return fmt::format(
           "wave must be 2x2x1 or 1x4x1 with k {}, waves over rows and over the elements of heads, "
           "got {}",
           c.algorithm.tile.k, to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return is_latent_tile(c.algorithm); },
     [](const Case& c) {
       return fmt::format(
           "the tile of latent attention is {}x{}x{} with {} waves over rows, got {}",
           32 * c.algorithm.wave.m, device::kLatentMfmaKeys, device::kLatentMfmaHead,
           c.algorithm.wave.m, to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       const int stages = c.algorithm.stages;
       return stages == 1 || (latent_splits(c.algorithm) && stages == 2 && can_copy(c.target));
     },
     [](const Case& c) {
       return fmt::format("stages must be 1 (by registers){}, got {}",
                          can_copy(c.target) ? ", or 2 (copied to LDS) with splitkv"
                                             : " where tiles are not copied to LDS",
                          c.algorithm.stages);
     }},
    {[](const Case& c) {
       return c.algorithm.slices >= 1 && c.algorithm.slices <= kMostLatentSlices;
     },
     [](const Case& c) {
       return fmt::format("slices must be between 1 and {}, got {}", kMostLatentSlices,
                          c.algorithm.slices);
     }},
    {[](const Case& c) { return latent_registers(c) <= c.target.registers_per_thread; },
     [](const Case& c) {
       return fmt::format("tile {} needs about {} registers a lane, {} has {}",
                          to_string(c.algorithm.tile), latent_registers(c), c.target.name,
                          c.target.registers_per_thread);
     }},
    kFitsSharedMemory,
};

// Rows of which all waves have the same are for few queries.
std::vector<Algorithm> latent_algorithms(const Target& target, Pipeline pipeline, int stages,
                                         int slices) {
  std::vector<Algorithm> all;
  if (!tile::has_pipeline(Op::fmha, target, pipeline)) return all;
  for (const Shape3& wave : {Shape3{1, 4, 1}, Shape3{2, 2, 1}}) {
    all.push_back({.pipeline = pipeline,
                   .tile = {32 * wave.m, device::kLatentMfmaKeys, device::kLatentMfmaHead},
                   .wave = wave,
                   .warp_tile = kMfmaWarpTile,
                   .slices = slices,
                   .stages = stages});
  }
  return all;
}
std::vector<Algorithm> latent_qr_algorithms(const Target& target) {
  return latent_algorithms(target, Pipeline::qr, 1, 1);
}
std::vector<Algorithm> latent_qrasync_algorithms(const Target& target) {
  return latent_algorithms(target, Pipeline::qrasync, 1, 1);
}
std::vector<Algorithm> latent_split_algorithms(const Target& target) {
  return latent_algorithms(target, Pipeline::splitkv, can_copy(target) ? 2 : 1,
                           std::clamp(target.units, 1, kMostLatentSlices));
}

// ---- which problems they serve ----

Verdict latent_reason(const KernelSpec& spec, const FmhaProblem& p) {
  if (!p.v_in_k) {
    return {
        fmt::format("tile {} takes values that are the first elements of their keys (v_in_k=1), "
                    "got v_in_k=0",
                    to_string(spec.algorithm.tile))};
  }
  if (p.hdim > kLongestOtherMfmaHead) return {};
  return {fmt::format("tile {} serves heads of more than {} elements, got {} (hdim)",
                      to_string(spec.algorithm.tile), kLongestOtherMfmaHead, p.hdim)};
}

// The rest is as kernels of shorter heads have it.
template <const Way& kShorter>
Verdict latent_serves(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  if (Verdict own = latent_reason(spec, p); !own) return own;
  return kShorter.serves(spec, p, target);
}
template <const Way& kShorter>
Launch bind_latent(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                   const FmhaOperands& o) {
  return kShorter.bind(spec, p, target, o);
}
template <const Way& kShorter>
Estimate estimate_latent(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                         int threads) {
  return kShorter.estimate(spec, p, target, threads);
}

// ---- the text ----

Source emit_latent(const KernelSpec& spec, const Target& target) {
  const Algorithm& a = spec.algorithm;
  constexpr std::array<tile::GpuEntry, 1> kMerge = {{{"_merge", "merge"}}};
  return attention_on_hip(spec, target,
                          {"fmha/latent_fmha.h", "LatentFmha", "MfmaFmhaArguments",
                           mfma_config(spec, target, a.wave.n)},
                          64 * latent_waves(a), 1,
                          std::span(kMerge).first(latent_splits(a) ? 1 : 0));
}

// ---- predicted times: nothing was measured ----

constexpr double kLatentVectorOfScore = 4, kLatentVectorCycles = 4, kLatentExpCycles = 16;
constexpr double kLatentSteps = 400;  // cycles of a tile's barriers and exchanges

template <const Way& kShorter>
constexpr Way latent_way(Pipeline pipeline, std::vector<Algorithm> (*algorithms)(const Target&)) {
  return {.backend = "hip",
          .pipeline = pipeline,
          .rules = kLatentRules,
          .serves = latent_serves<kShorter>,
          .algorithms = algorithms,
          .emit = emit_latent,
          .bind = bind_latent<kShorter>,
          .estimate = estimate_latent<kShorter>,
          .own = {.packs_heads = pipeline == Pipeline::splitkv,
                  .is_latent = true,
                  .stage = "attend",
                  .shared_bytes = latent_mfma_bytes}};
}

}  // namespace

bool is_latent_mfma(const Algorithm& a) {
  return a.warp_tile == kMfmaWarpTile && a.tile.k == device::kLatentMfmaHead;
}

// Products, weights, which all waves of a row make, and what goes through LDS: the tile, what each
// wave reads of it for both products, and the sums of scores.
double cycles_of_latent_tile(const KernelSpec& spec, const FmhaProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  constexpr double kHeads = device::kLatentMfmaHead + device::kLatentMfmaHeadV;
  const double multiply =
      double(a.tile.m) * a.tile.n * kHeads * target.clock_ghz * 1e9 / product_rate(target, p.in);
  const double scores = 16, exchanged = 64.0 * a.tile.n * a.tile.k / 64 / 64 / a.wave.n;
  const double vector =
      (kLatentVectorOfScore * scores + exchanged) * kLatentVectorCycles + scores * kLatentExpCycles;
  const double tile = device::latent_tile_bytes();
  const double read = a.wave.m * double(a.tile.n) * kHeads * 2;
  const double sums = double(latent_waves(a)) * a.wave.n * device::kLatentSumBytes;
  const double lds = (tile + read + sums) / std::max(1.0, target.shared_bytes_per_cycle);
  const double longest = std::max({multiply, vector, lds});
  return longest + (multiply + vector + lds - longest) / 2 + kLatentSteps;
}

const Way kLatentQr = latent_way<kQr>(Pipeline::qr, latent_qr_algorithms);
const Way kLatentQrasync = latent_way<kQrasync>(Pipeline::qrasync, latent_qrasync_algorithms);
const Way kLatentSplitHip = latent_way<kSplitHip>(Pipeline::splitkv, latent_split_algorithms);

}  // namespace tessera::fmha
