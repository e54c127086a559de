// The algorithms of tmaws: the variants of the shapes that a target's row lists, and kernels for
// the middle, with tiles as wide as parts of the problem's rows, and stream-K. There are so many of
// these that each problem gets only those that fit it.
#include <algorithm>
#include <array>
#include <span>

#include "tessera/families/gemm/cuda_outputs.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/tmaws.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {
namespace {

// ---- listed shapes ----

// Tiles of at most kSkinnyTile columns are for problems with few rows or columns, so they are also
// tried with A and B swapped. K is split over the blocks of a cluster. For long sums with few tiles
// K is cut in slices as well.
struct Parts {
  int splits, slices;
};
constexpr Parts kParts[] = {{2, 1}, {4, 1}, {8, 1}, {4, 4}, {8, 4}, {4, 16}, {8, 16}};
constexpr Parts kRepackedParts[] = {{4, 1}, {8, 4}};

// The ways to divide K. Kernels with repack get fewer ways, because only odd problems need them.
std::span<const Parts> parts_for(const Algorithm& a) {
  if (a.scheduler == Scheduler::pingpong) return {};
  if (!a.repack) return kParts;
  return std::span(kRepackedParts).first(a.tile.n <= kSkinnyTile ? 2 : 1);
}

void add_parts(Algorithm a, std::vector<Algorithm>& all) {
  all.push_back(a);
  a.split_k = SplitK::ordered;
  for (const Parts& parts : parts_for(a)) {
    a.splits = parts.splits;
    a.slices = parts.slices;
    all.push_back(a);
  }
}

// The variants of one tile that tmaws kernels have.
void add_tmaws(const AlgorithmSpace& space, const Algorithm& base, std::vector<Algorithm>& all) {
  const bool skinny = base.tile.n <= kSkinnyTile;
  const bool pingpong = base.scheduler == Scheduler::pingpong;
  for (const int stages : space.stages) {
    Algorithm a = base;
    a.stages = stages;
    for (const Shape3& cluster : space.clusters) {
      if (cluster.m * cluster.n == 1) continue;  // added below with more variants
      a.cluster_m = cluster.m;
      a.cluster_n = cluster.n;
      all.push_back(a);
    }
    a.cluster_m = a.cluster_n = 1;
    for (const bool repack : {false, true}) {
      if (repack && skinny && pingpong) continue;
      a.repack = repack;
      for (const bool swap : {false, true}) {
        a.swap_ab = swap;
        if (!swap || (skinny && !pingpong)) add_parts(a, all);
      }
    }
  }
}

}  // namespace

// The checks here drop illegal shapes early, because testing all of them by the rules would take
// too long.
void tmaws_variants(const Target& target, const Algorithm& base, std::vector<Algorithm>& all) {
  const Shape3 &shape = base.tile, &warp_tile = base.warp_tile;
  if (warp_tile.n != shape.n || base.wave.n != 1 || warp_tile.m != device::kWgmmaRows) return;
  if (shape.m % warp_tile.m != 0) return;
  const AlgorithmSpace& space = tile::space_of(Op::gemm, target);
  for (const Scheduler scheduler : space.schedulers) {
    const bool pingpong = scheduler == Scheduler::pingpong;
    if (pingpong && base.wave.m != 2) continue;
    if (shape.m % (device::kWgmmaRows * (pingpong ? 1 : base.wave.m)) != 0) continue;
    Algorithm a = base;
    a.scheduler = scheduler;
    add_tmaws(space, a, all);
  }
}

