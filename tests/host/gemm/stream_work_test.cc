// How stream-K shares out the steps of K of the tiles of an output.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tessera/device/stream_work.h"

namespace tessera::device {
namespace {

struct Taken {
  int block, tile, begin, end;
};

// What all blocks multiply, in their order.
std::vector<Taken> items_of(const StreamWork& w, int blocks) {
  std::vector<Taken> all;
  for (int block = 0; block < blocks; ++block) {
    const StreamShare share = stream_share(w, block);
    for (int i = 0;; ++i) {
      const StreamItem item = stream_item(w, share, block, blocks, i);
      if (item.tile < 0) break;
      all.push_back({block, item.tile, item.begin, item.end});
    }
    EXPECT_LT(stream_item(w, share, block, blocks, 1 << 16).tile, 0);
  }
  return all;
}

class StreamWorkTest : public testing::Test {
 protected:
  // Calls check(tiles, steps, blocks) for drawn ones.
  template <class Check>
  void draw(Check check) {
    const auto seed = std::random_device()();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    for (int i = 0; i < 3000; ++i) {
      const auto up_to = [&](int most) { return 1 + static_cast<int>(random() % most); };
      const int blocks = i % 3 == 0 ? 132 : up_to(kStreamBlocks);
      const int tiles = up_to(i % 2 == 0 ? 40 : 700), steps = up_to(i % 5 == 0 ? 30 : 400);
      SCOPED_TRACE(testing::Message()
                   << tiles << " tiles of " << steps << " steps, " << blocks << " blocks");
      check(tiles, steps, blocks);
      if (HasFailure()) return;
    }
  }
};

TEST_F(StreamWorkTest, EveryStepIsTakenOnce) {
  draw([](int tiles, int steps, int blocks) {
    const StreamWork w = stream_work(tiles, steps, blocks);
    std::vector<int> taken(static_cast<std::size_t>(tiles) * steps);
    for (const Taken& t : items_of(w, blocks)) {
      ASSERT_LT(t.tile, tiles);
      ASSERT_LT(t.begin, t.end);
      ASSERT_LE(t.end, steps);
      for (int s = t.begin; s < t.end; ++s) ++taken[static_cast<std::size_t>(t.tile) * steps + s];
    }
    EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), std::ssize(taken));
  });
}

// A cut moves by at most kStreamSnap steps.
TEST_F(StreamWorkTest, SharesAreEqual) {
  draw([](int tiles, int steps, int blocks) {
    const StreamWork w = stream_work(tiles, steps, blocks);
    std::vector<int> whole(static_cast<std::size_t>(blocks)), shared(whole);
    for (const Taken& t : items_of(w, blocks)) {
      (t.tile < w.whole ? whole : shared)[static_cast<std::size_t>(t.block)] += t.end - t.begin;
    }
    if (w.sharers == 0) {
      EXPECT_EQ(w.whole, tiles);
      return;
    }
    EXPECT_LE(tiles - w.whole, kMostStreamed);
    EXPECT_EQ(w.whole % blocks, 0);
    EXPECT_EQ(*std::min_element(whole.begin(), whole.end()), w.whole / blocks * steps);
    EXPECT_EQ(*std::max_element(whole.begin(), whole.end()), w.whole / blocks * steps);
    ASSERT_LE(w.sharers, blocks);
    EXPECT_EQ(w.sharers * w.each + w.longer, (tiles - w.whole) * steps);
    EXPECT_LT(w.longer, w.sharers);
    for (int block = 0; block < blocks; ++block) {
      const int steps_of = shared[static_cast<std::size_t>(block)];
      if (block >= w.sharers) {
        EXPECT_EQ(steps_of, 0);
      } else {
        EXPECT_GE(steps_of, w.each - 2 * kStreamSnap);
        EXPECT_LE(steps_of, w.each + 1 + 2 * kStreamSnap);
      }
    }
  });
}

