// tessera search without measuring, and tessera report, on a model and measurements made up here.
#include "host/cli/cli.h"
#include "host/measure/sweep_data.h"
#include "host/train/report_data.h"

namespace tessera::cli_test {
namespace {

namespace made_up = testing_support;

class CliLearned : public CliTest {
 protected:
  // What `tessera search` finds for each problem.
  Json search(const std::string& words) const {
    return run_json(("search " + words).c_str()).at("searches");
  }

  void make_model(const std::string& name) const {
    const std::string forest = made_up::estimate_forest(family_of(Op::gemm).features());
    save_model(folder() / name, made_up::estimate_manifest(target_, forest), forest,
               ModelFile::gzip);
  }

  // The data set's rows as a sweep would have stored them.
  void make_store(const std::string& name, const train::Dataset& d) const {
    measure::SweepRun run = made_up::sweep_run("a");
    run.target = d.target;
    run.threads = d.threads.front();
    measure::SweepData data;
    data.runs = {run};
    for (const Problem& problem : d.problems) data.problems.push_back(to_string(problem));
    data.kernels = d.kernel_names;
    for (const train::Dataset::Row& row : d.rows) {
      data.rows.push_back({.problem = static_cast<int>(row.problem),
                           .kernel = static_cast<int>(row.kernel),
                           .seconds = row.seconds,
                           .min_seconds = row.seconds,
                           .readings = 3});
    }
    const measure::SweepPart part{measure::sorted(data), "test"};
    measure::SweepStore(folder() / name).add(std::span(&part, 1), measure::Conflict::refuse);
  }

  std::uint64_t seed_ = std::random_device{}();
  Target target_ = load_target("avx512");
};

TEST_F(CliLearned, ReportWritesThePage) {
  SCOPED_TRACE(seed_);
  const train::Dataset data = made_up::noisy_data(target_, 30, 6, seed_);
  make_store("s.sqlite", data);
  make_model("model");
  const Json json = run_json("report --data s.sqlite --model model --output page.html");
  const auto model = made_up::estimate_model(target_);
  const train::Evaluation expected =
      train::evaluate(data.problems, train::score_model(data, target_, model));
  EXPECT_EQ(json.at("learned").at("mean"), expected.summary.mean);
  EXPECT_EQ(json.at("learned").at("problems"), 30);
  EXPECT_EQ(json.at("output"), "page.html");
  const std::string page = read_file(folder() / "page.html");
  EXPECT_EQ(page.find("<!doctype html>\n"), 0U);
  EXPECT_NE(page.find(fmt::format("{:.2f}%", 100 * expected.summary.mean)), std::string::npos);
}

// The wide set holds nothing that is unseen.
TEST_F(CliLearned, ReportOfUnseenProblemsOnly) {
  make_store("s.sqlite", made_up::noisy_data(target_, 5, 20, seed_));
  make_model("model");
  const CliResult result = run("report --data s.sqlite --model model --output page.html --unseen");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("on the unseen side of the split"), std::string::npos) << result.err;
  EXPECT_FALSE(fs::exists(folder() / "page.html"));
}

TEST_F(CliLearned, BenchRankTellsThePartsApart) {
  make_model("model");
  const Json json = run_json(
      "bench rank --model model --candidates 300 --rounds 3 --min-seconds 0.0002 m=100 n=300 "
      "k=200");
  EXPECT_EQ(json.at("target"), "avx512");
  EXPECT_EQ(json.at("candidates"), 300);
  EXPECT_LE(json.at("different").get<int>(), 300);
  EXPECT_GT(json.at("trees").get<int>(), 0);
  for (const char* part : {"features", "forest", "ranking"}) {
    EXPECT_GT(json.at(part).at("median_s").get<double>(), 0) << part;
    EXPECT_LE(json.at(part).at("min_s"), json.at(part).at("median_s")) << part;
  }
  EXPECT_GT(json.at("load_median_s").get<double>(), 0);
  // More candidates than there are repeat those that there are.
  const Json many = run_json(
      "bench rank --model model --candidates 5000 --rounds 1 --min-seconds 0.0002 m=100 n=300 "
      "k=200");
  EXPECT_EQ(many.at("candidates"), 5000);
  const Json legal = run_json(
      "search gemm m=100 n=300 k=200 --target avx512 --model model --strategy exhaustive --top 0");
  EXPECT_EQ(many.at("different"), legal.at("searches").at(0).at("space"));
  EXPECT_EQ(json.at("different").get<int>(), std::min(300, many.at("different").get<int>()));
  // Beside LightGBM where it is installed; else a note.
  EXPECT_EQ(json.contains("lightgbm"), json.contains("lightgbm_over_forest"));
  EXPECT_TRUE(json.contains("lightgbm") || !json.at("notes").empty());
}

// Shipped models may be older than features of today, of which LightGBM knows nothing.
TEST_F(CliLearned, BenchRankComparesShippedModelsWithLightGbm) {
  for (const char* dtype : {"bf16", "fp8"}) {
    const Json json =
        run_json(fmt::format("bench rank --target sm90a --dtype {} --candidates 100 --rounds 1 "
                             "--min-seconds 0.0002",
                             dtype)
                     .c_str());
    EXPECT_EQ(json.at("candidates"), 100);
    EXPECT_TRUE(json.contains("lightgbm") || !json.at("notes").empty());
  }
}

TEST_F(CliLearned, BenchRankWithoutAModel) {
  const CliResult none = run("bench rank --target avx2 --dtype fp32");
  EXPECT_EQ(none.status, 1);
  const std::string sentence =
      "tessera: bench rank: no model gemm_avx2_fp32 is shipped (there are: ";
  EXPECT_EQ(none.err.find(sentence), 0U) << none.err;
  make_model("model");
  const CliResult result = run("bench rank --model model m=100 n=300 k=200 dtype=fp16");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("the learned model has no opinion: it is for fp32, not for kernels "
                            "such as gemm_fp16_"),
            std::string::npos)
      << result.err;
}

