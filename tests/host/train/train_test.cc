// Where LightGBM is installed.
#include "tessera/train/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "host/learn/forests.h"
#include "host/train/learning_data.h"
#include "tessera/base/files.h"
#include "tessera/learn/lightgbm.h"
#include "tessera/train/fit.h"

namespace tessera::train {
namespace {

using testing_support::learning_data;

constexpr int kKernels = 24;

class Train : public testing::Test {
 protected:
  void SetUp() override {
    try {
      lightgbm::load();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    options_.trees = 30;
    options_.leaves = 15;
    options_.folds = 3;
    options_.threads = 1;
    options_.date = "2026-11-21";
    options_.version = "0.1.0";
  }
  // The model as it is after it has been saved and loaded.
  std::shared_ptr<const Model> saved(const TrainResult& result) const {
    const fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-train-test-");
    save_model(folder, result.manifest, result.forest, ModelFile::gzip);
    auto model = std::make_shared<const Model>(load_model(folder));
    remove_tree(folder);
    return model;
  }

  // What choosing at random reaches: the mean of many draws, as one can be lucky on few problems.
  double random_mean(const Dataset& dataset) const {
    constexpr unsigned kDraws = 40;
    double sum = 0;
    for (unsigned draw = 0; draw < kDraws; ++draw) {
      sum += evaluate(dataset.problems, score_random(dataset, seed_ + draw)).summary.mean;
    }
    return sum / kDraws;
  }

  unsigned seed_ = fresh_seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
  Target target_ = load_target("avx512");
  measure::SweepData data_ = learning_data(seed_, 30, kKernels, 24);
  Dataset dataset_ = make_dataset(data_, {});
  TrainOptions options_;
};

TEST_F(Train, LearnsWhatTheEstimateDoesNotKnow) {
  for (const Goal goal :
       {Goal::seconds, Goal::tflops, Goal::bandwidth, Goal::efficiency, Goal::ranking}) {
    SCOPED_TRACE(to_string(goal));
    options_.goal = goal;
    const TrainResult result = train(dataset_, target_, options_);
    EXPECT_EQ(result.folds.size(), 3U);
    EXPECT_EQ(result.out_of_fold.size(), dataset_.rows.size());
    EXPECT_EQ(result.importances.size(), family_of(Op::gemm).features().size());
    const auto model = saved(result);
    const Dataset unseen = make_dataset(data_, {.drop_unseen = false, .only_unseen = true});
    const auto learned = evaluate(unseen.problems, score_model(unseen, target_, model));
    EXPECT_GT(learned.summary.mean, random_mean(unseen));
    EXPECT_EQ(model->manifest.data_hash, dataset_.hash);
    EXPECT_EQ(model->manifest.metrics.at("mean_efficiency"), result.evaluation->summary.mean);
  }
}

// In the quantity that a model predicts, over all rows; a model that only ranks has no fit.
TEST_F(Train, PredictionsFitWhatWasMeasured) {
  for (const Goal goal : {Goal::seconds, Goal::tflops, Goal::bandwidth, Goal::efficiency}) {
    SCOPED_TRACE(to_string(goal));
    options_.goal = goal;
    const auto model = saved(train(dataset_, target_, options_));
    const std::optional<Fit> fit = fit_of(dataset_, target_, model);
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->rows, dataset_.rows.size());
    EXPECT_GT(fit->r2, 0);
    EXPECT_LE(fit->r2, 1);
    EXPECT_GT(fit->rmse, 0);
  }
  options_.goal = Goal::tflops;
  const auto model = saved(train(dataset_, target_, options_));
  std::vector<double> measured;
  std::vector<double> predicted;
  for (const ScoredRow& row : score_model(dataset_, target_, model)) {
    const double flops = family_of(Op::gemm).flops(dataset_.problems[row.problem]);
    measured.push_back(flops / row.seconds / 1e12);
    predicted.push_back(flops / -row.score / 1e12);
  }
  EXPECT_NEAR(fit_of(dataset_, target_, model)->r2, fit_of(measured, predicted, "")->r2, 1e-9);
  options_.goal = Goal::ranking;
  EXPECT_FALSE(fit_of(dataset_, target_, saved(train(dataset_, target_, options_))));
}

// The round with the best choices counts, and the first one is among them.
TEST_F(Train, HardExamplesLoseNothingOutOfFold) {
  const TrainResult without = train(dataset_, target_, options_);
  EXPECT_TRUE(without.rounds.empty());
  options_.hard_rounds = 2;
  const TrainResult result = train(dataset_, target_, options_);
  ASSERT_EQ(result.rounds.size(), 3U);
  EXPECT_EQ(result.rounds[0].mean, without.evaluation->summary.mean);
  double best = 0;
  for (const Summary& round : result.rounds) best = std::max(best, round.mean);
  EXPECT_EQ(result.evaluation->summary.mean, best);
  EXPECT_NE(result.rounds[1].mean, result.rounds[0].mean);
  EXPECT_EQ(result.manifest.params.at("hard_rounds"), "2");
}

TEST_F(Train, SameBytesAgain) {
  const TrainResult one = train(dataset_, target_, options_);
  const TrainResult two = train(make_dataset(data_, {}), target_, options_);
  EXPECT_EQ(one.forest, two.forest);
  EXPECT_EQ(one.manifest, two.manifest);
  EXPECT_EQ(one.out_of_fold, two.out_of_fold);
  options_.seed = 2;
  EXPECT_NE(train(dataset_, target_, options_).forest, one.forest);
}

// No row that is scored is among those that trees are fitted to or stopped by, and a problem is on
// one side only.
TEST_F(Train, PartsShareNoProblem) {
  int scored = 0;
  options_.on_forest = [&](int forest, int forests, const Split& split) {
    EXPECT_EQ(forests, 4);
    if (forest == 3) {
      EXPECT_EQ(split.train.size(), dataset_.rows.size());
      return;
    }
    scored += static_cast<int>(split.score.size());
    std::map<std::uint32_t, std::set<int>> parts;
    for (const std::size_t row : split.train) parts[dataset_.rows[row].problem].insert(0);
    for (const std::size_t row : split.stop) parts[dataset_.rows[row].problem].insert(1);
    for (const std::size_t row : split.score) parts[dataset_.rows[row].problem].insert(2);
    EXPECT_EQ(parts.size(), dataset_.problems.size());
    for (const auto& [problem, part] : parts) EXPECT_EQ(part.size(), 1U) << problem;
  };
  train(dataset_, target_, options_);
  EXPECT_EQ(scored, static_cast<int>(dataset_.rows.size()));
}

// Other times of the problems that a fold scores change nothing of what it says about them.
TEST_F(Train, ScoredFoldDoesNotLeak) {
  std::vector<std::size_t> scored;
  options_.on_forest = [&](int forest, int, const Split& split) {
    if (forest == 0) scored = split.score;
  };
  for (const Goal goal : {Goal::seconds, Goal::efficiency}) {
    options_.goal = goal;
    const TrainResult before = train(dataset_, target_, options_);
    Dataset other = dataset_;
    std::mt19937_64 random(seed_);
    for (const std::size_t row : scored) {
      other.rows[row].seconds *= 1 + static_cast<double>(random() % 100);
    }
    const TrainResult after = train(other, target_, options_);
    for (const std::size_t row : scored) {
      EXPECT_EQ(before.out_of_fold[row], after.out_of_fold[row]);
    }
    EXPECT_NE(before.forest, after.forest);
    EXPECT_NE(before.folds[0].evaluation.summary.mean, after.folds[0].evaluation.summary.mean);
  }
}

TEST_F(Train, WarmStartAppendsTrees) {
  const TrainResult first = train(dataset_, target_, options_);
  const auto old_model = saved(first);
  const measure::SweepData more = learning_data(seed_ + 1, 20, kKernels);
  const Dataset dataset = make_dataset(more, {});
  options_.warm_start = old_model;
  options_.warm_start_text = first.forest;
  options_.trees = 10;
  const TrainResult second = train(dataset, target_, options_);
  const auto new_model = saved(second);
  const std::size_t before = old_model->forest.roots.size();
  const std::size_t after = new_model->forest.roots.size();
  EXPECT_GT(after, before);
  EXPECT_LE(after, before + 10);
  EXPECT_FALSE(second.evaluation);
  EXPECT_TRUE(second.folds.empty());
  // The old trees come first, unchanged: cut after them, the forest is the old one.
  Forest cut = new_model->forest;
  cut.roots.resize(before);
  const std::vector<double> rows = feature_rows(dataset_, target_);
  const std::size_t width = cut.feature_names.size();
  for (std::size_t i = 0; i < dataset_.rows.size(); i += 7) {
    const std::span<const double> row = std::span(rows).subspan(i * width, width);
    EXPECT_EQ(predict(cut, row), predict(old_model->forest, row));
  }
  options_.goal = options_.goal == Goal::tflops ? Goal::seconds : Goal::tflops;
  EXPECT_EQ(error_of([&] {
              train(dataset, target_, options_);
            }).find("invalid_argument: train: the warm start's goal is '"),
            0U);
}

// LightGBM merges trees by the numbers of their features.
TEST_F(Train, WarmStartNeedsTheFeaturesOfToday) {
  const TrainResult first = train(dataset_, target_, options_);
  Model fewer = *saved(first);
  fewer.manifest.features.pop_back();
  options_.warm_start = std::make_shared<const Model>(fewer);
  options_.warm_start_text = first.forest;
  const std::size_t today = family_of(Op::gemm).features().size();
  EXPECT_EQ(error_of([&] { train(dataset_, target_, options_); }),
            fmt::format("invalid_argument: train: the warm start's model has {} features, there "
                        "are {} today; train it anew",
                        today - 1, today));
}

TEST_F(Train, BadOptions) {
  const auto refusal = [&](auto change) {
    TrainOptions options = options_;
    change(options);
    return error_of([&] { train(dataset_, target_, options); });
  };
  EXPECT_EQ(refusal([](TrainOptions& o) { o.trees = 0; }),
            "invalid_argument: train: trees must be 1 to 100000, got 0");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.leaves = 1; }),
            "invalid_argument: train: leaves must be 2 to 4096, got 1");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.folds = 31; }),
            "invalid_argument: folds: 31 folds need as many problems, got 30");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.patience = -1; }),
            "invalid_argument: train: patience must be at least 0 trees, got -1");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.weight_power = -1; }),
            "invalid_argument: train: the power of the weights must be 0 to 16, got -1");
  EXPECT_EQ(error_of([&] { train(dataset_, load_target("avx2"), options_); }),
            "invalid_argument: train: the data are of target 'avx512', got the row of 'avx2'");
  EXPECT_EQ(error_of([] { parse_goal("second"); }),
            "not_found: unknown quantity 'second', did you mean 'seconds'? (known: seconds, "
            "tflops, bandwidth, efficiency, ranking)");
}

