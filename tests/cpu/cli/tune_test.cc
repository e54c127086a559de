// tessera tune and tessera search on real kernels and tiny problems.
#include <fmt/format.h>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliTune : public CliTest {
 protected:
  CliTune() { write("problems.txt", "gemm m=40 n=24 k=16\ngemm m=9 n=48 k=64\n"); }

  // What the dispatcher takes.
  Json choice(const std::string& problem) const {
    Words words = words_of("run " + problem + " --target generic --threads 1 --repeat 1");
    return run_json(words).at("runs").at(0);
  }
};

constexpr const char* kTune =
    "tune --problems problems.txt --kernels *_packb_24x*_1x1x1_8x* --target generic --threads 1 "
    "--budget 60s";

TEST_F(CliTune, WinnersAreChosenFromThenOn) {
  const Json json = run_json(kTune);
  EXPECT_EQ(json.at("measured"), 2);
  ASSERT_EQ(json.at("problems").size(), 2U);
  EXPECT_TRUE(fs::exists(folder() / "cache" / "sweep.sqlite"));
  ASSERT_EQ(json.at("learned").size(), 1U);  // too few problems to learn from
  EXPECT_FALSE(json.at("learned").at(0).at("installed"));
  for (const Json& problem : json.at("problems")) {
    const Json chosen = choice(problem.at("problem").get<std::string>());
    EXPECT_EQ(chosen.at("source"), "tuned");
    EXPECT_EQ(chosen.at("kernel"), problem.at("now"));
  }
  // Nothing is left to measure, and what is chosen now is the fastest.
  const Json again = run_json(kTune);
  EXPECT_EQ(again.at("measured"), 0);
  EXPECT_EQ(again.at("compared"), 2);
  EXPECT_EQ(again.at("faster"), 0);
  EXPECT_EQ(again.at("geomean_speedup"), 1.0);
}

TEST_F(CliTune, SearchMeasuresAndRemembers) {
  const Json json =
      run_json(
          "search gemm m=40 n=24 k=16 --target generic --threads 1 --budget 20 --top 2 --remember")
          .at("searches")
          .at(0);
  EXPECT_EQ(json.at("evaluations"), 20);
  ASSERT_EQ(json.at("measured").size(), 2U);
  const Json& best = json.at("measured").at(0);
  EXPECT_EQ(best.at("outcome"), "ok");
  EXPECT_LE(best.at("seconds"), json.at("measured").at(1).at("seconds"));
  const Json chosen = choice("gemm m=40 n=24 k=16");
  EXPECT_EQ(chosen.at("source"), "tuned");
  EXPECT_EQ(chosen.at("kernel"), best.at("kernel"));
}

}  // namespace
}  // namespace tessera::cli_test
