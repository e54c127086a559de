// Random indices, and sums of equal parts, as attention's tables of pages have them.
#include <gtest/gtest.h>

#include <random>
#include <set>

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

}  // namespace
}  // namespace tessera::measure
