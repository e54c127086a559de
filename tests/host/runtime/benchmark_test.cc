#include "tessera/runtime/benchmark.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "tessera/base/error.h"
#include "tessera/base/interruption.h"
#include "tessera/runtime/benchmark_internal.h"

namespace tessera::runtime {
namespace {

// A clock that stands still unless a call moves it.
double g_now = 0;
double fake_now() { return g_now; }

class Benchmark : public testing::Test {
 protected:
  void SetUp() override { g_now = 100; }

  // A call that takes `seconds` of the fake clock and writes down that it ran.
  Candidate taking(const std::string& name, double seconds) {
    return {name, [this, name, seconds] {
              g_now += seconds;
              calls_.push_back(name);
            }};
  }

  std::vector<std::string> calls_;
};

Timing timing(std::vector<double> seconds) {
  Timing t;
  t.name = "t";
  t.seconds = std::move(seconds);
  return t;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST_F(Benchmark, RefusesTimesWithoutAnEnd) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(message_of([&] { measure({taking("a", 1)}, {.min_seconds = infinity}, fake_now); }),
            "invalid_argument: benchmark: min_seconds must be from 0 to 86400 seconds, a day, got "
            "inf");
  EXPECT_EQ(message_of([&] { measure({taking("a", 1)}, {.soak_seconds = 1e6}, fake_now); }),
            "invalid_argument: benchmark: soak_seconds must be from 0 to 86400 seconds, a day, got "
            "1000000");
  EXPECT_TRUE(calls_.empty());
}

// The clock stands still, so that nothing else ends the reading.
TEST_F(Benchmark, EndsBetweenCallsWhenItsCallerAsks) {
  set_interruption({.stop = [](void*) { return 1; }});
  EXPECT_EQ(message_of([&] { measure({taking("a", 0)}, {.min_seconds = 60}, fake_now); }),
            "cancelled: the call-back ended it");
  set_interruption({});
}

TEST_F(Benchmark, ReportsSecondsPerCallInTheOrderGiven) {
  const std::vector<Timing> timings = measure({taking("slow", 0.5), taking("fast", 0.25)},
                                              {.rounds = 5, .min_seconds = 2}, fake_now);
  ASSERT_EQ(timings.size(), 2u);
  EXPECT_EQ(timings[0].name, "slow");
  EXPECT_EQ(timings[0].seconds, std::vector<double>(5, 0.5));
  EXPECT_EQ(timings[0].median_seconds, 0.5);
  EXPECT_EQ(timings[0].min_seconds, 0.5);
  EXPECT_EQ(timings[0].spread, 0);
  EXPECT_EQ(timings[1].name, "fast");
  EXPECT_EQ(timings[1].seconds, std::vector<double>(5, 0.25));
}

TEST_F(Benchmark, RepeatsUntilTheReadingIsLongEnough) {
  // Two warm-up calls, then 2 readings of 2 s at 0.125 s a call.
  measure({taking("a", 0.125)}, {.rounds = 2, .warmup = 2, .min_seconds = 2}, fake_now);
  EXPECT_EQ(calls_.size(), 2u + 2u * 16u);
}

TEST_F(Benchmark, ReadingIsLongEnoughWhenTheWarmUpWasSlow) {
  int calls = 0;
  const Candidate speeds_up = {"a", [&calls] { g_now += ++calls <= 2 ? 1.0 : 0.0625; }};
  const auto timings = measure({speeds_up}, {.rounds = 1, .warmup = 2, .min_seconds = 2}, fake_now);
  EXPECT_EQ(calls, 2 + 32);
  EXPECT_EQ(timings[0].median_seconds, 0.0625);
}

TEST_F(Benchmark, WithoutWarmUpStillRepeats) {
  measure({taking("a", 0.5)}, {.rounds = 1, .warmup = 0, .min_seconds = 2}, fake_now);
  EXPECT_EQ(calls_.size(), 4u);
}

TEST_F(Benchmark, FlushedReadingIsOneCall) {
  measure({taking("a", 1e-6)}, {.rounds = 4, .warmup = 1, .flush_caches = true}, fake_now);
  EXPECT_EQ(calls_.size(), 1u + 4u);
}

TEST_F(Benchmark, EveryRoundHoldsEveryCandidateOnce) {
  const std::vector<Candidate> candidates = {taking("a", 1), taking("b", 1), taking("c", 1)};
  measure(candidates, {.rounds = 20, .warmup = 0, .min_seconds = 0}, fake_now);
  ASSERT_EQ(calls_.size(), 60u);
  for (std::size_t round = 0; round < 20; ++round) {
    const auto begin = calls_.begin() + static_cast<std::ptrdiff_t>(3 * round);
    std::vector<std::string> seen(begin, begin + 3);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<std::string>{"a", "b", "c"})) << "round " << round;
  }
}

