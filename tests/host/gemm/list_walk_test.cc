// The walk along lists on CUDA targets (src/tessera/device/cuda/gemm/list_walk.h), whose 32 lanes
// are threads here: the blocks of a launch compute each tile of each group once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

namespace {

constexpr int kWarpLanes = 32;

// What the lanes share for instructions in which all take part. Two rows of numbers take turns, so
// that one is written while lanes may still read the other.
struct Warp {
  std::mutex mutex;
  std::condition_variable all_are_here;
  int missing = kWarpLanes;
  unsigned instruction = 0;
  std::array<std::array<unsigned long long, kWarpLanes>, 2> rows{};

  void wait_for_all() {
    std::unique_lock lock(mutex);
    const unsigned own = instruction;
    missing -= 1;
    if (missing == 0) {
      missing = kWarpLanes, instruction += 1;
      return all_are_here.notify_all();
    }
    all_are_here.wait(lock, [&] { return instruction != own; });
  }
};
thread_local Warp* warp = nullptr;
thread_local int turn = 0;
thread_local struct { unsigned x; } threadIdx, blockIdx, gridDim;

const std::array<unsigned long long, kWarpLanes>& shared_by_lanes(unsigned long long x) {
  auto& row = warp->rows[static_cast<std::size_t>(turn)];
  turn = 1 - turn;
  row[threadIdx.x] = x;
  warp->wait_for_all();
  return row;
}
template <class T>
T __shfl_sync(unsigned, T x, int lane) {
  return static_cast<T>(shared_by_lanes(x)[static_cast<std::size_t>(lane)]);
}
template <class T>
T __shfl_up_sync(unsigned, T x, unsigned distance) {
  const unsigned from = threadIdx.x < distance ? threadIdx.x : threadIdx.x - distance;
  return static_cast<T>(shared_by_lanes(x)[from]);
}
unsigned __ballot_sync(unsigned, bool x) {
  const auto& row = shared_by_lanes(x ? 1 : 0);
  unsigned bits = 0;
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) bits |= row[lane] != 0 ? 1U << lane : 0U;
  return bits;
}
int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

}  // namespace

#define __device__
#define __forceinline__ inline
#include "tessera/device/cuda/gemm/list_walk.h"
#undef __device__
#undef __forceinline__

namespace tessera::device {
namespace {

constexpr int kTileM = 64, kTileN = 32;
using Tile = std::tuple<i64, i64, i64>;

// What a lane finds, one tile after the other.
std::vector<Tile> tiles_of_lane(const GroupArguments& x) {
  std::vector<Tile> found;
  ListWalk<kTileM, kTileN> walk;
  while (walk.next(x)) {
    const ListTile tile = walk.tile();
    found.emplace_back(tile.group, tile.row, tile.column);
  }
  return found;
}

std::vector<Tile> tiles_of_block(const GroupArguments& x, unsigned block, unsigned blocks) {
  Warp shared;
  std::array<std::vector<Tile>, kWarpLanes> found;
  std::vector<std::thread> lanes;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    lanes.emplace_back([&, lane] {
      warp = &shared, turn = 0;
      threadIdx.x = lane, blockIdx.x = block, gridDim.x = blocks;
      found[lane] = tiles_of_lane(x);
    });
  }
  for (std::thread& lane : lanes) lane.join();
  for (const std::vector<Tile>& other : found) EXPECT_EQ(other, found[0]) << "lanes differ";
  return found[0];
}

struct Lists {
  std::vector<int> m, n;
  GroupArguments arguments(i64 most_m, i64 most_n) const {
    GroupArguments x{};
    x.gemm.m = most_m, x.gemm.n = most_n;
    x.groups = static_cast<i64>(m.size());
    x.grouping = Grouping::lists;
    x.sizes[0] = m.data(), x.sizes[1] = n.data();
    return x;
  }
};

// Every tile that a group has by its clamped sizes.
std::set<Tile> tiles_of(const GroupArguments& x) {
  std::set<Tile> all;
  for (i64 group = 0; group < x.groups; ++group) {
    const i64 m = clamped(x.sizes[0][group], 0, x.gemm.m);
    const i64 n = clamped(x.sizes[1][group], 0, x.gemm.n);
    for (i64 row = 0; row < m; row += kTileM) {
      for (i64 column = 0; column < n; column += kTileN) all.emplace(group, row, column);
    }
  }
  return all;
}

void expect_each_tile_once(const Lists& lists, unsigned blocks) {
  const GroupArguments x = lists.arguments(300, 200);
  std::set<Tile> left = tiles_of(x);
  for (unsigned block = 0; block < blocks; ++block) {
    for (const Tile& tile : tiles_of_block(x, block, blocks)) {
      EXPECT_EQ(left.erase(tile), 1U) << fmt::format("group {} row {} column {}", std::get<0>(tile),
                                                     std::get<1>(tile), std::get<2>(tile));
    }
  }
  EXPECT_EQ(left.size(), 0U) << "tiles that no block has found";
}

TEST(ListWalk, FindsNothingInEmptyGroups) {
  expect_each_tile_once({}, 1);
  expect_each_tile_once({{0, 0, 5}, {7, 0, 0}}, 2);
}

TEST(ListWalk, FindsGroupsBehindManyEmptyOnes) {
  for (const std::size_t last : {7U, 8U, 255U, 256U, 600U}) {
    Lists lists{std::vector<int>(last + 1, 0), std::vector<int>(last + 1, 33)};
    lists.m[last] = 65;
    SCOPED_TRACE(last);
    expect_each_tile_once(lists, 3);
  }
}

TEST(ListWalk, ClampsSizesThatDoNotFit) {
  expect_each_tile_once({{-3, 301, 64, 0x7fffffff}, {7, 201, -0x7fffffff - 1, 0x7fffffff}}, 5);
}

TEST(ListWalk, FindsEveryTileOfRandomGroupsOnce) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 4; ++round) {
    Lists lists;
    const int groups = draw(0, 1) == 0 ? draw(1, 9) : draw(200, 600);
    for (int i = 0; i < groups; ++i) {
      const bool is_empty = groups > 9 && draw(0, 9) != 0;
      lists.m.push_back(is_empty ? 0 : draw(0, 140)), lists.n.push_back(draw(0, 70));
    }
    expect_each_tile_once(lists, static_cast<unsigned>(draw(1, 9)));
  }
}

}  // namespace
}  // namespace tessera::device
