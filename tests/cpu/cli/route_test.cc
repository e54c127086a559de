// The commands on routers: nothing but their family knows them.
#include <fmt/format.h>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

using CliRoute = CliTest;

constexpr const char* kRouter = "route_fp32_softmax_rows_1x1024x1_1x1x1_1x1x1_order_generic";

TEST_F(CliRoute, IsListedShownGeneratedAndExplained) {
  const Json kernels =
      run_json("list --op route --target generic --where scoring=softmax --where order=true")
          .at("kernels");
  EXPECT_NE(std::find(kernels.begin(), kernels.end(), kRouter), kernels.end());
  const Json shown = run_json(words_of(std::string("show ") + kRouter));
  EXPECT_EQ(shown.at("spec").at("signature").at("scoring"), "softmax");
  const Json written = run_json(
      "generate --op route --preselected bf16_sigmoid_essential --target sm90a --output-dir g");
  EXPECT_EQ(written.at("written"), 3);
  EXPECT_TRUE(fs::exists(folder() / "g/include/tessera/device/cuda/route/route_kernel.h"));
  const Json why =
      run_json("explain route tokens=4096 experts=128 top_k=8 dtype=bf16 order=1 --target sm90a");
  EXPECT_TRUE(why.at("decisions")
                  .at(0)
                  .at("kernel")
                  .get<std::string>()
                  .starts_with("route_bf16_softmax_rows_16x128x1_"));
  const std::string problems = run("problems layers --op route --target generic").out;
  EXPECT_NE(problems.find("\nroute tokens="), std::string::npos) << problems;
}

TEST_F(CliRoute, RunsVerifiesAndIsBenched) {
  const Json json = run_json(words_of(
      "run route tokens=70 experts=60 top_k=4 scoring=sigmoid bias=1 num_groups=6 top_groups=3 "
      "order=1 --target generic --verify --repeat 1"));
  const Json& verified = json.at("runs").at(0).at("verified");
  EXPECT_TRUE(verified.at("ok"));
  EXPECT_EQ(verified.at("checked"), 70 * (1 + 4) + 60 + 2 * 280);
  EXPECT_EQ(run_json(words_of(std::string("verify --target generic ") + kRouter)).at("verified"),
            1);
  const Json bench = run_json(words_of(
      std::string("bench route tokens=64 experts=100 top_k=3 order=1 --target generic --threads 1 "
                  "--rounds 3 --force ") +
      kRouter));
  EXPECT_GT(bench.at("cases").at(0).at("gb_per_s").get<double>(), 0);
}

TEST_F(CliRoute, PackReplacesTheCompiler) {
  EXPECT_EQ(
      run_json(words_of(std::string("pack --target generic --output n.pack --name ") + kRouter))
          .at("packed"),
      1);
  const std::vector<std::string> there = {"TESSERA_PACK=" + (folder() / "n.pack").string(),
                                          "TESSERA_NO_JIT=1",
                                          "TESSERA_CACHE_DIR=" + (folder() / "other").string()};
  const Json json =
      run_json(words_of(std::string("run route tokens=9 experts=9 top_k=2 order=1 --target generic "
                                    "--threads 1 --verify --force ") +
                        kRouter),
               there);
  EXPECT_TRUE(json.at("runs").at(0).at("verified").at("ok"));
}

TEST_F(CliRoute, IsTuned) {
  write("p.txt",
        "route tokens=40 experts=24 top_k=2 order=1\nroute tokens=9 experts=480 top_k=9\n");
  const Json tuned = run_json(
      "tune --problems p.txt --kernels *_1x1x1_1x1x1_* --target generic --threads 1 --budget 60s");
  EXPECT_EQ(tuned.at("measured"), 2);
}

}  // namespace
}  // namespace tessera::cli_test