TEST_F(CliLearned, ReportWithoutData) {
  make_model("model");
  const CliResult result = run("report --data no.sqlite --model model --output page.html");
  EXPECT_EQ(result.status, 1);
  EXPECT_FALSE(fs::exists(folder() / "page.html"));
  EXPECT_FALSE(fs::exists(folder() / "no.sqlite"));
}

TEST_F(CliLearned, SearchWithoutAGpu) {
  const Json all =
      search("gemm m=4096 n=4096 k=4096 dtype=bf16 --target sm90a --strategy exhaustive --top 0")
          .at(0);
  EXPECT_EQ(all.at("evaluations"), all.at("space"));
  EXPECT_GT(all.at("space"), 500);
  EXPECT_TRUE(all.at("measured").empty());
  const Json some =
      search("gemm m=4096 n=4096 k=4096 dtype=bf16 --target sm90a --budget 100 --top 0").at(0);
  EXPECT_EQ(some.at("evaluations"), 100);
  EXPECT_GE(some.at("best").at("predicted_seconds"), all.at("best").at("predicted_seconds"));
  expect_failure("search gemm m=64 n=64 k=64 dtype=bf16 --target sm90a --top 0 --budget 0",
                 "search: the budget must be at least 1 evaluation, got 0");
  const CliResult measured = run("search gemm m=64 n=64 k=64 dtype=bf16 --target sm90a --top 1");
  EXPECT_EQ(measured.status, 1);
  EXPECT_EQ(measured.err.find("tessera: sweep: "), 0U) << measured.err;
}

// A file of problems has a result for each: what one search alone finds.
TEST_F(CliLearned, SearchOfSeveralProblems) {
  write_file(folder() / "three.txt",
             "gemm m=64 n=64 k=64  # small\n\ngemm m=512 n=512 k=512\n"
             "gemm m=1 n=4096 k=4096\n");
  const std::string rest = " --dtype bf16 --target sm90a --strategy exhaustive --top 0";
  const Json all = search("--shapes three.txt" + rest);
  const std::vector<std::string> problems = {"gemm m=64 n=64 k=64 dtype=bf16",
                                             "gemm m=512 n=512 k=512 dtype=bf16",
                                             "gemm m=1 n=4096 k=4096 dtype=bf16"};
  ASSERT_EQ(all.size(), problems.size());
  const CliResult text = run(("search --shapes three.txt" + rest).c_str());
  EXPECT_EQ(text.status, 0) << text.err;
  std::size_t at = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(all.at(i).at("problem"), problems[i]);
    EXPECT_EQ(all.at(i).at("best"), search(problems[i] + rest).at(0).at("best"));
    at = text.out.find(problems[i] + "\nexhaustive: ", at);
    EXPECT_NE(at, std::string::npos) << problems[i];
  }
}

// What is done is printed, then the error, which names the problem.
TEST_F(CliLearned, SearchEndsWithTheFirstFailure) {
  write_file(folder() / "two.txt", "gemm m=64 n=64 k=64\ngemm m=8 n=8 k=8 dtype=bf16\n");
  make_model("model");
  const CliResult result = run(
      "search --shapes two.txt --target avx512 --model model --strategy exhaustive --top 0 --json");
  const Json json = Json::parse(result.out);
  EXPECT_EQ(result.status, 1);
  ASSERT_EQ(json.at("searches").size(), 1U);
  const std::string message = json.at("error").at("message");
  EXPECT_TRUE(message.starts_with("'gemm m=8 n=8 k=8 dtype=bf16', problem 2 of 2: ")) << message;
}

TEST_F(CliLearned, SearchByAModel) {
  make_model("model");
  const Json json =
      search("gemm m=500 n=600 k=700 --target avx512 --model model --strategy exhaustive --top 0")
          .at(0);
  EXPECT_GT(json.at("best").at("predicted_seconds"), 0);
  const CliResult other = run("search gemm m=5 n=6 k=7 --target avx2 --model model --top 0");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.err.find("the model is for target 'avx512', wanted is 'avx2'"), std::string::npos)
      << other.err;
}

TEST_F(CliLearned, TuneRefusesBadWords) {
  expect_failure("tune --budget soon",
                 "tune: --budget is a time above 0 such as 90s, 30m or 2h, got 'soon'");
  expect_failure("tune --target generic --kernels no_such*",
                 "tune: no kernel of generic for these problems matches 'no_such*'");
}

}  // namespace
}  // namespace tessera::cli_test
