// MFMA on operands with scales of blocks (src/tessera/device/hip/gemm/mfma_scaled_gemm.h): rules
// and algorithms.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/hip.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

constexpr std::string_view kMxInstruction = "mfma_scale";
constexpr int kMxLaneBytes = 32;  // of k

bool is_scaled_mfma(const Case& c) { return has_scales(c.signature); }
bool is_mx_signature(const GemmSignature& s) {
  return s.scale_a == GemmScale::by_1x32 && s.scale_b == GemmScale::by_1x32 &&
         s.scale_type == GemmScaleType::e8m0;
}

// The k of the blocks whose sums are added by themselves.
int depth_of_blocks(const GemmSignature& s) {
  std::int64_t least = 128;
  for (const GemmScale scale : {s.scale_a, s.scale_b}) {
    if (scale != GemmScale::none) least = std::min<std::int64_t>(least, block_of(scale).k);
  }
  return static_cast<int>(least);
}

// Beside the second set of sums; with more of them clang 22 spills. So it does with a quarter of
// them where each column has a scale, which every sum reads, and with half as many where lanes
// transpose an operand, or where tiles are long along k.
constexpr int kMostScaledSums = 64;
constexpr int kUsualTileK = 128;
constexpr int kSimds = 4;  // of a CU
bool scales_columns(const GemmSignature& s) {
  return s.scale_b != GemmScale::none && block_of(s.scale_b).rows == 1;
}
int most_sums(const Case& c) {
  if (multiplies_by_mx(c.algorithm)) return kMostScaledSums;
  const tile::MfmaOperands operands = mfma_operands(c.signature, c.algorithm.pipeline);
  const bool transposes = operands.transposes_a || operands.transposes_b;
  const int share = scales_columns(c.signature) ? 4 : transposes ? 2 : 1;
  const bool shares_simds = tile::all_waves(c.algorithm) > kSimds;  // and their registers
  return kMostScaledSums / share / (c.algorithm.tile.k > kUsualTileK ? 2 : 1) /
         (shares_simds ? 2 : 1);
}
int scaled_sums(const Case& c) {
  return c.algorithm.tile.m * c.algorithm.tile.n / tile::block_lanes(c.algorithm, c.target);
}

constexpr Rule kScaleRules[] = {
    {[](const Case& c) { return !is_scaled_mfma(c) || c.target.warp_size == tile::kWaveLanes; },
     [](const Case& c) {
       return fmt::format(
           "sums of blocks are scaled beside mfma, and {} has none; use a direct kernel",
           c.target.name);
     }},
    {[](const Case& c) {
       const Pipeline pipeline = c.algorithm.pipeline;
       return !is_scaled_mfma(c) || pipeline == Pipeline::compv3 || pipeline == Pipeline::compv4;
     },
     [](const Case& c) {
       return fmt::format("block scales go with compv3, compv4 and direct on AMD GPUs, got {}",
                          to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return !is_scaled_mfma(c) || !c.algorithm.streamk; },
     [](const Case&) {
       return std::string("streamk must be false with block scales on AMD GPUs, got true");
     }},
    {[](const Case& c) {
       return !is_scaled_mfma(c) || c.signature.grouping != GemmGrouping::along_k;
     },
     [](const Case&) {
       return std::string(
           "groups along k begin anywhere in a block of scales, which mfma does not follow: "
           "grouping must not be along_k with block scales, got along_k; use a direct kernel");
     }},
    {[](const Case& c) {
       return !is_scaled_mfma(c) || !multiplies_by_mx(c.algorithm) ||
              (is_mx_signature(c.signature) &&
               find_instruction_named(c, kMxInstruction) != nullptr);
     },
     [](const Case& c) {
       return fmt::format(
           "warp tiles of {} bytes of k in a lane need scale_a=1x32 scale_b=1x32 scale_type=e8m0 "
           "and an instruction {}, got {}, {} and {} on {}",
           kMxLaneBytes, kMxInstruction, to_string(c.signature.scale_a),
           to_string(c.signature.scale_b), to_string(c.signature.scale_type), c.target.name);
     }},
    {[](const Case& c) {
       if (!is_scaled_mfma(c) || multiplies_by_mx(c.algorithm)) return true;
       const int depth = depth_of_blocks(c.signature);
       return c.algorithm.tile.k % depth == 0 && depth % c.algorithm.warp_tile.k == 0;
     },
     [](const Case& c) {
       return fmt::format(
           "a tile must have whole blocks of {} along k, and a block whole warp tiles, got tile_k "
           "{} and warp_tile_k {}",
           depth_of_blocks(c.signature), c.algorithm.tile.k, c.algorithm.warp_tile.k);
     }},
    {[](const Case& c) { return !is_scaled_mfma(c) || scaled_sums(c) <= most_sums(c); },
     [](const Case& c) {
       return fmt::format(
           "with scale_b={}, layout={} and tile_k={} a lane has at most {} sums, got {} ({}x{} "
           "over "
           "{} lanes)",
           to_string(c.signature.scale_b), to_string(c.signature.layout), c.algorithm.tile.k,
           most_sums(c), scaled_sums(c), c.algorithm.tile.m, c.algorithm.tile.n,
           tile::block_lanes(c.algorithm, c.target));
     }},
};

}  // namespace

bool multiplies_by_mx(const Algorithm& a) {
  return a.warp_tile.k == tile::mfma_depth(a.warp_tile.m, 1) * kMxLaneBytes / tile::kLaneBytes;
}

bool mx_warp_tile_fits(const Case& c) {
  const Shape3& w = c.algorithm.warp_tile;
  return has_scales(c.signature) && size_of(c.signature.a) == 1 && w.m == w.n &&
         (w.m == 16 || w.m == 32) && multiplies_by_mx(c.algorithm);
}

std::span<const Rule> mfma_scale_rules() { return kScaleRules; }

int scale_registers(const Case& c, const device::MfmaShape& shape) {
  const GemmSignature& s = c.signature;
  if (!has_scales(s)) return 0;
  return device::mfma_scale_registers(shape, depth_of_blocks(s), scales_columns(s),
                                      multiplies_by_mx(c.algorithm));
}

void add_mx(const OwnQuery& query, std::vector<Algorithm>& all) {
  if (!is_mx_signature(query.signature)) return;
  constexpr Shape3 kTiles[] = {
      {64, 64, 128}, {128, 64, 128}, {64, 128, 128}, {128, 128, 128}, {64, 64, 256}};
  constexpr Shape3 kWarpTiles[] = {{16, 16, 128}, {32, 32, 64}};
  for (const Pipeline pipeline : {Pipeline::compv3, Pipeline::compv4}) {
    for (const Shape3& tile : kTiles) {
      for (const Shape3& warp_tile : kWarpTiles) {
        Algorithm a;
        a.pipeline = pipeline, a.scheduler = Scheduler::intrawave;
        a.tile = tile, a.wave = {2, 2, 1}, a.warp_tile = warp_tile;
        all.push_back(a);
      }
    }
  }
}

}  // namespace tessera::gemm
