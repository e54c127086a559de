// Commands that build and run kernels, in process.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/commands/commands.h"

namespace tessera::commands {
namespace {

using Json = nlohmann::ordered_json;

class CommandsRun : public testing::Test {
 protected:
  CommandsRun() { setenv("TESSERA_CACHE_DIR", path("cache").c_str(), 1); }
  ~CommandsRun() override {
    unsetenv("TESSERA_CACHE_DIR");
    remove_tree(folder_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Json sweep_options() const {
    std::string problems;
    for (int m = 1; m <= 30; ++m) problems += "gemm m=" + std::to_string(m) + " n=24 k=16\n";
    write_file(path("problems.txt"), problems);
    const Json wishes = {{"target", "generic"}, {"pattern", "gemm_fp32_rcr_packb_*x1_generic"}};
    const Json all = Json::parse(run_command("list", wishes.dump()).json);
    return {{"problems", path("problems.txt")},
            {"kernels", {all.at("kernels").at(0), all.at("kernels").at(1)}},
            {"target", "generic"},
            {"store", path("sweep.sqlite")},
            {"threads", 1}};
  }

 private:
  fs::path folder_ = make_unique_folder(fs::temp_directory_path(), "tessera-commands-run-");
};

TEST_F(CommandsRun, RunsAndVerifies) {
  const CommandResult result = run_command(
      "run", R"({"problem": "gemm m=5 n=6 k=7", "verify": true, "repeat": 1, "seed": 3})");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(Json::parse(result.json).at("runs").at(0).at("verified").at("ok"), true);
}

TEST_F(CommandsRun, StopEndsABuildOfManyKernels) {
  std::atomic<int> steps{0};
  const CommandCallbacks callbacks = {
      .progress = [&](std::string_view label, std::size_t, std::size_t,
                      std::string_view) { steps += label == "pack" ? 1 : 0; },
      .stop = [&] { return steps >= 1; }};
  const Json options = {{"target", "generic"},
                        {"preselected", "fp32_rcr_essential"},
                        {"output", path("kernels.pack")},
                        {"jobs", 1}};
  try {
    const CommandResult result = run_command("pack", options.dump(), callbacks);
    FAIL() << result.json;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), "cancelled") << error.what();
  }
  EXPECT_EQ(steps, 1);
  EXPECT_FALSE(fs::exists(path("kernels.pack")));
}

TEST_F(CommandsRun, AStoppedSweepKeepsWhatIsComplete) {
  std::atomic<std::size_t> measured{0};
  const CommandCallbacks callbacks = {
      .progress = [&](std::string_view label, std::size_t done, std::size_t,
                      std::string_view) { measured = label == "sweep" ? done : 0; },
      .stop = [&] { return measured >= 2; }};
  const CommandResult result = run_command("sweep", sweep_options().dump(), callbacks);
  const Json stopped = Json::parse(result.json);
  EXPECT_EQ(result.status, 1) << stopped;
  EXPECT_EQ(stopped.at("stopped"), true);
  EXPECT_GE(stopped.at("measured"), 2U);
  EXPECT_LT(stopped.at("measured"), 30U);

  const CommandResult rest = run_command("sweep", sweep_options().dump());
  EXPECT_EQ(rest.status, 0) << rest.json;
  EXPECT_EQ(Json::parse(rest.json).at("stored_before"), stopped.at("measured"));
}

}  // namespace
}  // namespace tessera::commands