namespace {

// ---- fitted tiles ----

// The sides of tiles that lie along the output's rows. Of the multiples of 8 those are left out
// that are stored 8 rows at a time, and 128 and 256, which tiles that are not swapped have as well.
constexpr std::array kSides = {72,  80,  96,  112, 120, 144, 160, 168,
                               176, 192, 200, 208, 216, 224, 240};
constexpr std::int64_t kUsualSide = 128;    // of tiles that fit its multiples without being swapped
constexpr std::int64_t kMostFitted = 2048;  // rows; beyond, little is lost at the edge
constexpr int kFewParts = 3;                // into which rows are cut however narrow they get
constexpr int kLeastOfMany = 128;           // rows of each of more parts

// The other side, and the consumers that share it.
struct Height {
  int tile_m, consumers;
};
constexpr Height kHeights[] = {{128, 2}, {192, 3}, {256, 2}};

// Tiles for stream-K whose operands are not swapped.
struct Straight {
  Height height;
  int tile_n;
};
constexpr Straight kStraight[] = {{{128, 2}, 128}, {{128, 2}, 192}};

// How blocks share the steps of K. Slices pay where each unit has one small block, so only the
// lowest tiles have them.
struct KSharing {
  bool streamk;
  int slices;
};
constexpr KSharing kSharings[] = {{false, 1}, {true, 1}, {false, 2}, {false, 3}};
constexpr int kMostSlicedHeight = 128;

// Accumulators of a thread; more spill.
constexpr int kMostPlain = 192;
constexpr int kMostWithEpilogue = 176;
constexpr int kMostInSlices = 100;

int most_accumulators(const GemmSignature& signature, const KSharing& sharing) {
  if (sharing.slices > 1) return kMostInSlices;
  return num_ops(signature.epilogue) > 0 ? kMostWithEpilogue : kMostPlain;
}

constexpr int kMostStages = 8;
constexpr int kLeastStages = 3;

// As many stages as fit when rows are stored in whole chunks. An epilogue takes what is left.
int stages_of(GemmSignature signature, Algorithm a, const Target& target) {
  signature.epilogue = {};
  a.stages = 1;
  const tile::SharedMemory one = shared_memory(signature, a);
  return static_cast<int>(
      std::min<std::int64_t>(kMostStages, 1 + (target.shared_memory_bytes - one.all) / one.stage));
}

void add_fitted_one(const GemmSignature& signature, const Target& target, const Height& height,
                    int tile_n, bool swap, const KSharing& sharing, std::vector<Algorithm>& all) {
  const int accumulators = height.tile_m * tile_n / (height.consumers * device::kGroupThreads);
  if (accumulators > most_accumulators(signature, sharing)) return;
  const int size = size_of(signature.a);
  Algorithm a{.pipeline = Pipeline::tmaws,
              .tile = {height.tile_m, tile_n, kTmawsLineBytes / size},
              .wave = {height.consumers, 1, 1},
              .warp_tile = {device::kWgmmaRows, tile_n, 32 / size},
              .scheduler = Scheduler::cooperative,
              .split_k = sharing.streamk || sharing.slices > 1 ? SplitK::ordered : SplitK::none,
              .slices = sharing.slices,
              .streamk = sharing.streamk,
              .swap_ab = swap};
  a.stages = stages_of(signature, a, target);
  if (a.stages >= kLeastStages) all.push_back(a);
}

}  // namespace

std::vector<int> fitted_sides(std::int64_t rows) {
  std::vector<int> sides;
  if (rows > kMostFitted || rows % kUsualSide == 0) return sides;
  for (std::int64_t parts = 1; parts <= rows; ++parts) {
    const std::int64_t side = tiles(rows, parts);
    if (parts > kFewParts && side < kLeastOfMany) break;
    const auto fits = std::lower_bound(kSides.begin(), kSides.end(), side);
    if (side <= kSkinnyTile || fits == kSides.end()) continue;
    if (sides.empty() || sides.back() != *fits) sides.push_back(*fits);
  }
  return sides;
}

namespace {

// The sides for a problem. Problems with few rows or columns have kernels of their own.
std::vector<int> sides_for(const GemmProblem& p) {
  return p.m <= p.n ? fitted_sides(p.m) : std::vector<int>();
}

}  // namespace

void add_fitted(const OwnQuery& query, std::vector<Algorithm>& all) {
  const auto& [signature, target, p] = query;
  if (has_scales(signature)) return add_scaled(query, all);
  if (signature.gate != GemmGate::none) add_gated(query, all);
  if (p != nullptr && std::min(p->m, p->n) <= kSkinnyTile) return;
  const std::vector<int> sides =
      p == nullptr ? std::vector<int>(kSides.begin(), kSides.end()) : sides_for(*p);
  for (const int side : sides) {
    for (const Height& height : kHeights) {
      for (const KSharing& sharing : kSharings) {
        if (sharing.slices > 1 && height.tile_m > kMostSlicedHeight) continue;
        add_fitted_one(signature, target, height, side, true, sharing, all);
      }
    }
  }
  for (const Straight& x : kStraight) {
    add_fitted_one(signature, target, x.height, x.tile_n, false, {true, 1}, all);
  }
}

}  // namespace tessera::gemm
