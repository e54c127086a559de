// How the rows of a blocked GEMM are cut into blocks.
#include "tessera/device/cpu/grid.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera::device {
namespace {

long long round_up(long long size, long long unit) { return (size + unit - 1) / unit * unit; }

TEST(RowBlocks, ExceedTheTileByAQuarterAtMost) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    const long long unit = 1 + random() % 32, tile = unit * (1 + random() % 120);
    const long long rows = 1 + random() % (5 * tile);
    const long long count = row_blocks(rows, tile), size = block_rows(rows, tile, unit);
    SCOPED_TRACE(testing::Message() << rows << " rows, tile " << tile << ", unit " << unit);
    EXPECT_EQ(size % unit, 0);
    EXPECT_LE(size, round_up(most_block_rows(tile), unit));
    EXPECT_GE(count * size, rows);
    EXPECT_EQ(count == 1, rows <= most_block_rows(tile));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RowBlocks, AreEqualUpToARegisterBlock) {
  EXPECT_EQ(block_rows(97, 96, 8), 104);   // one block
  EXPECT_EQ(block_rows(120, 96, 8), 120);  // the most
  EXPECT_EQ(block_rows(121, 96, 8), 64);   // 64 and 57
  EXPECT_EQ(block_rows(200, 96, 8), 104);  // 104 and 96
  EXPECT_EQ(block_rows(1024, 96, 12), 96);
  EXPECT_EQ(row_blocks(1024, 96), 11);
  EXPECT_EQ(row_blocks(0, 96), 1);
}

}  // namespace
}  // namespace tessera::device
