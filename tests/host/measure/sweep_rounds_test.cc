#include "tessera/measure/sweep_rounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace tessera::measure {
namespace {

// Fixed times with noise of a given share.
struct FakeKernels {
  std::vector<double> seconds;
  double noise = 0;
  std::mt19937_64 random{std::random_device{}()};
  std::vector<std::size_t> calls;

  double operator()(std::size_t i) {
    calls.push_back(i);
    return seconds[i] * (1 + noise * std::uniform_real_distribution<double>(-1, 1)(random));
  }
};

std::vector<std::size_t> sizes(const Readings& readings) {
  std::vector<std::size_t> result;
  for (const auto& of_one : readings) result.push_back(of_one.size());
  return result;
}

TEST(SweepRounds, SteadyKernelsAreReadThreeTimes) {
  FakeKernels fake{{1.0, 1.2, 1.4}};
  EXPECT_EQ(sizes(read_in_rounds(3, std::ref(fake), {})), (std::vector<std::size_t>{3, 3, 3}));
}

TEST(SweepRounds, HopelessKernelsAreReadOnceOrTwice) {
  for (const int after : {1, 2}) {
    FakeKernels fake{{1.0, 1.9, 2.1, 5}};
    const auto few = static_cast<std::size_t>(after);
    EXPECT_EQ(sizes(read_in_rounds(4, std::ref(fake), {.hopeless_after = after})),
              (std::vector<std::size_t>{3, 3, few, few}));
  }
}

TEST(SweepRounds, OneDisturbedReadingIsNoReasonToGiveUp) {
  int calls = 0;
  const Readings readings = read_in_rounds(
      2, [&](std::size_t i) { return i == 1 && ++calls == 1 ? 100.0 : 1.0 + 0.1 * double(i); }, {});
  EXPECT_GT(readings[1].size(), 2U);
}

TEST(SweepRounds, NoisyKernelsAreReadUntilTheLimitAndSlowOnesAreNot) {
  FakeKernels fake{{1.0, 1.7}, 0.05};
  const Readings readings = read_in_rounds(2, std::ref(fake), {});
  EXPECT_GE(readings[0].size(), 3U);
  EXPECT_LE(readings[0].size(), 9U);
  EXPECT_EQ(readings[1].size(), 3U);
}

TEST(SweepRounds, EveryRoundHasEachActiveKernelOnceInRandomOrder) {
  FakeKernels fake{std::vector<double>(8, 1.0)};
  read_in_rounds(8, std::ref(fake), {.seed = 5});
  ASSERT_EQ(fake.calls.size(), 24U);
  std::set<std::vector<std::size_t>> orders;
  for (std::size_t round = 0; round < 3; ++round) {
    const std::vector<std::size_t> order(fake.calls.begin() + static_cast<long>(8 * round),
                                         fake.calls.begin() + static_cast<long>(8 * round + 8));
    EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 8U);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 1U);
}

TEST(SweepRounds, ANegativeReadingTakesAKernelOut) {
  const Readings readings =
      read_in_rounds(2, [](std::size_t i) { return i == 0 ? -1.0 : 1.0; }, {});
  EXPECT_EQ(sizes(readings), (std::vector<std::size_t>{0, 3}));
}

TEST(SweepRounds, PastTheBudgetOneRoundIsAll) {
  FakeKernels fake{{1.0, 1.1}};
  EXPECT_EQ(sizes(read_in_rounds(2, std::ref(fake), {.budget_seconds = 1e-12})),
            (std::vector<std::size_t>{1, 1}));
}

TEST(SweepRounds, OneReadingAgainstTheEstimateIsDoubted) {
  std::mt19937_64 random(std::random_device{}());
  const double unit = std::uniform_real_distribution<double>(1e-6, 1e6)(random);
  // The third was disturbed; the fourth is as slow as it is expected to be.
  const std::vector<double> expected = {1.0 * unit, 1.2 * unit, 1.1 * unit, 4.0 * unit};
  const Readings readings = {{1, 1, 1}, {1.2, 1.2, 1.2}, {3.3}, {4}};
  EXPECT_EQ(doubted(readings, expected, {.hopeless_after = 1}), (std::vector<std::size_t>{2}));
  EXPECT_TRUE(doubted({{1, 1, 1}, {1.2, 1.2, 1.2}, {3.3, 3.2}, {4}}, expected, {}).empty());
  EXPECT_TRUE(doubted({{1}, {3}}, {1, 1}, {}).empty());  // nothing says how long a unit is
}

TEST(SweepRounds, PairedReadingsAreAllTaken) {
  FakeKernels fake{{1.0, 9.0}};
  EXPECT_EQ(sizes(read_paired(2, std::ref(fake), 11, 3)), (std::vector<std::size_t>{11, 11}));
}

// Five readings 1, 2, 3, 4, 5: the quartiles are 2 and 4, the median 3.
TEST(SweepRounds, HalfIntervalIsTheNotchOfABoxPlot) {
  EXPECT_DOUBLE_EQ(half_interval({5, 3, 1, 2, 4}), 1.57 * 2 / std::sqrt(5.0) / 3);
  EXPECT_EQ(half_interval({1}), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace tessera::measure
