// tessera data import and targets import, of files as the CK Tile Dispatcher writes them.
#include <random>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliImport : public CliTest {
 protected:
  // Three kernels on thirty sizes, with times drawn at random.
  std::string results() {
    std::string text;
    for (const char* pipeline : {"compv3", "compv4", "mem"}) {
      std::string runs;
      for (int size = 1; size <= 30; ++size) {
        runs += fmt::format(
            R"({}{{"kernel_name": "x", "m": {}, "n": 256, "k": 512, "avg_time_ms": {},
               "tflops": 1, "is_valid": true, "error": ""}})",
            size == 1 ? "" : ",", 100 * size, 0.01 * size * uniform_(random_));
      }
      text += fmt::format(
          R"({}{{"kernel_config": {{"name": "{}", "dtype": "fp16", "layout": "rcr"}},
             "benchmarks": [{}]}})",
          text.empty() ? "" : ",", theirs(pipeline), runs);
    }
    return R"({"metadata": {"dtype": "fp16", "layout": "rcr"}, "results": [)" + text + "]}";
  }
  static std::string theirs(const std::string& pipeline) {
    return fmt::format(
        "gemm_universal_fp16_rcr_{}_cshuffle_intrawave_False_False_False_False_128x128x64_2x2x1_"
        "32x32x16",
        pipeline);
  }
  static std::string ours(const std::string& pipeline) {
    return fmt::format("gemm_fp16_rcr_{}_128x128x64_2x2x1_32x32x16_intrawave_storecshuffle_gfx942",
                       pipeline);
  }
  measure::SweepData read(const std::string& file) const {
    return measure::sorted(
        measure::SweepStore(folder() / file, measure::OpenMode::existing).read());
  }

  std::uint64_t seed_ = std::random_device{}();
  testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
  std::mt19937_64 random_{seed_};
  std::uniform_real_distribution<double> uniform_{0.9, 1.1};
};

TEST_F(CliImport, FilesOfAllFormsAtOnce) {
  write("results.json", results());
  write("run.log", fmt::format("Shape 1: M=8 N=16 K=32 dtype=fp16 layout=rcr\n"
                               "{{\"name\": \"{}\", \"problem\": {{}},\n"
                               " \"perf_result\": {{\"latency(ms)\": 0.25}}}}\n",
                               theirs("mem")));
  write("rows.csv", fmt::format("kernel,m,n,k,latency_ms,is_valid\n{},7,7,7,0.5,1\n{},9,9,9,0,0\n",
                                theirs("compv3"), theirs("compv3")));
  const std::string line =
      "data import s.sqlite results.json run.log rows.csv --device-name MI300X --target gfx942";
  const Json json = run_json(words_of(line));
  EXPECT_EQ(json.at("added"), 93);
  EXPECT_EQ(json.at("failed"), 1);
  EXPECT_EQ(json.at("mended"), 2);    // in the first and the second file
  EXPECT_EQ(json.at("unpadded"), 3);  // two in the first file, one in the third
  EXPECT_EQ(json.at("merged"), 0);
  const std::vector<std::string> wanted = {ours("compv3"), ours("compv4"), ours("mem")};
  EXPECT_EQ(read("s.sqlite").kernels, wanted);
  EXPECT_EQ(run(words_of(line)).out,
            "0 rows added to s.sqlite, 93 were there, 0 replaced by newer ones, 0 older ones left\n"
            "1 rows of runs that failed are kept as failed\n"
            "2 mem kernels' padding flags were mended: that pipeline always pads\n"
            "3 kernels do not pad; names here do not tell them from those that do\n");
}

TEST_F(CliImport, OneBadFileChangesNothing) {
  write("results.json", results());
  write("other.txt", "nothing\n");
  expect_failure(
      "data import s.sqlite results.json other.txt --device-name MI300X --target gfx942",
      "'other.txt': no measurements were found: known are JSON (an array of objects, or the "
      "dispatcher's results), logs with lines 'Shape N: M= N= K= dtype= layout=', and CSV with the "
      "columns kernel and latency_ms or tflops");
  EXPECT_FALSE(fs::exists(folder() / "s.sqlite"));
  expect_failure("data import s.sqlite", "data import takes a store and the files to add to it");
  expect_failure("data import s.sqlite results.json --device-name G --target gfx942 --field wave",
                 "data import: --field is NAME=VALUE such as wave=2x2x1, got 'wave'");
}

