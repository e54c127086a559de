// The commands on attention: nothing but its family knows it.
#include <fmt/format.h>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

using CliFmha = CliTest;

constexpr const char* kAttention = "fmha_forward_fp32_flash_24x64x576_0x1x1_4x8x1_generic";

TEST_F(CliFmha, IsListedShownGeneratedAndExplained) {
  const Json kernels = run_json(
      "list --op fmha --target generic --where lengths=equal --where masked=false")["kernels"];
  EXPECT_NE(std::find(kernels.begin(), kernels.end(), kAttention), kernels.end());
  const Json shown = run_json(words_of(std::string("show ") + kAttention));
  EXPECT_EQ(shown.at("spec").at("signature").at("bias"), "none");
  const Json written = run_json(
      "generate --op fmha --preselected forward_bf16_essential --target sm90a --output-dir g");
  EXPECT_EQ(written.at("written"), 35);
  EXPECT_TRUE(fs::exists(folder() / "g/include/tessera/device/cuda/fmha/direct_fmha.h"));
  const Json why = run_json(
      "explain fmha heads=16 seqlen_q=900 seqlen_k=800 hdim=96 dtype=bf16 mask=top_left --target "
      "sm90a");
  EXPECT_TRUE(why.at("decisions")
                  .at(0)
                  .at("kernel")
                  .get<std::string>()
                  .starts_with("fmha_forward_bf16_tmaws_128x128x128_"));
  const std::string problems = run("problems decode --op fmha --target generic").out;
  EXPECT_NE(problems.find("\nfmha "), std::string::npos) << problems;
}

TEST_F(CliFmha, RunsVerifiesAndIsBenched) {
  for (const std::string dtype : {"fp32", "fp16", "bf16"}) {
    const Json json = run_json({"run", "fmha", "heads=3", "seqlen_q=7", "seqlen_k=15", "hdim=24",
                                "mask=bottom_right", "lse=1", "dtype=" + dtype, "--target",
                                "generic", "--verify", "--repeat", "1"});
    const Json& verified = json.at("runs").at(0).at("verified");
    EXPECT_TRUE(verified.at("ok"));
    EXPECT_EQ(verified.at("checked"), 3 * 7 * (24 + 1));
  }
  EXPECT_EQ(run_json(words_of(std::string("verify --target generic ") + kAttention)).at("verified"),
            1);
  const Json bench = run_json(
      "bench fmha heads=2 seqlen_q=64 seqlen_k=64 hdim=32 --target generic --threads 1 "
      "--rounds 3");
  EXPECT_GT(bench.at("cases").at(0).at("gflops").get<double>(), 0);
}

TEST_F(CliFmha, PagesAreRunVerifiedAndChecked) {
  for (const std::string pages : {"pages=table", "pages=list"}) {
    const Json json =
        run_json({"run", "fmha", "batch=3", "heads=4", "heads_kv=2", "seqlen_q=1", "seqlen_k=50",
                  "hdim=16", "lengths=padded", pages, "page_size=16", "check_pages=1", "--target",
                  "generic", "--verify", "--repeat", "1"});
    const Json& verified = json.at("runs").at(0).at("verified");
    EXPECT_TRUE(verified.at("ok"));
    EXPECT_EQ(verified.at("checked"), 3 * 4 * 16 + 4);
  }
  const CliResult refused =
      run("run fmha heads=2 seqlen_q=1 seqlen_k=50 hdim=16 pages=table page_size=16 max_pages=3");
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(
      refused.err.find("max_pages must be at least 4, the pages of 16 tokens that seqlen_k=50 "
                       "needs, got 3"),
      std::string::npos)
      << refused.err;
}

TEST_F(CliFmha, AppendsToCaches) {
  const Json json = run_json(
      "run fmha kind=append heads=4 heads_kv=2 seqlen_q=5 seqlen_k=20 hdim=24 dtype=bf16 "
      "rotary=half rotate_q=1 --target generic --verify --repeat 1");
  const Json& run = json.at("runs").at(0);
  EXPECT_EQ(run.at("kernel"),
            "fmha_append_bf16_direct_1x1x1_0x1x1_1x1x1_rotaryhalf_rotateq_generic");
  EXPECT_TRUE(run.at("verified").at("ok"));
  EXPECT_EQ(run.at("verified").at("checked"), 2 * 2 * 20 * 24 + 4 * 5 * 24);
  const Json listed = run_json("list --op fmha --target generic --where variant=append");
  EXPECT_EQ(listed.at("kernels").size(), 45U);
  const Json written =
      run_json("generate --op fmha --variants append --target sm90a --output-dir a");
  EXPECT_EQ(written.at("written"), 45);
}

