#include "tessera/train/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comma_locale.h"
#include "host/learn/forests.h"
#include "host/train/learning_data.h"

namespace tessera::train {
namespace {

using testing_support::learning_data;

class Datasets : public testing::Test {
 protected:
  std::string refusal(const measure::SweepData& data, const DatasetFilter& filter = {}) const {
    return error_of([&] { make_dataset(data, filter); });
  }
  unsigned seed_ = fresh_seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
  measure::SweepData data_ = learning_data(seed_, 6, 5, 3);
  Target target_ = load_target("avx512");
};

TEST_F(Datasets, RowsAreSortedAndComplete) {
  std::ranges::reverse(data_.rows);
  const Dataset d = make_dataset(data_, {});
  EXPECT_EQ(d.target, "avx512");
  EXPECT_EQ(d.threads, std::vector<int>(6, 1));
  EXPECT_EQ(d.problems.size(), 6U);
  ASSERT_EQ(d.rows.size(), 30U);
  EXPECT_TRUE(std::ranges::is_sorted(d.kernel_names));
  for (std::size_t i = 1; i < d.rows.size(); ++i) {
    EXPECT_LT(std::pair(d.rows[i - 1].problem, d.kernel_names[d.rows[i - 1].kernel]),
              std::pair(d.rows[i].problem, d.kernel_names[d.rows[i].kernel]));
  }
  for (std::size_t i = 0; i < d.kernels.size(); ++i) {
    EXPECT_EQ(name_of(d.kernels[i]), d.kernel_names[i]);
  }
  EXPECT_EQ(first_rows(d), (std::vector<std::size_t>{0, 5, 10, 15, 20, 25, 30}));
}

TEST_F(Datasets, ReadingsOfAllMeasurementsAreCountedAndChangeNoHash) {
  const std::string hash = make_dataset(data_, {}).hash;
  data_.rows.push_back(data_.rows.front());  // the same time once more
  data_.rows.back().readings = 2;
  const Dataset d = make_dataset(data_, {.drop_unseen = false});
  EXPECT_EQ(std::ranges::count(d.rows, 5, &Dataset::Row::readings), 1);
  EXPECT_EQ(std::ranges::count(d.rows, 3, &Dataset::Row::readings), std::ssize(d.rows) - 1);
  EXPECT_EQ(make_dataset(data_, {}).hash, hash);
}

TEST_F(Datasets, HashDoesNotDependOnTheLocale) {
  for (measure::SweepRow& row : data_.rows) row.seconds = 1.5e-3;
  const std::string hash = make_dataset(data_, {}).hash;
  const testing_support::CommaLocale comma;
  EXPECT_EQ(make_dataset(data_, {}).hash, hash);
}

TEST_F(Datasets, SidesOfTheSplit) {
  const Dataset learned = make_dataset(data_, {});
  const Dataset unseen = make_dataset(data_, {.drop_unseen = false, .only_unseen = true});
  EXPECT_EQ(make_dataset(data_, {.drop_unseen = false}).problems.size(), 9U);
  EXPECT_EQ(unseen.problems.size(), 3U);
  for (const Problem& problem : learned.problems) EXPECT_FALSE(is_unseen(problem));
  for (const Problem& problem : unseen.problems) EXPECT_TRUE(is_unseen(problem));
}

TEST_F(Datasets, KernelsThatNoFeatureDescribesAreNotLearned) {
  const std::size_t rows = make_dataset(data_, {}).rows.size();
  const std::size_t scored = make_dataset(data_, {.drop_unseen = false}).rows.size();
  measure::SweepRow row = data_.rows.at(0);
  row.kernel = static_cast<int>(data_.kernels.size());
  data_.kernels.emplace_back("gemm_fp32_rcr_small_6x32x1_1x1x1_6x32x1_avx512");
  data_.rows.push_back(row);
  EXPECT_EQ(make_dataset(data_, {}).rows.size(), rows);
  EXPECT_EQ(make_dataset(data_, {.drop_unseen = false}).rows.size(), scored + 1);
}

TEST_F(Datasets, HoldsOnlyKernelsThatAWildcardMatches) {
  const Dataset all = make_dataset(data_, {});
  const std::string& first = all.kernel_names.at(0);
  const std::string& last = all.kernel_names.back();
  const Dataset two = make_dataset(data_, {.kernels = {first, "*" + last.substr(5)}});
  EXPECT_EQ(two.kernel_names, (std::vector<std::string>{first, last}));
  EXPECT_EQ(two.rows.size(), 2 * all.problems.size());
  EXPECT_EQ(
      refusal(data_, {.kernels = {"*_streamk_*"}}),
      fmt::format(
          "invalid_argument: data to learn from: none of {} rows is of the types asked for, of the "
          "kernels *_streamk_* and on the learned side of the split",
          data_.rows.size()));
}

TEST_F(Datasets, HashFollowsWhatIsLearned) {
  const std::string hash = make_dataset(data_, {}).hash;
  std::ranges::reverse(data_.rows);
  data_.rows[0].note = "a word more";
  EXPECT_EQ(make_dataset(data_, {}).hash, hash);
  for (measure::SweepRow& row : data_.rows) row.seconds *= 1 + 1e-15;
  EXPECT_NE(make_dataset(data_, {}).hash, hash);
}

TEST_F(Datasets, TimesOfSeveralFilesCountByTheirMedian) {
  measure::SweepData slower = data_;
  for (measure::SweepRow& row : slower.rows) row.seconds *= 3;
  const std::vector<measure::SweepData> parts = {data_, slower, slower};
  Dataset one = make_dataset(slower, {});
  for (Dataset::Row& row : one.rows) row.readings *= 3;
  const Dataset all = make_dataset(joined(parts), {});
  EXPECT_EQ(all.rows, one.rows);
  EXPECT_EQ(all.hash, one.hash);
}

TEST_F(Datasets, WhatADispatcherDoesNotAskAboutIsNotChosen) {
  const std::string other = "gemm_fp32_rcr_packb_7x960x1024_0x0x1_7x32x1_avx512";
  measure::SweepRow row = data_.rows.at(0);
  row.kernel = static_cast<int>(data_.kernels.size());
  row.seconds = 1e-12;
  data_.kernels.push_back(other);
  data_.rows.push_back(row);
  const Dataset d = make_dataset(data_, {.drop_unseen = false});
  std::vector<ScoredRow> rows = score_random(d, 1);
  for (ScoredRow& each : rows) each.score = -each.seconds;
  const std::vector<ScoredRow> before = rows;
  keep_offered(d, target_, rows);
  std::size_t lost = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_other = rows[i].kernel == other;
    EXPECT_EQ(std::isinf(rows[i].score), is_other) << rows[i].kernel;
    if (is_other) ++lost;
    if (!is_other) {
      EXPECT_EQ(rows[i].score, before[i].score);
    }
  }
  EXPECT_EQ(lost, 1U);
}

TEST_F(Datasets, DevicesAreThoseOfTheRows) {
  const std::string device = data_.runs[0].device;
  measure::SweepData other = data_;
  other.runs[0].device = "AAA";
  measure::SweepData failed = data_;
  failed.runs[0].device = "BBB";
  for (measure::SweepRow& row : failed.rows) row.outcome = measure::Outcome::wrong;
  const std::vector<measure::SweepData> parts = {data_, other, failed};
  EXPECT_EQ(make_dataset(joined(parts), {}).devices, (std::vector<std::string>{"AAA", device}));
}

TEST_F(Datasets, RowsThatAreNotOkAreLeftOut) {
  for (measure::SweepRow& row : data_.rows) {
    if (row.kernel != 0) row.outcome = measure::Outcome::wrong;
  }
  EXPECT_EQ(make_dataset(data_, {}).kernels.size(), 1U);
}

TEST_F(Datasets, ProblemsWithoutFeaturesOfTheirOwnAreLeftOut) {
  const auto learned = std::ranges::find_if(
      data_.problems, [](const std::string& text) { return !is_unseen(parse_problem(text)); });
  *learned += " pointer_arrays=1";
  const Dataset d = make_dataset(data_, {});
  EXPECT_EQ(d.problems.size(), 5U);
  for (const Problem& problem : d.problems) EXPECT_NE(to_string(problem), *learned);
}

// A problem is there once for each number of threads, with features and times of its own.
TEST_F(Datasets, SeveralNumbersOfThreads) {
  measure::SweepData two = data_;
  two.runs.at(0).threads = 2;
  for (measure::SweepRow& row : two.rows) row.seconds /= 1.5;
  const measure::SweepData both = joined(std::vector{two, data_});
  EXPECT_EQ(thread_numbers(both), (std::vector{1, 2}));
  const Dataset d = make_dataset(both, {.threads = {1, 2}});
  const Dataset one = make_dataset(both, {.threads = {1}});
  EXPECT_EQ(one.hash, make_dataset(data_, {}).hash);
  EXPECT_NE(d.hash, one.hash);
  ASSERT_EQ(d.problems.size(), 2 * one.problems.size());
  EXPECT_EQ(thread_numbers(d), (std::vector{1, 2}));
  EXPECT_EQ(thread_numbers(one), std::vector{1});
  const std::vector<std::size_t> groups = groups_of(d);
  const std::vector<double> values = feature_rows(d, target_);
  const std::vector<double> values_of_one = feature_rows(one, target_);
  const std::size_t width = values.size() / d.rows.size();
  for (std::size_t i = 0; i < d.rows.size(); ++i) {
    const std::size_t p = d.rows[i].problem;
    EXPECT_EQ(d.threads[p], 1 + static_cast<int>(p % 2));
    EXPECT_EQ(d.problems[p], one.problems[p / 2]);
    EXPECT_EQ(groups[i], p / 2 * 2);
    const std::size_t same = p / 2 * 5 + i % 5;  // five kernels a problem
    const std::span<const double> row = std::span(values).subspan(i * width, width);
    const bool is_equal =
        std::ranges::equal(row, std::span(values_of_one).subspan(same * width, width));
    EXPECT_EQ(is_equal, d.threads[p] == 1);
    EXPECT_EQ(d.rows[i].seconds, one.rows[same].seconds / (d.threads[p] == 1 ? 1 : 1.5));
  }
}

TEST_F(Datasets, BadData) {
  const std::string begin = "invalid_argument: data to learn from: ";
  EXPECT_EQ(refusal({}), begin + "no row is ok and measured on any target; there is nothing");
  EXPECT_EQ(refusal(data_, {.target = "avx2", .threads = {2}}),
            begin +
                "no row is ok and measured on avx2 with 2 threads; there is avx512 with 1 "
                "threads");
  EXPECT_EQ(refusal(data_, {.dtypes = {"bf16"}}),
            begin + "none of 45 rows is of the types bf16 and on the learned side of the split");
  EXPECT_EQ(refusal(data_, {.least_problems = 7}), begin + "at least 7 problems are needed, got 6");
  measure::SweepData other = data_;
  other.runs[0].target = "avx2";
  EXPECT_EQ(refusal(joined(std::vector{data_, other})),
            begin + "one target must be chosen, got avx2, avx512");
  other.runs[0] = data_.runs[0];
  other.runs[0].threads = 8;
  EXPECT_EQ(refusal(joined(std::vector{data_, other})),
            begin + "one number of threads must be chosen, got 1, 8");
  other = data_;
  other.rows[7].seconds = 0;
  EXPECT_NE(refusal(other, {.drop_unseen = false}).find("row 8: the time of gemm_"),
            std::string::npos);
}

TEST_F(Datasets, OperationsThatAreNotAskedForAreLeftOut) {
  EXPECT_EQ(make_dataset(data_, {.op = Op::gemm}).hash, make_dataset(data_, {}).hash);
  EXPECT_EQ(
      refusal(data_, {.op = Op::conv}),
      "invalid_argument: data to learn from: none of 45 rows is of the types asked for and on "
      "the learned side of the split");
}

TEST_F(Datasets, TextsThatCannotBeRead) {
  measure::SweepData other = data_;
  other.kernels[static_cast<std::size_t>(other.rows[2].kernel)] = "gemm_fp33";
  EXPECT_EQ(refusal(other).find("parse_error: data to learn from: row 3: "), 0U) << refusal(other);
  other = data_;
  other.problems[0] = "gemm m=x";
  EXPECT_EQ(refusal(other).find("parse_error: data to learn from: row 1: "), 0U) << refusal(other);
}

TEST_F(Datasets, FeaturesAreTheFamilysOwn) {
  const Dataset d = make_dataset(data_, {});
  const Family& family = family_of(Op::gemm);
  const std::size_t width = family.features().size();
  const std::vector<double> rows = feature_rows(d, target_);
  ASSERT_EQ(rows.size(), d.rows.size() * width);
  std::vector<double> one(width);
  for (std::size_t i = 0; i < d.rows.size(); ++i) {
    const KernelSpec& spec = d.kernels[d.rows[i].kernel];
    family.extract(d.problems[d.rows[i].problem], target_, 1, {&spec, 1}, one, {});
    EXPECT_TRUE(std::equal(one.begin(), one.end(), rows.begin() + std::ptrdiff_t(i * width)));
  }
}

// What is told of a way to choose is what the metrics say of scores made by hand.
TEST_F(Datasets, ScoresAreMinusSeconds) {
  const Dataset d = make_dataset(data_, {});
  const auto by_stages = [](const RankInput& input, std::span<double> seconds) {
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = static_cast<double>(i + 1);
    seconds[1] = std::nan("");
    return !input.legal.empty();
  };
  const std::vector<ScoredRow> scored = score(d, target_, by_stages);
  ASSERT_EQ(scored.size(), d.rows.size());
  std::vector<ScoredRow> by_hand;
  for (std::size_t i = 0; i < d.rows.size(); ++i) {
    const double place = static_cast<double>(i % 5);
    by_hand.push_back({i / 5, d.kernel_names[d.rows[i].kernel], d.rows[i].seconds,
                       i % 5 == 1 ? -HUGE_VAL : -place - 1});
    EXPECT_EQ(scored[i].score, by_hand[i].score);
  }
  EXPECT_EQ(evaluate(d.problems, scored).summary.mean, evaluate(d.problems, by_hand).summary.mean);
}

// Its order is the ranker's, shipped kernels before nearly equal ones.
TEST_F(Datasets, AnalyticScoresFollowTheRanker) {
  const Dataset d = make_dataset(data_, {});
  const auto results = evaluate(d.problems, score_analytic(d, target_)).results;
  for (const ProblemResult& result : results) {
    const RankInput input{d.problems[result.problem], target_, 1, d.kernels};
    EXPECT_EQ(result.chosen, d.kernel_names[make_analytic_ranker()->rank(input).at(0).index]);
  }
}

}  // namespace
}  // namespace tessera::train