// What is imported has features, all of them finite, so that models learn from it.
TEST_F(CliImport, RowsOfAmdKernelsHaveFeatures) {
  write("results.json", results());
  run_json("data import s.sqlite results.json --device-name MI300X --target gfx942");
  const train::Dataset dataset = train::make_dataset(read("s.sqlite"), {.drop_unseen = false});
  EXPECT_EQ(dataset.rows.size(), 90U);
  EXPECT_EQ(dataset.target, "gfx942");
  const std::vector<double> features = train::feature_rows(dataset, load_target("gfx942"));
  EXPECT_GT(features.size(), dataset.rows.size());
  EXPECT_TRUE(std::all_of(features.begin(), features.end(),
                          [](double value) { return std::isfinite(value); }));
}

TEST_F(CliImport, RowsOfAmdKernelsAreTrainedOn) {
  try {
    lightgbm::load();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  write("results.json", results());
  run_json("data import s.sqlite results.json --device-name MI300X --target gfx942");
  const Json trained = run_json(
      "train --data s.sqlite --output m --target gfx942 --dtype fp16 --folds 2 --trees 5 --leaves "
      "4 --jobs 1 --param min_data_in_leaf=1");
  EXPECT_GT(trained.at("rows").get<int>(), 0);
  EXPECT_EQ(trained.at("rows").get<int>(), 3 * trained.at("problems").get<int>());
  const Json manifest = Json::parse(read_file(folder() / "m/manifest.json"));
  EXPECT_EQ(manifest.at("target"), "gfx942");
  EXPECT_EQ(manifest.at("dtypes"), Json::array({"fp16"}));
}

// ---- targets import ----

constexpr std::string_view kSpecs = R"({"architectures": {
  "gfx908": {"family": "cdna1", "warp_size": 64, "warp_configs": [[2, 2, 1]]},
  "gfx942": {"family": "cdna3", "warp_size": 64, "lds_capacity_kb": 64,
    "warp_configs": [[2, 2, 1], [4, 4, 1]],
    "warp_tile_combos": {"fp16_fp16_fp32": [[32, 32, 16]]}}}})";

TEST_F(CliImport, ArchitecturesBecomeRowsThatCanBeUsed) {
  write("arch_specs.json", kSpecs);
  const Json made = run_json("targets import arch_specs.json --out rows");
  ASSERT_EQ(made.at("written").size(), 1U);
  EXPECT_EQ(made.at("written")[0].at("file"), "rows/gfx942.json");
  EXPECT_EQ(made.at("refused"),
            Json::array({{{"name", "gfx908"},
                          {"why",
                           "there is no row of gfx908 with its units, clock and bandwidth, which "
                           "the file does not say: --base names a row whose numbers are to be "
                           "taken"}}}));
  EXPECT_EQ(run_json("targets rows/gfx942.json").at("cktile_spaces").at("gemm").at("waves"),
            Json::array({"2x2x1", "4x4x1"}));
  const Json again = run_json("targets import arch_specs.json --out rows --arch gfx942");
  EXPECT_EQ(again.at("written").size(), 1U);
  EXPECT_EQ(run("targets import arch_specs.json --arch gfx942").out,
            "./gfx942.json\n"
            "  taken    warp_size: 64 lanes\n"
            "  taken    lds_capacity_kb: 65536 bytes\n"
            "  taken    warp_configs: waves 2x2x1 4x4x1\n"
            "  taken    warp_tile_combos.fp16_fp16_fp32: 32x32x16\n"
            "  taken    everything else: the row of gfx942\n"
            "  left out family: a row has no family\n");
}

TEST_F(CliImport, ArchitecturesOfUnknownMachinesNeedABase) {
  write("arch_specs.json", kSpecs);
  expect_failure("targets import arch_specs.json --arch gfx908",
                 "there is no row of gfx908 with its units, clock and bandwidth, which the file "
                 "does not say: --base names a row whose numbers are to be taken");
  EXPECT_FALSE(fs::exists(folder() / "gfx908.json"));
  run_json("targets import arch_specs.json --arch gfx908 --base gfx90a");
  EXPECT_EQ(run_json("targets gfx908.json").at("name"), "gfx908");
}

TEST_F(CliImport, ARowThatSomebodyEditedStays) {
  write("arch_specs.json", kSpecs);
  write("gfx942.json", "mine");
  expect_failure("targets import arch_specs.json --arch gfx942",
                 "targets import: './gfx942.json' exists and is another row: give another --out");
  EXPECT_EQ(read_file(folder() / "gfx942.json"), "mine");
  expect_failure("targets import", "targets import: which file? For example arch_specs.json");
  expect_failure("targets gfx942 gfx950", "targets: one row is shown, got 'gfx942' and 'gfx950'");
  expect_failure("targets import arch_specs.json --arch gfx943",
                 "'arch_specs.json' describes no architecture 'gfx943', did you mean 'gfx942'? "
                 "(known: gfx908, gfx942)");
}

}  // namespace
}  // namespace tessera::cli_test
