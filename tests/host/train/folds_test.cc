#include "tessera/train/folds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "host/spec/expect_error.h"

namespace tessera::train {
namespace {

// Problems with different numbers of rows, in random order.
struct RandomGroups {
  unsigned seed = std::random_device{}();
  std::mt19937 engine{seed};
  std::size_t largest = 0;
  std::vector<std::size_t> rows;

  explicit RandomGroups(std::size_t problems) {
    for (std::size_t id = 0; id < problems; ++id) {
      const std::size_t count = std::uniform_int_distribution<std::size_t>(1, 300)(engine);
      largest = std::max(largest, count);
      rows.insert(rows.end(), count, id * 31);
    }
    std::shuffle(rows.begin(), rows.end(), engine);
  }
};

TEST(Folds, NoProblemIsInTwo) {
  RandomGroups groups(57);
  const std::vector<int> folds = group_folds(groups.rows, 5);
  std::map<std::size_t, int> fold_of;
  for (std::size_t i = 0; i < folds.size(); ++i) {
    const auto [place, fresh] = fold_of.emplace(groups.rows[i], folds[i]);
    ASSERT_EQ(place->second, folds[i]) << "seed " << groups.seed;
  }
}

TEST(Folds, HaveAboutAsManyRows) {
  RandomGroups groups(200);
  std::vector<std::size_t> rows(5);
  for (const int fold : group_folds(groups.rows, 5)) ++rows.at(static_cast<std::size_t>(fold));
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
  EXPECT_LE(*most - *least, groups.largest) << "seed " << groups.seed;
}

TEST(Folds, DoNotDependOnTheOrderOfRows) {
  RandomGroups groups(40);
  const std::vector<int> folds = group_folds(groups.rows, 4);
  std::vector<std::size_t> order(folds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), groups.engine);
  std::vector<std::size_t> shuffled;
  for (const std::size_t i : order) shuffled.push_back(groups.rows[i]);
  const std::vector<int> again = group_folds(shuffled, 4);
  for (std::size_t i = 0; i < order.size(); ++i) {
    ASSERT_EQ(again[i], folds[order[i]]) << "seed " << groups.seed;
  }
}

TEST(Folds, LargestProblemsGoFirst) {
  // Rows: problem 7 has 4, problem 1 has 3, problem 2 has 2, problem 3 has 1.
  const std::vector<std::size_t> groups = {7, 1, 7, 2, 7, 1, 3, 7, 2, 1};
  const std::vector<int> expected = {0, 1, 0, 1, 0, 1, 0, 0, 1, 1};
  EXPECT_EQ(group_folds(groups, 2), expected);
}

TEST(Folds, StopAndScoreShareNoProblemWithTrain) {
  RandomGroups groups(80);
  const std::vector<int> folds = group_folds(groups.rows, 4);
  const Split split = split_rows(groups.rows, folds, 2, 0.2);
  std::map<std::size_t, std::set<int>> parts;
  std::vector<std::size_t> all;
  int part = 0;
  for (const auto* rows : {&split.train, &split.stop, &split.score}) {
    for (const std::size_t i : *rows) parts[groups.rows[i]].insert(part);
    all.insert(all.end(), rows->begin(), rows->end());
    ++part;
  }
  for (const auto& [group, its_parts] : parts) {
    EXPECT_EQ(its_parts.size(), 1U) << "problem " << group << ", seed " << groups.seed;
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
  EXPECT_EQ(all.size(), groups.rows.size());
  for (const std::size_t i : split.score) ASSERT_EQ(folds[i], 2);
  const auto rest = static_cast<double>(split.train.size() + split.stop.size());
  EXPECT_NEAR(static_cast<double>(split.stop.size()), 0.2 * rest,
              static_cast<double>(groups.largest))
      << "seed " << groups.seed;
}

TEST(Folds, TooFewProblems) {
  const std::vector<std::size_t> groups = {4, 4, 9};
  expect_error(ErrorCode::invalid_argument, "folds: at least 2 folds are needed, got 1",
               [&] { group_folds(groups, 1); });
  expect_error(ErrorCode::invalid_argument, "folds: 5 folds need as many problems, got 2",
               [&] { group_folds(groups, 5); });
  const std::vector<int> folds = group_folds(groups, 2);
  expect_error(
      ErrorCode::invalid_argument,
      "folds: fold 0 leaves 1 rows to train, 0 to stop and 2 to score; each needs a problem",
      [&] { split_rows(groups, folds, 0, 0.1); });
  expect_error(ErrorCode::invalid_argument,
               "folds: the share of early stopping must be between 0 and 1, got 1",
               [&] { split_rows(groups, folds, 0, 1.0); });
  expect_error(ErrorCode::invalid_argument, "folds: every row needs a fold, got 3 rows and 2 folds",
               [&] { split_rows(groups, std::span(folds).first(2), 0, 0.5); });
}

}  // namespace
}  // namespace tessera::train
