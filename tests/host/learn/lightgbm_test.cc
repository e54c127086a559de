// Our predictions are LightGBM's own, bit for bit, where LightGBM is installed.
#include "tessera/learn/lightgbm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "host/learn/forests.h"
#include "tessera/learn/gzip.h"

namespace tessera {
namespace {

class LightGbm : public testing::Test {
 protected:
  void SetUp() override {
    try {
      lightgbm::load();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

void expect_same_predictions(const std::string& text, const std::vector<double>& columns,
                             std::size_t count) {
  const lightgbm::Booster booster = lightgbm::load_booster(text);
  const std::vector<double> expected = lightgbm::predict(
      booster, columns, count, columns.size() / count, lightgbm::Order::by_column, "num_threads=1");
  for (const std::string& bytes : {text, deflate_gzip(text)}) {
    const Forest forest = parse_forest(bytes, "model");
    std::vector<double> out(count);
    predict(forest, {columns, count}, out);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::memcmp(&out[i], &expected[i], sizeof(double)), 0)
          << "row " << i << ": " << out[i] << " and " << expected[i];
    }
  }
}

// Trees that no training would grow: every missing type, default and threshold near zero.
TEST_F(LightGbm, RandomForestsAgree) {
  for (int round = 0; round < 40; ++round) {
    const unsigned seed = fresh_seed();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomForest maker(seed);
    const std::string text = maker.text(30, 40);
    expect_same_predictions(text, maker.columns(500), 500);
  }
}

struct Training {
  std::string parameters;
  bool is_ranking = false;
};

// A data set with zeros, NaN and categories, whose label depends on all of them.
std::string train(RandomForest& maker, const Training& training, std::size_t trees) {
  constexpr std::size_t kRows = 1500;
  constexpr int kPerQuery = 50;
  const std::vector<double> columns = maker.columns(kRows);
  std::vector<float> label;
  for (std::size_t i = 0; i < kRows; ++i) {
    double sum = 0;
    for (const double x : row_of(columns, kRows, i)) {
      sum += std::isfinite(x) && std::fabs(x) < 100 ? x : 1;
    }
    label.push_back(training.is_ranking ? static_cast<float>(maker.below(4))
                                        : static_cast<float>(sum + maker.uniform() / 8));
  }
  const std::string parameters =
      training.parameters +
      " num_threads=1 verbosity=-1 min_data_in_leaf=5 seed=" + std::to_string(maker.below(1000));
  const auto data = lightgbm::make_dataset(columns, kRows, maker.features,
                                           lightgbm::Order::by_column, parameters);
  lightgbm::set_field(data, "label", std::span<const float>(label));
  if (training.is_ranking) {
    const std::vector<std::int32_t> queries(kRows / kPerQuery, kPerQuery);
    lightgbm::set_field(data, "group", std::span<const std::int32_t>(queries));
  }
  const auto booster = lightgbm::make_booster(data, parameters);
  for (std::size_t i = 0; i < trees && lightgbm::update(booster); ++i) {
  }
  return lightgbm::save_text(booster);
}

TEST_F(LightGbm, TrainedForestsAgree) {
  const std::vector<Training> all = {
      {"objective=regression num_leaves=31 categorical_feature=5"},
      {"objective=regression num_leaves=200 max_bin=1000"},
      {"objective=regression zero_as_missing=true num_leaves=15"},
      {"objective=regression use_missing=false num_leaves=15 categorical_feature=5"},
      {"objective=regression_l1 num_leaves=31"},
      {"objective=huber num_leaves=31 boosting=dart"},
      {"objective=regression num_leaves=31 boosting=rf bagging_freq=1 bagging_fraction=0.5"},
      {"objective=lambdarank num_leaves=31 categorical_feature=5", true},
      {"objective=regression min_gain_to_split=1e30"},  // no split at all: constants
  };
  for (const Training& training : all) {
    const unsigned seed = fresh_seed();
    SCOPED_TRACE(fmt::format("{}, seed {}", training.parameters, seed));
    RandomForest maker(seed);
    const std::string text = train(maker, training, 25);
    expect_same_predictions(text, maker.columns(1000), 1000);
  }
}

TEST_F(LightGbm, LinearTreesAreRefused) {
  RandomForest maker(fresh_seed());
  const std::string text = train(maker, {"objective=regression linear_tree=true"}, 3);
  const std::string error = error_of([&] { parse_forest(text, "model.txt"); });
  EXPECT_NE(error.find("linear trees are not read; train without linear_tree"), std::string::npos)
      << error;
}

// Continuing: the old model's predictions are where the new trees start from, and merging puts the
// old trees first.
TEST_F(LightGbm, GoesOnTraining) {
  RandomForest maker(fresh_seed());
  const std::string parameters = "objective=regression num_leaves=7 verbosity=-1 num_threads=1";
  constexpr std::size_t kRows = 600;
  const std::vector<double> columns = maker.columns(kRows);
  std::vector<float> label;
  for (std::size_t i = 0; i < kRows; ++i) label.push_back(static_cast<float>(maker.uniform()));
  const auto make = [&] {
    const auto data = lightgbm::make_dataset(columns, kRows, maker.features,
                                             lightgbm::Order::by_column, parameters);
    lightgbm::set_field(data, "label", std::span<const float>(label));
    return data;
  };
  const auto old = lightgbm::make_booster(make(), parameters);
  for (int i = 0; i < 5; ++i) lightgbm::update(old);

  const auto data = make();
  const std::vector<double> start =
      lightgbm::predict(old, columns, kRows, maker.features, lightgbm::Order::by_column);
  lightgbm::set_field(data, "init_score", std::span<const double>(start));
  auto more = lightgbm::make_booster(data, parameters + " metric=l2");
  lightgbm::add_validation(more, data);
  const double before = lightgbm::evaluate(more, 0).at(0);
  for (int i = 0; i < 4; ++i) lightgbm::update(more);
  lightgbm::roll_back(more);
  EXPECT_LT(lightgbm::evaluate(more, 1).at(0), before);
  lightgbm::merge(more, old);

  const Forest forest = parse_forest(lightgbm::save_text(more), "model.txt");
  EXPECT_EQ(forest.roots.size(), 8u);
  EXPECT_EQ(parse_forest(lightgbm::save_text(more, 2), "model.txt").roots.size(), 2u);
  const Forest first = parse_forest(lightgbm::save_text(old), "model.txt");
  EXPECT_TRUE(std::equal(first.leaves.begin(), first.leaves.end(), forest.leaves.begin()));
  const auto gains = lightgbm::importance(more, maker.features, lightgbm::Importance::gain);
  EXPECT_GT(*std::max_element(gains.begin(), gains.end()), 0);
}

TEST_F(LightGbm, ItsOwnWordsComeBack) {
  const std::string error = error_of([] { lightgbm::load_booster("not a model"); });
  EXPECT_EQ(error.find("internal: LightGBM: cannot read a model: "), 0u) << error;
  EXPECT_EQ(error_of([] {
              lightgbm::make_dataset(std::vector<double>(7), 2, 3, lightgbm::Order::by_row, "");
            }),
            "invalid_argument: LightGBM: 2 rows of 3 columns cannot be 7 numbers");
}

// Only before it has been loaded does the place matter, so that this asks a process of its own.
TEST(LightGbmLoad, MissingSaysHowToGetIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("TESSERA_LIGHTGBM", "/nowhere/lib_lightgbm.so", 1);
        const std::string error = error_of(lightgbm::load);
        const bool good = error.find(
                              "load_failed: cannot load LightGBM from /nowhere/lib_lightgbm.so "
                              "(TESSERA_LIGHTGBM): ") == 0 &&
                          error.find("get it with 'pip install lightgbm'") != std::string::npos &&
                          error.find("libgomp") != std::string::npos;
        std::exit(good ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera
