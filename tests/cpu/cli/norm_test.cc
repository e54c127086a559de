// The commands on a second operation: nothing but its family knows normalisations.
#include <fmt/format.h>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

using CliNorm = CliTest;

constexpr const char* kKernel = "norm_fp32_softmax_rows_1x1024x1_1x1x1_1x1x1_generic";

TEST_F(CliNorm, IsListedShownGeneratedAndExplained) {
  const Json kernels =
      run_json("list --op norm --target generic --where kind=softmax --where slices=1")["kernels"];
  EXPECT_NE(std::find(kernels.begin(), kernels.end(), kKernel), kernels.end());
  const Json shown = run_json(words_of(std::string("show ") + kKernel));
  EXPECT_EQ(shown.at("spec").at("signature").at("kind"), "softmax");
  const Json written = run_json(
      "generate --op norm --preselected bf16_layernorm_essential --target sm90a --output-dir g");
  EXPECT_EQ(written.at("written"), 12);
  EXPECT_TRUE(fs::exists(folder() / "g/include/tessera/device/cuda/norm/norm_kernel.h"));
  const Json why = run_json(
      "explain norm kind=layernorm rows=4096 columns=4096 dtype=bf16 scale=1 shift=1 --target "
      "sm90a");
  EXPECT_TRUE(why.at("decisions")
                  .at(0)
                  .at("kernel")
                  .get<std::string>()
                  .starts_with("norm_bf16_layernorm_rows_"));
  const std::string problems = run("problems wide --op norm --target generic").out;
  EXPECT_NE(problems.find("\nnorm kind="), std::string::npos) << problems;
}

TEST_F(CliNorm, RunsVerifiesAndIsBenched) {
  for (const std::string dtype : {"fp32", "fp16", "bf16,fp32"}) {
    const Json json = run_json({"run", "norm", "kind=layernorm", "rows=7", "columns=1500",
                                "scale=1", "shift=1", "residual=1", "dtype=" + dtype, "--target",
                                "generic", "--verify", "--repeat", "1"});
    const Json& verified = json.at("runs").at(0).at("verified");
    EXPECT_TRUE(verified.at("ok"));
    EXPECT_EQ(verified.at("checked"), 2 * 7 * 1500);
  }
  EXPECT_EQ(run_json(words_of(std::string("verify --target generic ") + kKernel)).at("verified"),
            1);
  const Json bench = run_json(words_of(
      std::string("bench norm kind=softmax rows=64 columns=100 --target generic --threads 1 "
                  "--rounds 3 --force ") +
      kKernel));
  const Json& found = bench.at("cases").at(0);
  EXPECT_GT(found.at("gb_per_s").get<double>(), 0);
  EXPECT_GT(found.at("bandwidth_fraction").get<double>(), 0);
  const std::string text = run("bench norm kind=softmax rows=64 columns=100 --target generic "
                               "--threads 1 --rounds 3")
                               .out;
  EXPECT_NE(text.find("of read bandwidth"), std::string::npos) << text;
}

TEST_F(CliNorm, PackReplacesTheCompiler) {
  EXPECT_EQ(
      run_json(words_of(std::string("pack --target generic --output n.pack --name ") + kKernel))
          .at("packed"),
      1);
  const std::vector<std::string> there = {"TESSERA_PACK=" + (folder() / "n.pack").string(),
                                          "TESSERA_NO_JIT=1",
                                          "TESSERA_CACHE_DIR=" + (folder() / "other").string()};
  const Json json = run_json(words_of(std::string("run norm kind=softmax rows=9 columns=9 --target "
                                                  "generic --threads 1 --verify --force ") +
                                      kKernel),
                             there);
  EXPECT_TRUE(json.at("runs").at(0).at("verified").at("ok"));
}

TEST_F(CliNorm, IsTunedAndSearched) {
  write("p.txt",
        "norm kind=softmax rows=40 columns=24\nnorm kind=rmsnorm rows=9 columns=480 scale=1\n");
  const Json tuned = run_json(
      "tune --problems p.txt --kernels *_1x1x1_1x1x1_* --target generic --threads 1 --budget 60s");
  EXPECT_EQ(tuned.at("measured"), 2);
  const Json chosen =
      run_json("run norm kind=softmax rows=40 columns=24 --target generic --threads 1 --repeat 1");
  EXPECT_EQ(chosen.at("runs").at(0).at("source"), "tuned");
  const CliResult found =
      run("search norm kind=softmax rows=40 columns=24 --target generic --threads "
          "1 --budget 4 --top 2");
  EXPECT_EQ(found.status, 0) << found.err;
}

TEST_F(CliNorm, IsSweptLearnedAndReported) {
  std::string problems;
  for (int i = 1; i <= 8; ++i) {
    problems += fmt::format("norm kind=softmax rows={} columns={}\n", 3 * i * i, 100 * i + i % 3);
    problems += fmt::format("norm kind=rmsnorm rows={} columns={} scale=1\n", 40 - i, 77 * i);
  }
  write("p.txt", problems);
  const Json swept = run_json(
      "sweep --problems p.txt --kernels norm_fp32_*_1x1x1_1x1x1_* --target generic --threads 1 "
      "--store s.sqlite");
  EXPECT_EQ(swept.at("outcomes").size(), 1U);
  EXPECT_GE(swept.at("outcomes").at("ok").get<int>(), 100);
  try {
    lightgbm::load();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const Json trained = run_json("train --data s.sqlite --op norm --target generic --output m");
  EXPECT_GT(trained.at("rows").get<int>(), 50);
  EXPECT_EQ(run("evaluate --model m --data s.sqlite").status, 0);
  const CliResult report = run("report --model m --data s.sqlite --output page.html");
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_NE(read_file(folder() / "page.html").find("columns"), std::string::npos);
  const CliResult predicted =
      run("predict --model m norm kind=softmax rows=40 columns=400 --top 3");
  EXPECT_EQ(predicted.status, 0) << predicted.err;
}

}  // namespace
}  // namespace tessera::cli_test
