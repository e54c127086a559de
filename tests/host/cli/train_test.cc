// tessera train, evaluate and predict, on measurements made up for the test.
#include "host/cli/cli.h"
#include "host/train/learning_data.h"

namespace tessera::cli_test {
namespace {

using testing_support::learning_data;

class CliTrain : public CliTest {
 protected:
  void SetUp() override {
    const measure::SweepData data = learning_data(seed_, 12, 8, 4);
    make_store("sweep.sqlite", data);
    known_ = to_string(train::make_dataset(data, {}).problems.front());
  }
  void make_store(const std::string& file, const measure::SweepData& data) const {
    const measure::SweepPart part{data, "test"};
    measure::SweepStore(folder() / file).add({&part, 1}, measure::Conflict::refuse);
  }
  std::uint64_t seed_ = std::random_device{}();
  testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
  std::string known_;  // a problem that is learned from
};

// The same, where LightGBM is installed.
class CliTrained : public CliTrain {
 protected:
  void SetUp() override {
    try {
      lightgbm::load();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    CliTrain::SetUp();
    const Json json = train("m");
    EXPECT_EQ(json.at("problems"), 12);
    EXPECT_EQ(json.at("rows"), 96);
    EXPECT_EQ(json.at("folds").size(), 3U);
  }
  Json train(const std::string& output, const Words& more = {}) const {
    Words words = words_of(
        "train --data sweep.sqlite --target avx512 --dtype fp32 --folds 3 --trees 9 --leaves 7 "
        "--jobs 1 --quantity seconds --output " +
        output);
    words.insert(words.end(), more.begin(), more.end());
    return run_json(words);
  }
};

TEST_F(CliTrain, BadWords) {
  const std::string train = "train --data sweep.sqlite --target avx512 --output m ";
  expect_failure((train + "--quantity secunds").c_str(),
                 "unknown quantity 'secunds', did you mean 'seconds'? (known: seconds, tflops, "
                 "bandwidth, efficiency, ranking)");
  expect_failure((train + "--param x").c_str(),
                 "train: --param is NAME=VALUE without spaces, got 'x'");
  for (const std::string name : {"num_threads", "nthread", "n_jobs"}) {
    expect_failure((train + "--param " + name + "=100000").c_str(),
                   "train: the number of threads is an option of its own (tessera train "
                   "--jobs), got the parameter '" +
                       name + "'");
  }
  expect_failure({"train", "--data", "sweep.sqlite", "--target", "avx512", "--output", "m",
                  "--param", "max_bin=9\tnthread=9"},
                 "train: a parameter of LightGBM has no blanks, got 'max_bin=9\tnthread=9'");
  expect_failure((train + "--folds 13").c_str(),
                 "data to learn from: at least 13 problems are needed, got 12");
  expect_failure((train + "--dtype bf16").c_str(),
                 "data to learn from: none of 128 rows is of the types bf16 and on the learned "
                 "side of the split");
  expect_failure("train --data sweep.sqlite --target avx2 --output m",
                 "data to learn from: no row is ok and measured on avx2; there is avx512 with 1 "
                 "threads");
  expect_failure((train + "--warm-start nowhere").c_str(),
                 "cannot read nowhere/manifest.json: No such file or directory");
  expect_failure("evaluate --data sweep.sqlite",
                 "evaluate: give either --model DIR or --compare OLD NEW");
  expect_failure("evaluate --data sweep.sqlite --model m --unseen --learned",
                 "evaluate: --unseen and --learned are the two sides of the split, give one");
}

TEST_F(CliTrain, EmptyStoreAndOneProblem) {
  make_store("one.sqlite", learning_data(1, 1, 4));
  expect_failure("train --data one.sqlite --target avx512 --output m",
                 "data to learn from: at least 5 problems are needed, got 1");
  measure::SweepStore empty(folder() / "empty.sqlite");
  expect_failure("train --data empty.sqlite --target avx512 --output m",
                 "data to learn from: no row is ok and measured on avx512; there is nothing");
}

// Trained with a nominal row, whose rates this machine may not have.
TEST_F(CliTrained, SaysWhereItHolds) {
  const Target nominal = load_target("avx512");
  const Target here = host_target();
  const bool differs = here.name == nominal.name && !is_same_core(nominal, here);
  const CliResult result =
      run("train --data sweep.sqlite --target avx512 --dtype fp32 --folds 3 --trees 2 --leaves 7 "
          "--jobs 1 --quantity seconds --output w");
  EXPECT_EQ(result.status, 0) << result.err;
  const bool said =
      result.out.find("note: this machine's choices will not ask it: ") != std::string::npos;
  EXPECT_EQ(said, differs) << result.out;
}

TEST_F(CliTrained, EvaluateEqualsTheMetrics) {
  const Json json = run_json("evaluate --model m --data sweep.sqlite --unseen");
  const auto model = std::make_shared<const Model>(load_model(folder() / "m"));
  const train::Dataset d = train::make_dataset(measure::read_sweep_data(folder() / "sweep.sqlite"),
                                               {.drop_unseen = false, .only_unseen = true});
  const train::Summary s =
      train::evaluate(d.problems, train::score_model(d, *model->machine, model)).summary;
  EXPECT_EQ(json.at("model").at("problems"), 4);
  EXPECT_EQ(json.at("model").at("mean"), s.mean);
  EXPECT_EQ(json.at("model").at("p10"), s.p10);
  EXPECT_EQ(json.at("model").at("ndcg"), s.ndcg);
  EXPECT_EQ(json.at("model").at("regret").at("top3").at("mean"), s.mean_regret[1]);
  EXPECT_EQ(json.at("best").at("mean"), 1);
  EXPECT_EQ(json.at("worst").size(), 4U);
  EXPECT_EQ(json.at("worst").at(0).at("chosen_readings"), d.rows.at(0).readings);
  expect_failure(
      "evaluate --model m --data sweep.sqlite --by shap",
      "evaluate: unknown slice 'shap', did you mean 'shape'? (known: all, dtype, k, layout, "
      "pipeline, shape)");
  const CliResult text = run("evaluate --model m --data sweep.sqlite --by shape,k");
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* word : {"model", "analytic", "random", "best", "shape ", "k ", "worst of 16"}) {
    EXPECT_NE(text.out.find(word), std::string::npos) << word << "\n" << text.out;
  }
}

// Rows of other threads are judged where they are asked for, and the output says so.
TEST_F(CliTrained, EvaluatesOtherThreads) {
  measure::SweepData data = measure::read_sweep_data(folder() / "sweep.sqlite");
  for (measure::SweepRun& run : data.runs) run.threads = 2;
  const measure::SweepPart part{data, "test"};
  measure::SweepStore(folder() / "two.sqlite").add({&part, 1}, measure::Conflict::refuse);
  expect_failure("evaluate --model m --data two.sqlite",
                 "data to learn from: no row is ok and measured on avx512 with 1 threads; there is "
                 "avx512 with 2 threads");
  const Json json = run_json("evaluate --model m --data two.sqlite --threads 2");
  EXPECT_EQ(json.at("threads"), Json::array({2}));
  EXPECT_EQ(json.at("outside"), 16);
  EXPECT_EQ(json.at("model").at("problems"), 16);
  EXPECT_EQ(json.at("model").at("mean"), json.at("analytic").at("mean"));
  EXPECT_EQ(run_json("evaluate --model m --data sweep.sqlite").at("threads"), Json::array({1}));
  const std::string title = "avx512 of 2 threads, by a model that learned 1\n";
  for (const char* words : {"--model m", "--compare m m"}) {
    const CliResult text =
        run(fmt::format("evaluate {} --data two.sqlite --threads 2", words).c_str());
    EXPECT_EQ(text.status, 0) << text.err;
    EXPECT_TRUE(text.out.starts_with(title)) << text.out;
    const CliResult same = run(fmt::format("evaluate {} --data sweep.sqlite", words).c_str());
    EXPECT_EQ(same.out.find(title), std::string::npos) << same.out;
  }
  expect_failure("evaluate --compare m n --data two.sqlite --unseen --retrain --threads 2",
                 "evaluate: --retrain learns from as many threads as OLD did, so that --threads 2 "
                 "cannot be given with it");
}

// A model of one and two threads has an opinion for both, and for no third number.
TEST_F(CliTrained, LearnsSeveralNumbersOfThreads) {
  measure::SweepData data = measure::read_sweep_data(folder() / "sweep.sqlite");
  const auto store_with = [&](const char* name, int threads) {
    for (measure::SweepRun& run : data.runs) run.threads = threads;
    const measure::SweepPart part{data, "test"};
    measure::SweepStore(folder() / name).add({&part, 1}, measure::Conflict::refuse);
  };
  store_with("of2.sqlite", 2);
  store_with("of3.sqlite", 3);
  const std::string train =
      "train --data sweep.sqlite of2.sqlite --target avx512 --dtype fp32 --folds 3 --trees 2 "
      "--leaves 7 --jobs 1 --output both";
  expect_failure(train.c_str(),
                 "data to learn from: one number of threads must be chosen, got 1, 2");
  const CliResult result = run((train + " --threads 1,2").c_str());
  ASSERT_EQ(result.status, 0) << result.err;
  const Manifest manifest = load_model(folder() / "both").manifest;
  EXPECT_EQ(manifest.threads, 0);
  const auto range = std::ranges::find(manifest.ranges, "hw_threads", &TrainingRange::feature);
  ASSERT_NE(range, manifest.ranges.end());
  EXPECT_EQ(range->min, 1);
  EXPECT_EQ(range->max, 2);
  const auto outside = [&](const std::string& options) {
    return run_json(("evaluate --model both " + options).c_str()).at("outside");
  };
  EXPECT_EQ(outside("--learned --data sweep.sqlite of2.sqlite"), 0);
  EXPECT_EQ(outside("--learned --data of2.sqlite --threads 2"), 0);
  EXPECT_EQ(outside("--data of3.sqlite"), 16);
  const train::Dataset d =
      train::make_dataset(measure::read_sweep_data(folder() / "sweep.sqlite"), {});
  const std::string predict =
      fmt::format("predict --model both {} --threads ", to_string(d.problems.front()));
  EXPECT_EQ(run((predict + "2").c_str()).status, 0);
  const CliResult third = run((predict + "3").c_str());
  EXPECT_NE(third.status, 0);
  EXPECT_NE(third.err.find(" that were trained"), std::string::npos) << third.err;
  const CliResult text = run("evaluate --model both --learned --data of3.sqlite");
  EXPECT_NE(text.out.find(" that were trained"), std::string::npos) << text.out;
}

TEST_F(CliTrained, CompareCountsAndSavesChoices) {
  const CliResult text = run("evaluate --compare m m --data sweep.sqlite --save choices.csv");
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* line : {"agreement 16/16 (100.00%); 0 improved, 16 same, 0 degraded\n",
                           "mean    ", "median  ", "P10     ", " (+0.00%)\n", "accepted\n"}) {
    EXPECT_NE(text.out.find(line), std::string::npos) << line << "\n" << text.out;
  }
  const std::string saved = read_file(folder() / "choices.csv");
  EXPECT_EQ(std::ranges::count(saved, '\n'), 17);
  EXPECT_TRUE(saved.starts_with(
      "problem,best,best_seconds,chosen,chosen_seconds,efficiency,new_chosen,new_chosen_seconds,"
      "new_efficiency\n\"gemm m="))
      << saved;
  EXPECT_EQ(run_json("evaluate --model m --data sweep.sqlite --save own.csv").at("fit").at("unit"),
            "us");
  EXPECT_EQ(std::ranges::count(read_file(folder() / "own.csv"), ','), 5 * 17);
}

TEST_F(CliTrained, RetrainsAsTheOldModelWasTrained) {
  expect_failure("evaluate --compare m new --data sweep.sqlite --retrain",
                 "evaluate: --retrain learns from one side of the split and compares on the other: "
                 "give --compare OLD NEW and --unseen with it");
  const CliResult text = run("evaluate --compare m new --data sweep.sqlite --retrain --unseen");
  EXPECT_NE(text.out.find("trained new on 96 rows of 12 problems, 3 folds\n"), std::string::npos)
      << text.out << text.err;
  const Manifest trained = load_model(folder() / "new").manifest;
  EXPECT_EQ(trained.quantity, ModelQuantity::seconds);
  EXPECT_EQ(trained.data_hash, load_model(folder() / "m").manifest.data_hash);
}

TEST_F(CliTrained, SeveralQuantitiesInOneCall) {
  const CliResult twice =
      run("train --data sweep.sqlite --target avx512 --dtype fp32 --folds 3 --trees 2 --leaves 7 "
          "--jobs 1 --quantity tflops,tflops --output all");
  EXPECT_EQ(twice.err, "tessera: train: --quantity names 'tflops' twice\n");
  const Json json = run_json(
      "train --data sweep.sqlite --target avx512 --dtype fp32 --folds 3 --trees 2 --leaves 7 "
      "--jobs 1 --quantity tflops,seconds,bandwidth --hard-examples 1 --output all");
  ASSERT_EQ(json.at("models").size(), 3U);
  EXPECT_EQ(json.at("models").at(0).at("hard_rounds").size(), 2U);
  EXPECT_EQ(load_model(folder() / "all/tflops").manifest.quantity, ModelQuantity::tflops);
  EXPECT_EQ(load_model(folder() / "all/seconds").manifest.quantity, ModelQuantity::seconds);
  EXPECT_EQ(load_model(folder() / "all/bandwidth").manifest.quantity, ModelQuantity::bandwidth);
}

TEST_F(CliTrained, CompareAcceptsItselfAndRefusesWorse) {
  EXPECT_EQ(run_json("evaluate --compare m m --data sweep.sqlite").at("accepted"), true);
  // Minus the seconds: the slowest kernels come first.
  const Model model = load_model(folder() / "m");
  Manifest worse = model.manifest;
  worse.quantity = ModelQuantity::rank;
  worse.transform = ModelTransform::none;
  save_model(folder() / "worse", worse, model_text(read_file(folder() / "m" / model.manifest.file)),
             ModelFile::gzip);
  const CliResult result = run("evaluate --compare m worse --data sweep.sqlite");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("refused: the mean of efficiency falls by "), std::string::npos)
      << result.out;
}

