// Training, evaluating and exchanging data in process, on measurements made up for the test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "host/commands/run_json.h"
#include "host/train/learning_data.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/learn/lightgbm.h"
#include "tessera/measure/sweep_store.h"

namespace tessera::commands {
namespace {

class CommandsLearning : public testing::Test {
 protected:
  CommandsLearning() {
    const measure::SweepPart part{testing_support::learning_data(seed_, 12, 8, 4), "test"};
    measure::SweepStore(path("sweep.sqlite")).add({&part, 1}, measure::Conflict::refuse);
  }
  ~CommandsLearning() override { remove_tree(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Json train_options() const {
    return {{"data", {path("sweep.sqlite")}},
            {"target", "avx512"},
            {"dtype", "fp32"},
            {"folds", 3},
            {"trees", 9},
            {"leaves", 7},
            {"jobs", 1},
            {"param", {"learning_rate=0.1"}},
            {"output", path("model")}};
  }

  static bool has_lightgbm() {
    try {
      lightgbm::load();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  fs::path folder_ = make_unique_folder(fs::temp_directory_path(), "tessera-commands-learn-");
  std::uint64_t seed_ = std::random_device{}();
  testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
};

TEST_F(CommandsLearning, DataComesBackFromAFile) {
  const Json exported = run_json(
      "data",
      Json({{"what", "export"}, {"files", {path("sweep.sqlite"), path("sweep.csv")}}}).dump());
  const Json imported = run_json(
      "data",
      Json({{"what", "import"}, {"files", {path("again.sqlite"), path("sweep.csv")}}}).dump());
  EXPECT_GT(exported.at("rows"), 0);
  EXPECT_EQ(imported.at("added"), exported.at("rows"));
}

TEST_F(CommandsLearning, TrainsAndEvaluates) {
  if (!has_lightgbm()) GTEST_SKIP() << "LightGBM is not installed here";
  std::size_t steps = 0;
  const CommandCallbacks callbacks = {
      .progress =
          [&](std::string_view label, std::size_t, std::size_t total, std::string_view) {
            EXPECT_EQ(label, "train");
            EXPECT_EQ(total, 4U);
            ++steps;
          },
      .stop = {}};
  EXPECT_EQ(run_json("train", train_options().dump(), 0, callbacks).at("folds").size(), 3U);
  EXPECT_EQ(steps, 4U);
  const Json json = run_json(
      "evaluate",
      Json({{"model", path("model")}, {"data", path("sweep.sqlite")}, {"learned", true}}).dump());
  EXPECT_EQ(json.at("model").at("problems"), 12);
  const Json pair = {{"compare", {path("model"), path("model")}}, {"data", path("sweep.sqlite")}};
  EXPECT_EQ(run_json("evaluate", pair.dump()).at("accepted"), true);
}

TEST_F(CommandsLearning, StopEndsTrainingBeforeTheNextForest) {
  if (!has_lightgbm()) GTEST_SKIP() << "LightGBM is not installed here";
  std::size_t forests = 0;
  const CommandCallbacks callbacks = {
      .progress = [&](std::string_view, std::size_t, std::size_t, std::string_view) { ++forests; },
      .stop = [&] { return forests == 2; }};
  try {
    const CommandResult result = run_command("train", train_options().dump(), callbacks);
    FAIL() << result.json;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), "cancelled") << error.what();
  }
  EXPECT_EQ(forests, 2U);
  EXPECT_FALSE(fs::exists(path("model")));
}

}  // namespace
}  // namespace tessera::commands
