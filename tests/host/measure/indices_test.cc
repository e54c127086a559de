// Random indices, and sums of equal parts, as attention's tables of pages have them; ends, indices
// and rows of a product's groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "tessera/measure/operands.h"

namespace tessera::measure {
namespace {

TEST(RandomIndices, TablesHoldEachPageBeforeAnyTwice) {
  const Problem p = parse_problem(
      "fmha batch=4 heads=1 seqlen_q=1 seqlen_k=30 hdim=4 pages=table page_size=4 num_pages=16 "
      "table_stride=11");
  const std::uint64_t seed = std::random_device{}();
  const OwnedOperands owned = random_operands(p, seed);
  const auto* const table = std::get<FmhaOperands>(owned.operands).page_table;
  for (const int first : {0, 2}) {  // two sequences of 8 pages have all 16
    std::set<int> seen;
    for (int b = first; b < first + 2; ++b) seen.insert(table + b * 11L, table + b * 11L + 8);
    EXPECT_EQ(seen.size(), 16U) << seed;
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 15);
  }
  EXPECT_EQ(table[8], 0x5a5a5a5a);
}

TEST(RandomIndices, ListsHaveRoomForTheLongest) {
  const auto starts = [](const std::string& fields) {
    const Problem p = parse_problem(
        "fmha batch=3 heads=1 seqlen_q=1 seqlen_k=30 hdim=4 pages=list page_size=8 " + fields);
    const OwnedOperands owned = random_operands(p, 1);
    const auto* const at = std::get<FmhaOperands>(owned.operands).page_starts;
    return std::vector<int>(at, at + 4);
  };
  EXPECT_EQ(starts(""), (std::vector<int>{0, 4, 8, 12}));
  EXPECT_EQ(starts("lengths=padded page_entries=6"), (std::vector<int>{0, 4, 6, 6}));
}

GemmProblem with_groups(GemmGrouping grouping) {
  GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 800, 3, 2);
  p.groups = 8, p.grouping = grouping;
  return p;
}

// The seeds are the same in every run, so that the shares of each kind are, too.
TEST(RandomGroups, AreBalancedSkewedOrRandom) {
  constexpr int kSeeds = 200;
  int balanced = 0, skewed = 0, empty = 0, partial = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const OwnedOperands owned =
        random_operands(with_groups(GemmGrouping::contiguous), static_cast<std::uint64_t>(seed));
    const auto* const ends =
        static_cast<const std::int32_t*>(std::get<GemmOperands>(owned.operands).group_ends);
    std::vector<int> sizes;
    for (int i = 0; i < 8; ++i) sizes.push_back(ends[i] - (i == 0 ? 0 : ends[i - 1]));
    std::ranges::sort(sizes);
    ASSERT_GE(sizes[0], 0);
    ASSERT_LE(ends[7], 800);
    partial += ends[7] < 800;
    empty += sizes[0] == 0;
    balanced += sizes[7] - sizes[0] <= 1;
    // 1, 1 / 2^1.2 and 1 / 8^1.2 of their sum.
    const double most = sizes[7];
    skewed += ends[7] == 800 && std::abs(sizes[6] - most * 0.4353) < 3 &&
              std::abs(sizes[0] - most * 0.0825) < 3;
  }
  EXPECT_GE(balanced, kSeeds / 8);
  EXPECT_GE(skewed, kSeeds / 8);
  EXPECT_GE(empty, kSeeds / 4);
  EXPECT_GE(partial, kSeeds / 20);
}

TEST(RandomGroups, NumbersOf64BitsAreThoseOf32) {
  const std::uint64_t seed = std::random_device{}();
  for (const GemmGrouping grouping :
       {GemmGrouping::contiguous, GemmGrouping::indexed, GemmGrouping::masked}) {
    GemmProblem p = with_groups(grouping);
    const OwnedOperands narrow = random_operands(p, seed);
    p.group_int64 = true;
    const OwnedOperands wide = random_operands(p, seed);
    const bool by_row = grouping == GemmGrouping::indexed;
    const auto numbers = [&](const OwnedOperands& owned) {
      const GemmOperands& o = std::get<GemmOperands>(owned.operands);
      return by_row                             ? o.group_index
             : grouping == GemmGrouping::masked ? o.group_rows
                                                : o.group_ends;
    };
    for (int i = 0; i < (by_row ? 800 : 8); ++i) {
      EXPECT_EQ(static_cast<const std::int64_t*>(numbers(wide))[i],
                static_cast<const std::int32_t*>(numbers(narrow))[i])
          << seed;
    }
  }
}

}  // namespace
}  // namespace tessera::measure