// A model judges what it was trained on, and the next ranker the rest.
TEST_F(Train, OutsideOfItsRanges) {
  const auto model = saved(train(dataset_, target_, options_));
  Dataset other = dataset_;
  other.threads.assign(other.problems.size(), 2);
  const std::vector<Outside> outside = outside_of(other, target_, model);
  ASSERT_EQ(outside.size(), other.problems.size());
  EXPECT_EQ(outside[0].reason,
            "the learned model has no opinion: it was trained with 1 threads, allowed are 2");
  EXPECT_TRUE(outside_of(dataset_, target_, model).empty());
  const auto analytic = score_analytic(other, target_);
  const auto scored = score_model(other, target_, model);
  for (std::size_t i = 0; i < scored.size(); ++i) EXPECT_EQ(scored[i].score, analytic[i].score);
}

// Whatever the cores at hand share, features describe the machine trained for.
TEST_F(Train, AnotherMachinesRow) {
  const auto model = saved(train(dataset_, target_, options_));
  Target other = target_;
  other.memory_gb_per_s *= 2;
  for (CacheLevel& cache : other.caches) cache.bytes *= cache.shared ? 2 : 1;
  const auto here = score_model(dataset_, target_, model);
  const auto there = score_model(dataset_, other, model);
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_EQ(here[i].score, there[i].score);
}