TEST_F(CliTrained, PredictListsKernelsByTime) {
  const Json json = run_json(("predict --model m --top 3 " + known_).c_str());
  const Json kernels = json.at("predictions").at(0).at("kernels");
  ASSERT_EQ(kernels.size(), 3U);
  EXPECT_LE(kernels[0].at("predicted_seconds"), kernels[2].at("predicted_seconds"));
  const CliResult outside = run("predict --model m gemm m=1 n=512 k=512");
  EXPECT_EQ(outside.status, 1);
  EXPECT_NE(outside.err.find("the learned model has no opinion: m = 1 is "), std::string::npos)
      << outside.err;
}

TEST_F(CliTrained, ExplainSaysThatTheModelDecided) {
  fs::create_directories(folder() / "own");
  fs::rename(folder() / "m", folder() / "own" / "gemm_avx512_fp32");
  const std::vector<std::string> own = {"TESSERA_MODELS=" + (folder() / "own").string()};
  const Words words = words_of("explain --target avx512 --threads 1 " + known_);
  EXPECT_EQ(run_json(words, own).at("decisions").at(0).at("source"), "learned");
  const fs::path forest = folder() / "own" / "gemm_avx512_fp32" / "model.txt.gz";
  write_file(forest, read_file(forest).substr(0, 100));
  const CliResult broken = run(words, own);
  EXPECT_EQ(broken.status, 0);
  EXPECT_NE(broken.err.find("; kernels are chosen without it\n"), std::string::npos) << broken.err;
  EXPECT_NE(broken.out.find("the learned model gemm_avx512_fp32 cannot be used: "),
            std::string::npos)
      << broken.out;
}

TEST_F(CliTrained, SameBytesAndWarmStart) {
  train("again");
  EXPECT_EQ(read_file(folder() / "m" / "model.txt.gz"),
            read_file(folder() / "again" / "model.txt.gz"));
  const Json warm = train("warm", {"--warm-start", "m"});
  EXPECT_TRUE(warm.at("out_of_fold").is_null());
  EXPECT_GT(load_model(folder() / "warm").forest.roots.size(),
            load_model(folder() / "m").forest.roots.size());
  const CliResult other = run(
      "train --data sweep.sqlite --target avx512 --folds 3 --output x --warm-start m --ranking");
  EXPECT_EQ(other.err,
            "tessera: train: the warm start's goal is 'seconds', wanted is 'ranking': their sums "
            "would mean nothing\n");
}

TEST_F(CliTrained, UnwritableFolderKeepsNothing) {
  const CliResult result =
      run("train --data sweep.sqlite --target avx512 --folds 3 --trees 2 --output /dev/full/m");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err.find("tessera: cannot create /dev/full/m: "), 0U) << result.err;
}

}  // namespace
}  // namespace tessera::cli_test