TEST_F(Benchmark, OrderFollowsTheSeed) {
  const std::vector<Candidate> candidates = {taking("a", 1), taking("b", 1), taking("c", 1)};
  const auto order = [&](std::uint64_t seed) {
    calls_.clear();
    measure(candidates, {.rounds = 20, .warmup = 0, .min_seconds = 0, .seed = seed}, fake_now);
    return calls_;
  };
  const std::vector<std::string> first = order(1);
  EXPECT_EQ(order(1), first);
  EXPECT_NE(order(2), first);
  // Not the same order in every round either.
  EXPECT_FALSE(std::equal(first.begin(), first.begin() + 30, first.begin() + 30));
}

TEST_F(Benchmark, BudgetEndsAfterThreeRoundsAtLeast) {
  const auto rounds = [&](double budget) {
    return measure({taking("a", 1)},
                   {.rounds = 9, .warmup = 0, .min_seconds = 0, .budget_seconds = budget},
                   fake_now)[0]
        .seconds.size();
  };
  EXPECT_EQ(rounds(0), 9u);
  EXPECT_EQ(rounds(0.5), 3u);
  EXPECT_EQ(rounds(5.5), 6u);
  EXPECT_EQ(rounds(100), 9u);
}

TEST_F(Benchmark, SlowDriftCancelsInRatios) {
  // The machine slows down tenfold during the run; b always takes twice as long as a.
  double factor = 1;
  const auto drifting = [&](double seconds) {
    return [&factor, seconds] {
      g_now += seconds * factor;
      factor *= 1.0125;
    };
  };
  const auto timings = measure({{"a", drifting(1)}, {"b", drifting(2)}},
                               {.rounds = 101, .warmup = 0, .min_seconds = 0}, fake_now);
  EXPECT_GT(timings[0].spread, 0.5);
  const Ratio ratio = paired_ratio(timings[0], timings[1]);
  EXPECT_NEAR(ratio.median, 2, 0.03);
  EXPECT_LT(ratio.high - ratio.low, 0.06);
  EXPECT_FALSE(ratio.tie);
}

TEST_F(Benchmark, PassesOnWhatACallThrows) {
  const Candidate broken = {"a", [] { throw std::runtime_error("broken"); }};
  EXPECT_THROW(measure({broken}, {}, fake_now), std::runtime_error);
}

TEST_F(Benchmark, RefusesBadProtocols) {
  EXPECT_EQ(message_of([&] { measure({taking("a", 1)}, {.rounds = 0}, fake_now); }),
            "invalid_argument: benchmark: rounds must be at least 1, got 0");
  EXPECT_EQ(message_of([&] {
              measure({{"a", {}}}, {}, fake_now);
            }),
            "invalid_argument: benchmark: candidate 'a' has no call");
}

TEST_F(Benchmark, NothingToMeasure) { EXPECT_TRUE(measure({}, {}, fake_now).empty()); }