// With a seed the same trees would be made as with patience; the metric on the stopping rows is not
// asked.
TEST_F(Train, WithoutPatienceAllTreesStay) {
  options_.trees = 40;
  options_.params = {{"learning_rate", "1"}};  // the metric soon gets worse
  options_.patience = 2;
  EXPECT_LT(saved(train(dataset_, target_, options_))->forest.roots.size(), 40U);
  options_.patience = 0;
  const TrainResult all = train(dataset_, target_, options_);
  EXPECT_EQ(saved(all)->forest.roots.size(), 40U);
  for (const FoldResult& fold : all.folds) EXPECT_EQ(fold.trees, 40);
}

TEST_F(Train, LoadingTime) {
  options_.goal = Goal::seconds;
  options_.weight_power = 0;
  options_.trees = 300;
  options_.leaves = 63;
  options_.patience = 300;
  options_.params = {{"min_data_in_leaf", "1"}};
  const TrainResult result = train(dataset_, target_, options_);
  const fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-train-test-");
  save_model(folder, result.manifest, result.forest, ModelFile::gzip);
  const auto begin = std::chrono::steady_clock::now();
  const Model model = load_model(folder);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  remove_tree(folder);
  fmt::print("a model of {} trees and {} leaves was loaded in {:.2f} ms\n",
             model.forest.roots.size(), model.forest.leaves.size(), took.count());
  EXPECT_GT(model.forest.roots.size(), 0U);
}

}  // namespace
}  // namespace tessera::train
