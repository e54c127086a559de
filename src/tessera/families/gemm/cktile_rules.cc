// The rules of kernels that are made from CK Tile's headers: the checks of its own architecture
// filter.
#include <fmt/format.h>

#include "tessera/families/gemm/rules.h"
#include "tessera/families/tile/cktile.h"

namespace tessera::gemm {
namespace {

constexpr int kMinTile[] = {16, 16, 8};  // m n k
constexpr int kMinPreshuffle[] = {64, 64, 32};
constexpr int kPreshuffleUnit[] = {32, 32, 16};

std::int64_t bytes_of_tiles(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  return std::int64_t{t.m} * t.k * size_of(c.signature.a) +
         std::int64_t{t.n} * t.k * size_of(c.signature.b);
}

std::int64_t lds_budget(const Case& c) {
  return static_cast<std::int64_t>(static_cast<double>(c.target.shared_memory_bytes) *
                                   limit_of(c).shared_memory_fraction);
}

SplitK kind_of_splits(const Algorithm& a) { return a.splits == 1 ? SplitK::none : SplitK::atomic; }

bool wave_listed(const Case& c) { return tile::lists(find_space(c)->waves, c.algorithm.wave); }

std::int64_t accumulators_per_lane(const Case& c) {
  const Algorithm& a = c.algorithm;
  return std::int64_t{a.tile.m} * a.tile.n / (a.wave.m * a.wave.n * c.target.warp_size);
}

// With an odd number of 32-wide warp tiles per wave, other than one, the kernel stores wrong values
// through LDS.
bool cshuffle_stores_right(const Algorithm& a) {
  const int repeat_m = a.tile.m / (a.wave.m * a.warp_tile.m);
  const int repeat_n = a.tile.n / (a.wave.n * a.warp_tile.n);
  const bool odd_m = a.warp_tile.m == 32 && repeat_m > 1 && repeat_m % 2 == 1;
  const bool odd_n = a.warp_tile.n == 32 && repeat_n > 1 && repeat_n % 2 == 1;
  return !odd_m && !odd_n;
}

bool preshuffle_fits(const Case& c) {
  if (!c.signature.preshuffled_b) return true;
  const Shape3& t = c.algorithm.tile;
  return t.m >= kMinPreshuffle[0] && t.n >= kMinPreshuffle[1] && t.k >= kMinPreshuffle[2] &&
         t.m % kPreshuffleUnit[0] == 0 && t.n % kPreshuffleUnit[1] == 0 &&
         t.k % kPreshuffleUnit[2] == 0;
}

// Each lane of a wave loads its part of A's warp tile in vectors of 16 bytes.
bool preshuffle_vectors_fit(const Case& c) {
  if (!c.signature.preshuffled_b) return true;
  const Algorithm& a = c.algorithm;
  const int repeat_m = a.tile.m / (a.wave.m * a.warp_tile.m);
  const int bytes = a.warp_tile.m * a.warp_tile.k * size_of(c.signature.a) * repeat_m;
  return bytes / c.target.warp_size % 16 == 0;
}

constexpr Rule kCk[] = {
    kWaveRule,
    kStagesRule,
    {[](const Case& c) {
       const Scheduler s = c.algorithm.scheduler;
       return s == Scheduler::intrawave || s == Scheduler::interwave;
     },
     [](const Case& c) {
       return fmt::format("CK Tile schedules intrawave or interwave, got {}",
                          to_string(c.algorithm.scheduler));
     }},
    {[](const Case& c) {
       return c.algorithm.scheduler == Scheduler::intrawave ||
              c.algorithm.pipeline == Pipeline::mem;
     },
     [](const Case& c) {
       return fmt::format("interwave needs the mem pipeline, got {}",
                          to_string(c.algorithm.pipeline));
     }},
    kUnusedFieldsRule,
    {[](const Case& c) {
       const Store store = c.algorithm.store;
       return store == Store::standard || store == Store::cshuffle;
     },
     [](const Case& c) {
       return fmt::format("CK Tile stores standard or cshuffle, got {}",
                          to_string(c.algorithm.store));
     }},
    {[](const Case& c) { return c.algorithm.slices == 1; },
     [](const Case& c) {
       return fmt::format("CK Tile cuts K into splits: slices must be 1, got {}",
                          c.algorithm.slices);
     }},
    {[](const Case& c) { return !c.algorithm.streamk; },
     [](const Case&) {
       return std::string("instances of CK Tile have whole tiles: streamk must be false, got true");
     }},
    {[](const Case& c) { return c.algorithm.split_k == kind_of_splits(c.algorithm); },
     [](const Case& c) {
       return fmt::format("split_k must be {} for splits={} with CK Tile, got {}",
                          to_string(kind_of_splits(c.algorithm)), c.algorithm.splits,
                          to_string(c.algorithm.split_k));
     }},
    {[](const Case& c) { return wave_listed(c); },
     [](const Case& c) {
       return fmt::format("{} does not list wave {}", c.target.name, to_string(c.algorithm.wave));
     }},
    kWarpTileRule,
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m >= kMinTile[0] && t.n >= kMinTile[1] && t.k >= kMinTile[2];
     },
     [](const Case& c) {
       return fmt::format("tiles must be at least {}x{}x{}, got {}", kMinTile[0], kMinTile[1],
                          kMinTile[2], to_string(c.algorithm.tile));
     }},
    tile::kRowOf<Case, tile::kCktileDivision>,
    tile::kBlockThreads<Case>,
    {[](const Case& c) { return accumulators_per_lane(c) <= c.target.registers_per_thread / 2; },
     [](const Case& c) {
       return fmt::format(
           "needs {} accumulators a lane ({}x{} over {} waves of {}), half of {}'s {} "
           "registers are for them",
           accumulators_per_lane(c), c.algorithm.tile.m, c.algorithm.tile.n,
           c.algorithm.wave.m * c.algorithm.wave.n, c.target.warp_size, c.target.name,
           c.target.registers_per_thread);
     }},
    {[](const Case& c) {
       return c.algorithm.store != Store::cshuffle || cshuffle_stores_right(c.algorithm);
     },
     [](const Case& c) {
       return fmt::format(
           "cshuffle stores wrong values for an odd number of 32-wide warp tiles a "
           "wave, got tile {} over waves {}",
           to_string(c.algorithm.tile), to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return preshuffle_fits(c); },
     [](const Case& c) {
       return fmt::format(
           "preshuffle needs tiles of at least 64x64x32 in steps of 32x32x16, got {}",
           to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return preshuffle_vectors_fit(c); },
     [](const Case& c) {
       return fmt::format(
           "preshuffle loads 16 bytes a lane, which does not divide warp tile {} of "
           "{} over {} lanes",
           to_string(c.algorithm.warp_tile), to_string(c.signature.a), c.target.warp_size);
     }},
    {[](const Case& c) { return bytes_of_tiles(c) <= lds_budget(c); },
     [](const Case& c) {
       return tile::cktile_lds_sentence(bytes_of_tiles(c), lds_budget(c), c.algorithm.pipeline,
                                        c.target);
     }},
};

}  // namespace

std::span<const Rule> cktile_rules() { return kCk; }

}  // namespace tessera::gemm