TEST(Quantile, InterpolatesBetweenNeighbours) {
  struct Case {
    std::vector<double> values;
    double fraction;
    double expected;
  };
  const std::vector<Case> cases = {
      {{7}, 0.5, 7},
      {{3, 1}, 0.5, 2},
      {{5, 1, 3}, 0.5, 3},
      {{1, 2, 3, 4}, 0.5, 2.5},
      {{1, 2, 3, 4, 5}, 0.25, 2},
      {{4, 3, 2, 1}, 0.75, 3.25},
      {{1, 2, 3}, 0, 1},
      {{1, 2, 3}, 1, 3},
      {{}, 0.5, 0},
  };
  for (const Case& c : cases) EXPECT_EQ(quantile(c.values, c.fraction), c.expected);
}

TEST(PairedRatio, ComparesWithinRounds) {
  struct Case {
    std::vector<double> a;
    std::vector<double> b;
    Ratio expected;
  };
  const std::vector<Case> cases = {
      {{1, 1, 1}, {2, 2, 2}, {2, 2, 2, false}},
      {{2, 2, 2}, {1, 1, 1}, {0.5, 0.5, 0.5, false}},
      {{1, 2, 4}, {1, 2, 4}, {1, 1, 1, true}},
      // The medians (2 and 3) say 1.5, the pairs say 2.
      {{1, 2, 3, 8, 1}, {2, 4, 3, 16, 2}, {2, 2, 2, false}},
      // 1 on the lower quartile is still a tie; just above it is not.
      {{1, 1, 1, 1, 1}, {0.5, 1, 2, 3, 4}, {2, 1, 3, true}},
      {{1, 1, 1, 1, 1}, {0.5, 1.25, 2, 3, 4}, {2, 1.25, 3, false}},
      {{1, 1, 1, 1, 1}, {0.25, 0.5, 0.75, 1, 2}, {0.75, 0.5, 1, true}},
      {{1}, {4}, {4, 4, 4, false}},
  };
  for (const Case& c : cases) {
    const Ratio ratio = paired_ratio(timing(c.a), timing(c.b));
    EXPECT_EQ(ratio.median, c.expected.median);
    EXPECT_EQ(ratio.low, c.expected.low);
    EXPECT_EQ(ratio.high, c.expected.high);
    EXPECT_EQ(ratio.tie, c.expected.tie);
  }
}

TEST(PairedRatio, RefusesUnequalRounds) {
  EXPECT_EQ(message_of([] {
              paired_ratio(timing({1, 2, 3}), timing({1}));
            }),
            "invalid_argument: benchmark: a ratio needs the same rounds of both, at least 1, got 3 "
            "of 't' and 1 of 't'");
  EXPECT_EQ(message_of([] { paired_ratio(timing({}), timing({})); }),
            "invalid_argument: benchmark: a ratio needs the same rounds of both, at least 1, got 0 "
            "of 't' and 0 of 't'");
}

TEST(MachinePeak, IsPlausibleAndMeasuredOnce) {
  const double begin = steady_seconds();
  const MachinePeak& peak = machine_peak();
  RecordProperty("seconds", std::to_string(steady_seconds() - begin));
  EXPECT_GT(peak.fp32_flops, 1e9);
  EXPECT_LT(peak.fp32_flops, 1e12);
  EXPECT_GT(peak.read_bytes_per_s, 1e8);
  EXPECT_LT(peak.read_bytes_per_s, 1e12);
  EXPECT_GE(peak.read_bytes_per_s_all, peak.read_bytes_per_s);
  EXPECT_EQ(&machine_peak(), &peak);
}

TEST(CacheSize, IsKnown) {
  EXPECT_GE(last_level_cache_bytes(), 1 << 16);
  EXPECT_EQ(flush_bytes(), 2.0 * static_cast<double>(last_level_cache_bytes()));
}

}  // namespace
}  // namespace tessera::runtime
