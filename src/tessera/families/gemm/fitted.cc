// Hopper's kernels for the middle: tiles as wide as parts of the problem's rows, and stream-K.
// There are so many of them that each problem gets only those that fit it.
#include <algorithm>
#include <array>

#include "tessera/families/gemm/fitted_internal.h"
#include "tessera/families/tile/specs.h"

namespace tessera::gemm {
namespace {

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

void add(const GemmSignature& signature, const Target& target, const Height& height, int tile_n,
         bool swap, const KSharing& sharing, std::vector<Algorithm>& all) {
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

std::vector<int> all_fitted_sides() { return {kSides.begin(), kSides.end()}; }

void add_fitted(const GemmSignature& signature, const Target& target, std::span<const int> sides,
                std::vector<Algorithm>& all) {
  if (target.backend != "cuda" || !tile::has_pipeline(Op::gemm, target, Pipeline::tmaws)) return;
  for (const int side : sides) {
    for (const Height& height : kHeights) {
      for (const KSharing& sharing : kSharings) {
        if (sharing.slices > 1 && height.tile_m > kMostSlicedHeight) continue;
        add(signature, target, height, side, true, sharing, all);
      }
    }
  }
  for (const Straight& x : kStraight) {
    add(signature, target, x.height, x.tile_n, false, {true, 1}, all);
  }
}

}  // namespace tessera::gemm