TEST_F(CliFmha, ComputesGradients) {
  const Json json = run_json(
      "run fmha kind=backward heads=4 heads_kv=2 seqlen_q=5 seqlen_k=20 hdim=24 bias=elementwise "
      "bias_stride_b=0 dbias=1 --target generic --verify --repeat 1");
  const Json& row = json.at("runs").at(0);
  EXPECT_EQ(row.at("kernel"),
            "fmha_backward_fp32_flash_192x64x576_0x1x1_4x8x1_biaselementwise_dbias_generic");
  EXPECT_TRUE(row.at("verified").at("ok"));
  EXPECT_EQ(row.at("verified").at("checked"), 4 * 5 * 24 + 2 * (2 * 20 * 24) + 4 * 5 * 20);
  const Json listed = run_json("list --op fmha --target generic --where variant=backward");
  for (const Json& kernel : listed.at("kernels")) {
    EXPECT_TRUE(kernel.get<std::string>().starts_with("fmha_backward_"));
  }
  const CliResult refused =
      run("run fmha kind=backward heads=2 seqlen_q=1 seqlen_k=50 hdim=16 lse=1");
  EXPECT_NE(refused.err.find("lse must be 0 with kind=backward, got 1"), std::string::npos)
      << refused.err;
}

TEST_F(CliFmha, WrongProblemsAreRefusedWithBothNumbers) {
  const CliResult refused = run("run fmha heads=6 heads_kv=4 seqlen_q=8 seqlen_k=8 hdim=16");
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.err.find("heads_kv"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find('6'), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find('4'), std::string::npos) << refused.err;
}

// From measurements to a model that chooses.
TEST_F(CliFmha, IsSweptLearnedAndChosenByTheModel) {
  std::string problems;
  for (int i = 1; i <= 12; ++i) {
    problems += fmt::format("fmha heads={} seqlen_q={} seqlen_k={} hdim={}\n", 1 + i % 4, 7 * i,
                            10 * i + i % 3, 8 * (1 + i % 5));
    problems += fmt::format("fmha heads=4 heads_kv={} seqlen_q=1 seqlen_k={} hdim=16\n",
                            i % 2 == 0 ? 2 : 4, 40 * i);
  }
  write("p.txt", problems);
  for (const std::string shard : {"1", "2"}) {
    const Json swept =
        run_json({"sweep", "--problems", "p.txt", "--kernels", "all-legal", "--target", "generic",
                  "--threads", "1", "--store", shard + ".sqlite", "--shard", shard + "/2"});
    EXPECT_EQ(swept.at("remaining"), 0);
    EXPECT_EQ(swept.at("outcomes").size(), 1U);
  }
  const Json merged = run_json("data merge s.sqlite 1.sqlite 2.sqlite");
  EXPECT_EQ(merged.at("added"), 2 * 24);
  try {
    lightgbm::load();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const Json trained = run_json(
      "train --data s.sqlite --op fmha --dtype forward_fp32 --target generic --folds 2 --trees 20 "
      "--jobs 1 --param min_data_in_leaf=1 --output models/fmha_generic_forward_fp32");
  EXPECT_GT(trained.at("rows").get<int>(), 20);
  const CliResult evaluated =
      run("evaluate --model models/fmha_generic_forward_fp32 --data s.sqlite --by queries");
  EXPECT_EQ(evaluated.status, 0) << evaluated.err;
  const std::vector<std::string> own = {"TESSERA_MODELS=" + (folder() / "models").string()};
  const auto chosen = [&](const char* options) {
    const Words words = words_of(
        std::string("run fmha heads=2 seqlen_q=35 seqlen_k=52 hdim=8 --target generic --threads 1 "
                    "--repeat 1 --verify ") +
        options);
    return run_json(words, own).at("runs").at(0);
  };
  EXPECT_EQ(chosen("").at("source"), "learned");
  EXPECT_TRUE(chosen("").at("verified").at("ok"));
  // The model learned no mask, so that it has no opinion; it need not have learned a soft cap.
  EXPECT_EQ(chosen("mask=top_left").at("source"), "analytic");
  EXPECT_EQ(chosen("soft_cap=5 lse=1").at("source"), "learned");
}

}  // namespace
}  // namespace tessera::cli_test
