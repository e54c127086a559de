// Kernels of tmaws for operands with scales of blocks of 128 along k
// (src/tessera/device/cuda/gemm/tma_scaled_gemm.h): their rules and their algorithms.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/device/cuda/scaled_sizes.h"
#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/cuda_outputs.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/tmaws.h"

namespace tessera::gemm {
namespace {

constexpr int kMostScaledRegisters = 200;  // of a thread, for sums and scales; more spill
constexpr int kMostOfGroups = 192;         // the same beside what finds groups
constexpr int kMostOfOutputs = 176;        // and beside a gate or rows by index
constexpr int kMostOfPairs = 150;          // and where threads that gather rows find pairs' scales
constexpr int kMostScaledConsumers = 2;

bool scales_of_128(const GemmSignature& s) {
  return s.scale_a == GemmScale::by_1x128 && s.scale_type == GemmScaleType::fp32 &&
         (s.scale_b == GemmScale::by_1x128 || s.scale_b == GemmScale::by_128x128);
}

bool is_plain(const Algorithm& a) {
  return a.scheduler == Scheduler::cooperative && a.splits == 1 && !a.streamk && !a.repack &&
         a.split_k != SplitK::atomic && a.wave.m <= kMostScaledConsumers;
}

device::ScaledSizes sizes_of(const GemmSignature& s, const Algorithm& a) {
  const auto rows = [](GemmScale scale) { return static_cast<int>(block_of(scale).rows); };
  const int rows_p = rows(a.swap_ab ? s.scale_b : s.scale_a);
  const int rows_q = rows(a.swap_ab ? s.scale_a : s.scale_b);
  const int part_q = s.gate == GemmGate::none || a.swap_ab ? 0 : a.tile.n / 2;
  return device::scaled_sizes({a.tile.m, a.tile.n, rows_p, rows_q, part_q});
}

// Sums of the tile, a stage's sums of 64 rows, and the scales of the columns: two of every 8, or
// one a place.
int scaled_registers(const Case& c) {
  const Algorithm& a = c.algorithm;
  const int unit = sizes_of(c.signature, a).unit_q;
  const int of_columns = unit == 1 ? a.tile.n / 4 : a.tile.n / unit;
  return tile::tmaws_accumulators(a) + a.tile.n / 2 + of_columns;
}

int most_registers(const GemmSignature& s) {
  const bool finds_pairs = s.gate != GemmGate::none && s.indexing == GemmIndexing::gathered &&
                           s.scale_b == GemmScale::by_1x128;
  if (finds_pairs) return kMostOfPairs;
  if (has_outputs(s)) return kMostOfOutputs;
  return has_groups(s) ? kMostOfGroups : kMostScaledRegisters;
}

constexpr Rule kScaledRules[] = {
    {[](const Case& c) { return !has_scales(c.signature) || scales_of_128(c.signature); },
     [](const Case& c) {
       const GemmSignature& s = c.signature;
       return fmt::format(
           "tmaws takes scale_a=1x128, scale_b=1x128 or 128x128 and scale_type=fp32, got {}, {} "
           "and {}; use a cpasync kernel",
           to_string(s.scale_a), to_string(s.scale_b), to_string(s.scale_type));
     }},
    {[](const Case& c) { return !has_scales(c.signature) || is_plain(c.algorithm); },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "block scales go with the cooperative scheduler, 1 or {} consumers and ordered slices "
           "of K with tmaws, got {}, {}, split_k={} splits={} streamk={} repack={}",
           kMostScaledConsumers, to_string(a.scheduler), a.wave.m, to_string(a.split_k), a.splits,
           a.streamk ? 1 : 0, a.repack ? 1 : 0);
     }},
    {[](const Case& c) {
       return !has_scales(c.signature) || c.algorithm.tile.k == device::kScaledDepth;
     },
     [](const Case& c) {
       return fmt::format("block scales need tile_k = {}, the block's, with tmaws, got {}",
                          device::kScaledDepth, c.algorithm.tile.k);
     }},
    {[](const Case& c) {
       return !has_scales(c.signature) || scaled_registers(c) <= most_registers(c.signature);
     },
     [](const Case& c) {
       return fmt::format(
           "needs {} registers a thread for sums, those of a stage and scales, at most {} fit",
           scaled_registers(c), most_registers(c.signature));
     }},
};

// ---- algorithms ----

// tile_m, tile_n and consumers; tiles of few columns are listed with A and B swapped as well. The
// first one pays where two blocks share its operands.
struct ScaledTile {
  int tile_m, tile_n, consumers;
};
constexpr ScaledTile kScaledTiles[] = {
    {256, 128, 2}, {256, 96, 2}, {128, 128, 2}, {128, 112, 2}, {128, 96, 2},
    {128, 64, 2},  {128, 32, 2}, {128, 16, 2},  {256, 64, 2},  {64, 128, 1},
    {64, 64, 1},   {64, 32, 1},  {64, 16, 1},   {64, 8, 1},
};
// With a gate and A and B swapped, a consumer has blocks of 64 columns of x and of y.
// Those of 256 columns also write outputs of 8 bits by blocks.
constexpr ScaledTile kSwappedPairs[] = {{256, 64, 2}, {256, 32, 2}, {256, 16, 2}, {256, 8, 2},
                                        {128, 64, 1}, {128, 32, 1}, {128, 16, 1}, {128, 8, 1}};
