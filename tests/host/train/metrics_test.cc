#include "tessera/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "host/spec/expect_error.h"

namespace tessera::train {
namespace {

// Names that sort by their number.
std::string kernel(int number) {
  return "gemm_fp32_rcr_packab_" + std::to_string(100 + number) + "x480x256_1x1x1_12x32x1_avx512";
}

Problem shape(std::int64_t m, std::int64_t n, std::int64_t k) {
  return gemm_problem(DType::fp32, GemmLayout::rcr, m, n, k);
}

TEST(Metrics, OneProblemByHand) {
  const std::vector<Problem> problems = {shape(16, 4096, 1000)};
  const std::vector<ScoredRow> rows = {{0, kernel(1), 1e-3, 5},
                                       {0, kernel(2), 2e-3, 9},
                                       {0, kernel(3), 4e-3, 7},
                                       {0, kernel(4), 8e-3, -1}};
  const Evaluation e = evaluate(problems, rows);
  ASSERT_EQ(e.results.size(), 1U);
  const ProblemResult& o = e.results[0];
  EXPECT_EQ(o.chosen, kernel(2));
  EXPECT_EQ(o.best, kernel(1));
  EXPECT_DOUBLE_EQ(o.efficiency, 0.5);
  EXPECT_EQ(o.rank_of_best, 3);
  EXPECT_DOUBLE_EQ(o.regret_of_top[0], 1);
  EXPECT_DOUBLE_EQ(o.regret_of_top[1], 0);
  EXPECT_DOUBLE_EQ(o.regret_of_top[3], 0);
  const double log3 = std::log2(3);
  const double log5 = std::log2(5);
  EXPECT_DOUBLE_EQ(o.ndcg, (0.5 + 0.25 / log3 + 1 / 2.0 + 0.125 / log5) /
                               (1 + 0.5 / log3 + 0.25 / 2.0 + 0.125 / log5));
  EXPECT_EQ(e.summary.problems, 1U);
  EXPECT_DOUBLE_EQ(e.summary.mean, 0.5);
  EXPECT_DOUBLE_EQ(e.summary.p10, 0.5);
  EXPECT_DOUBLE_EQ(e.summary.top1, 0);
  EXPECT_DOUBLE_EQ(e.summary.top3, 1);
}

// Four problems of two kernels with efficiencies 1, 0.9, 0.8 and 0.5.
struct FourProblems {
  std::vector<Problem> problems = {shape(8, 512, 100), shape(100, 300, 1024),
                                   shape(4096, 4096, 8192), shape(512, 512, 511)};
  std::vector<ScoredRow> rows;
  FourProblems() {
    const double efficiencies[] = {1, 0.9, 0.8, 0.5};
    for (std::size_t i = 0; i < 4; ++i) {
      rows.push_back({i, kernel(1), 1e-3 / efficiencies[i], 2});
      rows.push_back({i, kernel(2), 1e-3, 1});
    }
    rows[1].seconds = 2e-3;
  }
  Evaluation evaluation() const { return evaluate(problems, rows); }
};

TEST(Metrics, SummaryByHand) {
  const Summary s = FourProblems().evaluation().summary;
  EXPECT_EQ(s.problems, 4U);
  EXPECT_DOUBLE_EQ(s.mean, 0.8);
  EXPECT_DOUBLE_EQ(s.p50, 0.85);
  EXPECT_DOUBLE_EQ(s.p10, 0.5 + 0.3 * 0.3);
  EXPECT_DOUBLE_EQ(s.min, 0.5);
  EXPECT_DOUBLE_EQ(s.top1, 0.25);
  EXPECT_DOUBLE_EQ(s.top3, 1);
  EXPECT_DOUBLE_EQ(s.mean_regret[0], (0 + (1 / 0.9 - 1) + 0.25 + 1) / 4);
  EXPECT_DOUBLE_EQ(s.worst_regret[0], 1);
  EXPECT_DOUBLE_EQ(s.worst_regret[1], 0);
}

TEST(Metrics, CountsProblemsPerSlice) {
  const Evaluation e = FourProblems().evaluation();
  std::string found;
  for (const Slice& s : e.slices) {
    found += s.by + "=" + s.value + ":" + std::to_string(s.summary.problems) + " ";
  }
  EXPECT_EQ(found,
            "dtype=fp32:4 k=long:1 k=medium:1 k=short:2 layout=rcr:4 pipeline=packab:4 "
            "shape=large:1 shape=medium:1 shape=small:1 shape=tiny:1 ");
}

TEST(Metrics, TopCountsByHand) {
  // The best has the sixth best score of twelve.
  std::vector<ScoredRow> rows;
  for (int i = 0; i < 12; ++i) rows.push_back({0, kernel(i), 1e-3 * (12 - i), -std::abs(i - 8.2)});
  const std::vector<Problem> problems = {shape(64, 64, 64)};
  const Evaluation e = evaluate(problems, rows);
  const ProblemResult& o = e.results[0];  // order of scores: 8 9 7 10 6 11 5 4 3 2 1 0
  EXPECT_EQ(o.chosen, kernel(8));
  EXPECT_EQ(o.rank_of_best, 6);
  EXPECT_NEAR(o.regret_of_top[0], 3, 1e-12);
  EXPECT_NEAR(o.regret_of_top[1], 2, 1e-12);
  EXPECT_NEAR(o.regret_of_top[2], 1, 1e-12);
  EXPECT_NEAR(o.regret_of_top[3], 0, 1e-12);
  EXPECT_EQ(e.summary.top5, 0);
}

// Kernel 1 was the fastest before; kernel 2, which is chosen, does better now.
TEST(Metrics, AnOracleIsJudgedByTheSameReadings) {
  const std::vector<Problem> problems = {shape(16, 4096, 1000), shape(8, 8, 8)};
  const std::vector<ScoredRow> before = {
      {0, kernel(1), 1e-3, 0}, {0, kernel(2), 2e-3, 0}, {1, kernel(3), 1e-3, 0}};
  const std::vector<ScoredRow> rows = {{0, kernel(1), 2e-3, 5},
                                       {0, kernel(2), 1e-3, 9},
                                       {0, kernel(4), 4e-3, 7},
                                       {1, kernel(1), 1e-3, 1}};
  const Oracle oracle = fastest_of(before);
  EXPECT_EQ(oracle, (Oracle{{0, kernel(1)}, {1, kernel(3)}}));
  const Evaluation e = evaluate(problems, rows, oracle);
  ASSERT_EQ(e.results.size(), 1U) << "kernel 3 has no reading on problem 1";
  EXPECT_EQ(e.results[0].best, kernel(1));
  EXPECT_EQ(e.results[0].chosen, kernel(2));
  EXPECT_EQ(e.results[0].chosen_seconds, 1e-3);
  EXPECT_EQ(e.results[0].best_seconds, 2e-3);
  EXPECT_EQ(e.results[0].efficiency, 1);
  EXPECT_EQ(e.results[0].regret_of_top[0], 0);
  EXPECT_EQ(e.results[0].rank_of_best, 3);
  EXPECT_LE(e.results[0].ndcg, 1);
}

TEST(Metrics, AnOracleWithoutReadings) {
  const std::vector<Problem> problems = {shape(16, 4096, 1000)};
  const std::vector<ScoredRow> rows = {{0, kernel(1), 2e-3, 5}};
  expect_error(ErrorCode::invalid_argument,
               "evaluate: none of the 1 kernels of the oracle was measured on its problem", [&] {
                 evaluate(problems, rows, {{0, kernel(2)}});
               });
}

TEST(Metrics, TiesAreBrokenByName) {
  const std::vector<Problem> problems = {shape(64, 64, 64)};
  const Evaluation e = evaluate(
      problems, std::vector<ScoredRow>{
                    {0, kernel(3), 1e-3, 1}, {0, kernel(1), 2e-3, 1}, {0, kernel(2), 1e-3, 1}});
  EXPECT_EQ(e.results[0].chosen, kernel(1));
  EXPECT_EQ(e.results[0].best, kernel(2));
  EXPECT_EQ(e.results[0].rank_of_best, 2);
}

TEST(Metrics, WorstTen) {
  std::vector<Problem> problems;
  std::vector<ScoredRow> rows;
  for (int i = 0; i < 13; ++i) {
    problems.push_back(shape(64 + i, 64, 64));
    rows.push_back({static_cast<std::size_t>(i), kernel(1), 1e-3 * (20 - i), 2});
    rows.push_back({static_cast<std::size_t>(i), kernel(2), 1e-3, 1});
  }
  const Evaluation e = evaluate(problems, rows);
  ASSERT_EQ(e.worst.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(e.worst[i].problem, i);
  EXPECT_DOUBLE_EQ(e.worst[0].efficiency, 1.0 / 20);
  EXPECT_EQ(e.worst[0].chosen, kernel(1));
  EXPECT_EQ(e.worst[0].best, kernel(2));
}

TEST(Metrics, BadRows) {
  const std::vector<Problem> problems = {shape(64, 64, 64)};
  const auto fails = [&](const std::string& message, std::vector<ScoredRow> rows) {
    expect_error(ErrorCode::invalid_argument, message, [&] { evaluate(problems, rows); });
  };
  fails("evaluate: there is no row of measurements for 1 problems", {});
  fails("evaluate: a row of x belongs to problem 7, there are 1", {{7, "x", 1, 1}});
  fails("evaluate: the time of x on problem 0 must be positive, got 0 s", {{0, "x", 0, 1}});
  fails("evaluate: the score of x on problem 0 is no number",
        {{0, "x", 1, std::numeric_limits<double>::quiet_NaN()}});
  fails("evaluate: x comes twice on problem 0, with 1 s and 2 s", {{0, "x", 1, 1}, {0, "x", 2, 1}});
}

TEST(Metrics, SameModelIsAccepted) {
  const FourProblems four;
  const Comparison c = compare(four.evaluation(), four.evaluation(), four.problems);
  EXPECT_TRUE(c.accepted);
  EXPECT_EQ(c.mean, 1);
  EXPECT_EQ(c.worst, 1);
  EXPECT_TRUE(c.reasons.empty());
  EXPECT_EQ(c.agreeing, 4U);
  EXPECT_EQ(c.same, 4U);
}

TEST(Metrics, CountsWhatChanges) {
  FourProblems before;
  FourProblems after = before;
  after.rows[7].score = 3;              // another kernel, which is faster
  after.rows[2].seconds = 1e-3 / 0.85;  // the same kernel, which is slower
  const Comparison c = compare(before.evaluation(), after.evaluation(), before.problems);
  EXPECT_EQ(c.agreeing, 3U);
  EXPECT_EQ(c.improved, 1U);
  EXPECT_EQ(c.same, 2U);
  EXPECT_EQ(c.degraded, 1U);
}

TEST(Metrics, WorseModelIsRefusedWithReasons) {
  const FourProblems before;
  FourProblems after = before;
  after.rows[2].seconds = 1e-3 / 0.71;  // 0.9 becomes 0.71
  const Comparison c = compare(before.evaluation(), after.evaluation(), before.problems);
  EXPECT_FALSE(c.accepted);
  EXPECT_DOUBLE_EQ(c.worst, 0.71 / 0.9);
  EXPECT_EQ(c.worst_problem, 1U);
  const std::vector<std::string> expected = {
      "the mean of efficiency falls by 5.94%, at most 0.5% are allowed",
      "the median of efficiency falls by 11.18%, at most 0.5% are allowed",
      "P10 of efficiency falls by 4.58%, at most 2.0% are allowed",
      "gemm m=100 n=300 k=1024 falls by 21.11%, at most 10.0% are allowed",
  };
  EXPECT_EQ(c.reasons, expected);
  EXPECT_TRUE(compare(after.evaluation(), before.evaluation(), before.problems).accepted);
}

TEST(Metrics, SmallLossesAreAccepted) {
  const FourProblems before;
  FourProblems after = before;
  after.rows[2].seconds = 1e-3 / (0.9 * 0.993);  // 0.16% of the mean, 0.37% of the median
  EXPECT_TRUE(compare(before.evaluation(), after.evaluation(), before.problems).accepted);
  after.rows[2].seconds = 1e-3 / (0.9 * 0.98);  // 1.06% of the median
  EXPECT_FALSE(compare(before.evaluation(), after.evaluation(), before.problems).accepted);
}

TEST(Metrics, OtherProblemsCannotBeCompared) {
  const FourProblems four;
  const auto fewer = evaluate(four.problems, std::span(four.rows).first(6));
  expect_error(ErrorCode::invalid_argument,
               "evaluate: two evaluations are compared on the same problems, got 4 and 3",
               [&] { compare(four.evaluation(), fewer, four.problems); });
}

}  // namespace
}  // namespace tessera::train
