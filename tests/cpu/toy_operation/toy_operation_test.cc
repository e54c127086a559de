// The toy operation of tests/toy_operation through all stages. This program links the library
// without norm's family, and nothing of the library knows what stands in its place.
#include <algorithm>

#include "cpu/cached.h"
#include "cpu/toy_operation/toy_fixture.h"
#include "tessera/base/error.h"
#include "tessera/families/headers.h"
#include "tessera/learn/lightgbm.h"
#include "tessera/learn/model_library.h"
#include "tessera/train/train.h"
#include "tessera/tune/search.h"
#include "tessera/tune/store.h"

namespace tessera {
namespace {

TEST_F(ToyOperation, IsEnumeratedByItsWays) {
  EXPECT_EQ(names_of(family_.enumerate(target_, {})), (Names{kOneRow, kFourRows, kShort, kLong}));
  const Wish wish = {"tile", "1x*x1"};
  EXPECT_EQ(names_of(family_.enumerate(target_, {&wish, 1})), (Names{kOneRow, kShort, kLong}));
}

TEST_F(ToyOperation, IsRefusedWithItsSentences) {
  const std::pair<const char*, const char*> illegal[] = {
      {"norm_fp32_rmsnorm_rows_1x8x1_0x1x1_1x1x1_scale_toy", "tile must be m x 1 x 1, got 1x8x1"},
      {"norm_fp32_rmsnorm_stream_1x8x1_0x1x1_1x1x1_scale_toy",
       "tile must be 1 x n x 1, n at least 256, got 1x8x1"},
      {"norm_fp32_rmsnorm_rows_1x1x1_1x1x1_1x1x1_scale_toy",
       "wave must be 0x1x1 and what follows it at its default, got wave 1x1x1"},
      {"norm_fp32_rmsnorm_direct_1x1x1_0x1x1_1x1x1_scale_toy", "toy has no pipeline direct"},
      {"norm_bf16_rmsnorm_rows_1x1x1_0x1x1_1x1x1_scale_toy",
       "kind must be rmsnorm, scale 1, and everything else at its default"},
  };
  for (const auto& [name, sentence] : illegal) {
    EXPECT_EQ(family_.is_legal(parse_name(name), target_).reason, sentence);
  }
  EXPECT_EQ(family_.supports(parse_name(kLong), problem_of(17, 5), target_).reason,
            "stream serves at most 16 rows, got 17");
  try {
    family_.validate(problem_of(-1, 5));
    FAIL() << "a negative size was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "norm: rows must be at least 0, got -1");
  }
}

TEST_F(ToyOperation, IsEmittedWithItsOwnHeaders) {
  const Source source = family_.emit(parse_name(kFourRows), target_);
  EXPECT_EQ(source.abi, 1);
  EXPECT_EQ(source.entries, Names{""});
  EXPECT_NE(source.text.find("#include \"tessera/device/cpu/abi.h\"\n"
                             "#include \"toy_operation/device/toy_rows.h\"\n"),
            std::string::npos);
  EXPECT_NE(source.text.find("struct Config {\n"
                             "  static constexpr int kTileM = 4;\n"
                             "  static constexpr int kAbiVersion = 1, kVectorBytes = 16;\n"
                             "};\n"),
            std::string::npos);
  Names own;
  for (const EmbeddedFile& file : source.headers->files) {
    if (file.path.starts_with("toy_operation/")) own.emplace_back(file.path);
  }
  EXPECT_EQ(own, (Names{"toy_operation/device/toy.h", "toy_operation/device/toy_kernel.h",
                        "toy_operation/device/toy_rows.h"}));
}

TEST_F(ToyOperation, IsCompiledCachedChosenAndRun) {
  Dispatcher first(options());
  const NormProblem tall = problem_of(300, 77), wide = problem_of(1, 100000);
  EXPECT_EQ(first.kernel_for(tall).name, kFourRows);
  EXPECT_EQ(first.kernel_for(wide).name, kShort);
  EXPECT_EQ(first.kernel_for(wide).source, ChoiceSource::analytic);
  EXPECT_EQ(kernels_in(first.registry().builder().cache()), 2);
  run_and_check(first, tall);
  run_and_check(first, wide);
  Registry later("later", options().build);
  later.add_target(target_);
  for (const char* name : {kFourRows, kShort, kLong}) later.declare(parse_name(name));
  std::vector<bool> cached;
  for (const jit::BuildResult& result : later.build()) {
    EXPECT_EQ(result.error, "");
    cached.push_back(result.was_cached);
  }
  EXPECT_EQ(cached, (std::vector{true, true, false}));  // in the order of names
}

TEST_F(ToyOperation, IsExactOnRandomProblemsByEveryKernel) {
  Dispatcher dispatcher(options());
  for (const KernelSpec& spec : family_.enumerate(target_, {})) {
    for (const Problem& sample : family_.samples(spec, target_)) {
      NormProblem p = std::get<NormProblem>(sample);
      RunOptions how;
      how.force = name_of(spec);
      how.verify = true;
      run_and_check(dispatcher, p, how);
      p = problem_of(draw(1, 16), draw(1, 9000));
      if (draw(0, 1) == 1) p.ld_in = p.columns + draw(0, 9);
      if (draw(0, 1) == 1) p.ld_out = p.columns + draw(0, 9);
      how.launch.threads = static_cast<int>(draw(1, 4));
      run_and_check(dispatcher, p, how);
    }
  }
}

TEST_F(ToyOperation, IsVerifiedElementByElement) {
  const NormProblem p = problem_of(5, 7);
  const measure::OwnedOperands owned = measure::random_operands(p, random_());
  Dispatcher(options()).run(p, owned.operands);
  auto* const out = static_cast<float*>(std::get<NormOperands>(owned.operands).out);
  EXPECT_TRUE(family_.verify(p, owned.operands).ok);
  out[2 * 7 + 3] *= 1.001F;
  const Mismatch mismatch = family_.verify(p, owned.operands);
  EXPECT_EQ(mismatch.bad, 1);
  EXPECT_EQ(mismatch.checked, 35);
  EXPECT_EQ(mismatch.message.rfind("norm: out[2, 3] is ", 0), 0U) << mismatch.message;
}

TEST_F(ToyOperation, IsSweptIntoAStore) {
  const std::vector<Problem> problems = {problem_of(3, 4000), problem_of(40, 50)};
  measure::SweepStore store(folder_ / "sweep.sqlite");
  const auto kernels = measure::kernels_for(problems, target_, "*");
  EXPECT_EQ(names_of(kernels), (Names{kOneRow, kFourRows, kShort, kLong}));
  const auto report = measure::sweep(problems, kernels, target_, store, sweep_options());
  EXPECT_EQ(report.measured, 2U);
  EXPECT_EQ(report.outcomes, (std::map<measure::Outcome, std::size_t>{{measure::Outcome::ok, 6}}));
  EXPECT_EQ(store.read().kernels, (Names{kOneRow, kFourRows, kShort, kLong}));
}

// The estimate prefers rows. The times say that long parts take half as long as all others.
TEST_F(ToyOperation, IsChosenByAModelTrainedOnItsTimes) {
  try {
    lightgbm::load();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  measure::SweepData data;
  data.runs = {{.id = std::string(32, '0'), .device = "made up", .target = "toy", .threads = 1}};
  data.kernels = {kOneRow, kFourRows, kShort, kLong};
  for (const Problem& p : family_.draw("any", ProblemSide::learned, target_, {})) {
    if (std::get<NormProblem>(p).rows > 16) continue;
    const int place = static_cast<int>(data.problems.size());
    data.problems.push_back(to_string(p));
    for (int k = 0; k < 4; ++k) {
      const double seconds = family_.bytes(p) * 1e-9 * (k == 3 ? 1 : 2);
      data.rows.push_back({.problem = place, .kernel = k, .seconds = seconds, .readings = 3});
    }
  }
  train::TrainOptions how;
  how.trees = 20, how.folds = 2, how.threads = 1, how.weight_power = 0;
  how.params = {{"min_data_in_leaf", "4"}};
  const train::TrainResult result = train::train(train::make_dataset(data, {}), target_, how);
  EXPECT_EQ(result.evaluation->summary.mean, 1);
  save_model(folder_ / "models" / model_name(Op::norm, "toy", "fp32"), result.manifest,
             result.forest, ModelFile::gzip);

  const Problem known = parse_problem(data.problems[0]);
  RunOptions alone;
  alone.launch.threads = 1;
  EXPECT_EQ(Dispatcher(options()).explain(known, alone).name, kOneRow);
  DispatcherOptions o = options();
  o.models = (folder_ / "models").string();
  const Decision decision = Dispatcher(o).explain(known, alone);
  EXPECT_EQ(decision.source, ChoiceSource::learned);
  EXPECT_EQ(decision.name, kLong);
}

// Without a model every kernel is measured, in the worker, and the fastest is remembered.
TEST_F(ToyOperation, IsTunedAndSearched) {
  const Problem p = problem_of(1, 20000);
  DispatcherOptions o = options();
  o.without_model = WithoutModel::measure;
  o.autotune_seconds = 0.2;
  const std::string winner = Dispatcher(o).kernel_for(p).name;
  Names measured;
  for (const tune::Measurement& row : tune::Store(folder_ / "cache" / "tuning.sqlite").all()) {
    EXPECT_EQ(row.outcome, measure::Outcome::ok) << row.note;
    measured.push_back(row.kernel);
  }
  std::sort(measured.begin(), measured.end());
  EXPECT_EQ(measured, (Names{kOneRow, kFourRows, kShort, kLong}));
  const Decision later = Dispatcher(options()).explain(p);
  EXPECT_EQ(later.source, ChoiceSource::tuned);
  EXPECT_EQ(later.name, winner);

  tune::SearchOptions all;
  all.strategy = tune::SearchStrategy::exhaustive;
  all.threads = 2;
  const tune::SearchResult result = tune::search(p, target_, tune::analytic_surrogate(), all);
  EXPECT_EQ(result.space, 4U);
  EXPECT_EQ(result.found.front().name, kShort);
}

TEST_F(ToyOperation, IsExplained) {
  const Problem p = problem_of(300, 77);
  EXPECT_EQ(explain(p, target_, Dispatcher(options()).explain(p)),
            "problem   norm kind=rmsnorm rows=300 columns=77 scale=1\n"
            "target    toy (a machine of one's own)\n"
            "chosen    norm_fp32_rmsnorm_rows_4x1x1_0x1x1_1x1x1_scale_toy  predicted 5.31 us "
            "(analytic)\n"
            "why       least estimated time among 2 legal candidates: 5.31 us (compute 3.21 us, "
            "memory 3.31 us, overhead 2.00 us); there is no learned model norm_toy_fp32\n"
            "next      norm_fp32_rmsnorm_rows_1x1x1_0x1x1_1x1x1_scale_toy  predicted 7.91 us "
            "(analytic), 49.1% slower: compute 5.91 us, chosen 3.21 us\n"
            "refused   2 kernels: stream serves at most 16 rows, got 300\n"
            "4 candidates: 2 legal, 2 refused; the numbers of a rule are those of its first "
            "kernel\n");
}

// A way is a file with a row. Where the target's row lists its pipeline, every stage takes its
// kernels, and other kernels stay as they are.
TEST_F(ToyOperation, AWayJoinsEveryStageByTheTargetsRow) {
  const Target without = toy_target({Pipeline::rows});
  const KernelSpec joined = parse_name(kShort);
  const NormProblem wide = problem_of(1, 100000);
  EXPECT_EQ(family_.is_legal(joined, without).reason, "toy has no pipeline stream");
  EXPECT_EQ(family_.is_legal(joined, target_).reason, "");
  EXPECT_EQ(names_of(family_.enumerate(without, {})), (Names{kOneRow, kFourRows}));
  EXPECT_EQ(names_of(family_.candidates(wide, without)), (Names{kOneRow, kFourRows}));
  EXPECT_EQ(names_of(family_.candidates(wide, target_)),
            (Names{kOneRow, kFourRows, kShort, kLong}));
  const std::vector<Problem> swept = {wide};
  EXPECT_EQ(names_of(measure::kernels_for(swept, without, "*")), (Names{kOneRow, kFourRows}));
  EXPECT_EQ(names_of(measure::kernels_for(swept, target_, "*")),
            (Names{kOneRow, kFourRows, kShort, kLong}));
  for (const auto& [target, chosen] : {std::pair(&without, kOneRow), {&target_, kShort}}) {
    Dispatcher dispatcher(options(*target));
    EXPECT_EQ(dispatcher.kernel_for(wide).name, chosen);
    run_and_check(dispatcher, wide);
  }
  EXPECT_EQ(family_.emit(parse_name(kOneRow), without).text,
            family_.emit(parse_name(kOneRow), target_).text);
}

}  // namespace
}  // namespace tessera