constexpr int kSharedTile = 128 * 192;  // elements; blocks share operands of larger tiles
constexpr int kScaledSlices[] = {1, 2, 4, 8};
constexpr int kMostSlicedSums = 32;  // of a thread; more spill where slices are added
constexpr int kMostScaledStages = 8;
constexpr int kLeastScaledStages = 3;
constexpr std::int64_t kWalkBytes = 4096;  // for sums of tiles of about 1,000 groups, at least
constexpr Shape3 kScaledClusters[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}};

bool walks(const GemmSignature& s) { return has_groups(s) || has_outputs(s); }

// What a block of a kernel that walks along groups keeps besides.
std::int64_t walk_bytes(const OwnQuery& query, const Algorithm& a) {
  if (!walks(query.signature)) return 0;
  return query.problem == nullptr ? kWalkBytes
                                  : std::max(kWalkBytes, group_walk_bytes(a, *query.problem));
}

// As many stages as fit, up to most. Of tiles with one consumer two blocks share a unit.
int scaled_stages(const OwnQuery& query, Algorithm a) {
  const auto& [signature, target, problem] = query;
  a.stages = 1;
  const std::int64_t one = shared_memory(signature, a).all;
  a.stages = 2;
  const std::int64_t stage = shared_memory(signature, a).all - one;
  const std::int64_t shared = a.wave.m == 1
                                  ? target.shared_memory_bytes / 2 - device::kSharedReserve
                                  : target.shared_memory_bytes;
  const std::int64_t room = shared - walk_bytes(query, a);
  return static_cast<int>(std::min<std::int64_t>(kMostScaledStages, 1 + (room - one) / stage));
}

void add_scaled_one(const OwnQuery& query, Algorithm a, std::vector<Algorithm>& all) {
  a.stages = scaled_stages(query, a);
  const int most = most_registers(query.signature);
  const Case c = {query.signature, a, query.target};
  if (scaled_registers(c) > most || !outputs_fit_tmaws(c)) return;
  const bool is_new = std::find(all.begin(), all.end(), a) == all.end();
  if (a.stages >= kLeastScaledStages && is_new) all.push_back(a);
}

// Blocks of kernels that walk along groups share nothing.
void add_scaled_tile(const OwnQuery& query, const ScaledTile& tile, bool swap,
                     std::vector<Algorithm>& all) {
  const bool is_alone = walks(query.signature);
  for (const Shape3& cluster : kScaledClusters) {
    for (const int slices : kScaledSlices) {
      const bool shares = cluster.m * cluster.n > 1;
      if (is_alone && (shares || slices > 1)) continue;
      if (tile.tile_m * tile.tile_n > kSharedTile && !shares) continue;
      // Two blocks of 64 rows whose rows and columns all have scales of their own spill.
      if (tile.tile_m == 256 && query.signature.scale_b == GemmScale::by_1x128) continue;
      if (slices > 1 &&
          tile.tile_m * tile.tile_n / (tile.consumers * device::kGroupThreads) > kMostSlicedSums) {
        continue;
      }
      if (shares && (slices > 1 || swap || tile.tile_n < kSkinnyTile || tile.consumers == 1)) {
        continue;
      }
      add_scaled_one(query,
                     {.pipeline = Pipeline::tmaws,
                      .tile = {tile.tile_m, tile.tile_n, device::kScaledDepth},
                      .wave = {tile.consumers, 1, 1},
                      .warp_tile = {device::kWgmmaRows, tile.tile_n, 32},
                      .scheduler = Scheduler::cooperative,
                      .split_k = slices > 1 ? SplitK::ordered : SplitK::none,
                      .slices = slices,
                      .cluster_m = cluster.m,
                      .cluster_n = cluster.n,
                      .swap_ab = swap},
                     all);
    }
  }
}

}  // namespace

void add_scale_bytes(const GemmSignature& s, const Algorithm& a, tile::SharedMemory& shared) {
  if (a.pipeline != Pipeline::tmaws || !scales_of_128(s)) return;
  shared.all += std::int64_t{a.stages} * sizes_of(s, a).stage_bytes;
}

bool scales_fit_tmaws(const Case& c) {
  return tile::first_broken<Case>(kScaledRules, c) == nullptr;
}
std::string scales_do_not_fit_tmaws(const Case& c) {
  return tile::first_broken<Case>(kScaledRules, c)->sentence(c);
}

void add_scaled(const OwnQuery& query, std::vector<Algorithm>& all) {
  if (!scales_of_128(query.signature) || query.signature.layout != GemmLayout::rcr) return;
  for (const ScaledTile& tile : kScaledTiles) {
    add_scaled_tile(query, tile, false, all);
    // Along k both operands have scales of rows: swapped, a square tile is the same and spills.
    const bool is_square = query.signature.grouping != GemmGrouping::along_k && tile.tile_n == 128;
    if (tile.tile_n <= kSkinnyTile || is_square) add_scaled_tile(query, tile, true, all);
  }
  if (query.signature.gate == GemmGate::none) return;
  for (const ScaledTile& tile : kSwappedPairs) add_scaled_tile(query, tile, true, all);
}

}  // namespace tessera::gemm