// No block is busier than without sharing, but for the cuts that move, and all are busy.
TEST_F(StreamWorkTest, TakesNoLongerThanWholeTiles) {
  draw([](int tiles, int steps, int blocks) {
    const StreamWork w = stream_work(tiles, steps, blocks);
    std::vector<int> busy(static_cast<std::size_t>(blocks));
    for (const Taken& t : items_of(w, blocks)) {
      busy[static_cast<std::size_t>(t.block)] += t.end - t.begin;
    }
    const int most = *std::max_element(busy.begin(), busy.end());
    EXPECT_LE(most, (tiles + blocks - 1) / blocks * steps + 2 * kStreamSnap);
    if (w.sharers < blocks) return;
    EXPECT_LE(most, (static_cast<std::int64_t>(tiles) * steps + blocks - 1) / blocks + 1 +
                        2 * kStreamSnap);
  });
}

// The blocks that share a tile are neighbours, and their parts follow each other along K.
TEST_F(StreamWorkTest, PartsOfATileAreThoseOfItsBlocks) {
  draw([](int tiles, int steps, int blocks) {
    const StreamWork w = stream_work(tiles, steps, blocks);
    std::map<int, std::map<int, Taken>> by_tile;  // by beginning
    for (const Taken& t : items_of(w, blocks)) {
      if (t.tile >= w.whole) by_tile[t.tile].emplace(t.begin, t);
    }
    std::set<int> places;
    for (const auto& [tile, items] : by_tile) {
      const StreamParts parts = stream_parts(w, tile);
      ASSERT_EQ(parts.count, std::ssize(items)) << "tile " << tile;
      int part = 0;
      for (const auto& [begin, item] : items) {
        ASSERT_EQ(item.block, parts.first + part) << "tile " << tile;
        const int place = stream_place(parts, part++);
        if (parts.count == 1) continue;
        EXPECT_LT(item.end - item.begin, steps);  // so the kernel tells that it is a part
        EXPECT_GT(item.end - item.begin, kStreamSnap);
        EXPECT_TRUE(places.insert(place).second) << "place " << place;
        EXPECT_LT(place, kStreamPlaces);
        EXPECT_LT(place, 2 * blocks);
      }
    }
    EXPECT_EQ(std::ssize(by_tile), tiles - w.whole);
  });
}

TEST(StreamWork, HalfAWaveDecidesWhatIsShared) {
  EXPECT_EQ(stream_work(132, 100, 132).sharers, 0);  // nothing is left over
  EXPECT_EQ(stream_work(264, 100, 132).whole, 264);
  const StreamWork most = stream_work(232, 100, 132);
  EXPECT_EQ(most.whole, 132);
  EXPECT_EQ(most.sharers, 132);
  EXPECT_EQ(most.each, 75);
  const StreamWork few = stream_work(134, 100, 132);
  EXPECT_EQ(few.whole, 0);
  EXPECT_EQ(few.each, 101);
  EXPECT_EQ(stream_work(40, 216, 132).each, 65);
  EXPECT_EQ(stream_work(40, 15, 132).sharers, 0);  // K is too short
  EXPECT_EQ(stream_work(2, 64, 132).sharers, 16);  // 8 steps each
}

TEST(StreamWork, CountsUpToItsLimits) {
  const StreamWork w =
      stream_work(kStreamBlocks + kStreamBlocks / 2 - 1, kMostStreamSteps, kStreamBlocks);
  EXPECT_EQ(stream_cut(w, w.sharers).tile, kStreamBlocks + kStreamBlocks / 2 - 1);
  EXPECT_EQ(stream_cut(w, w.sharers).step, 0);
  EXPECT_EQ(stream_cut(w, w.sharers - 1).tile, kStreamBlocks + kStreamBlocks / 2 - 3);
}

// Blocks with less than a tile begin with the beginning of a tile, so that they go along K side by
// side.
TEST(StreamWork, BeginningsComeFirst) {
  const StreamWork w = stream_work(92, 100, 132);
  const StreamShare share = stream_share(w, 1);  // steps 69 to 139
  const StreamItem first = stream_item(w, share, 1, 132, 0);
  EXPECT_EQ(first.tile, 1);
  EXPECT_EQ(first.begin, 0);
  const StreamItem second = stream_item(w, share, 1, 132, 1);
  EXPECT_EQ(second.tile, 0);
  EXPECT_EQ(second.end, 100);
  EXPECT_EQ(stream_item(w, share, 1, 132, 2).tile, -1);
}

}  // namespace
}  // namespace tessera::device
