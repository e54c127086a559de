// Real sweeps: the worker program with real kernels, with broken ones, and on a driver that is
// none.
#include "tessera/measure/sweep.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "cpu/broken_compiler.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/targets/targets.h"

namespace tessera::measure {
namespace {

struct SweepTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-sweep-");
  Target target = load_target("generic");
  SweepStore store{folder / "sweep.sqlite"};
  SweepOptions options;
  std::vector<Problem> problems = {gemm(20, 30, 40), gemm(33, 17, 65), gemm(1, 64, 64)};

  SweepTest() {
    options.threads = 1;
    options.worker = TESSERA_WORKER;
    options.build.cache.folder = folder / "cache";
    options.build.worker = TESSERA_WORKER;
    options.build.use_shipped_packs = false;
  }
  ~SweepTest() override { remove_tree(folder); }

  static Problem gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
    return gemm_problem(DType::fp32, GemmLayout::rcr, m, n, k);
  }
  // The first kernels of the target that serve every problem.
  std::vector<KernelSpec> kernels(std::size_t count) const {
    std::vector<KernelSpec> found;
    for (const KernelSpec& spec : kernels_for(problems, target, "*")) {
      bool serves = found.size() < count;
      for (const Problem& problem : problems) {
        serves = serves && family_of(problem).supports(spec, problem, target);
      }
      if (serves) found.push_back(spec);
    }
    return found;
  }
  SweepReport run(std::size_t count = 3) {
    return sweep(problems, kernels(count), target, store, options);
  }
  // The rows of one kernel.
  std::vector<SweepRow> rows_of(const std::string& kernel) const {
    const SweepData data = store.read();
    std::vector<SweepRow> rows;
    for (const SweepRow& row : data.rows) {
      if (data.kernels[static_cast<std::size_t>(row.kernel)] == kernel) rows.push_back(row);
    }
    return rows;
  }
  std::string a_name(std::size_t place = 1) const { return name_of(kernels(3).at(place)); }
  void break_kernel(const std::string& body) {
    const testing_support::Breakage all[] = {{a_name(), body}};
    options.build.compiler = testing_support::broken_compiler(folder, all).string();
  }
  // Three problems, three kernels, of which one comes to `outcome` and the others are fine.
  void expect_one_bad(const SweepReport& report, Outcome outcome, const std::string& note) const {
    EXPECT_EQ(report.measured, 3U);
    EXPECT_EQ(report.outcomes.at(Outcome::ok), 6U);
    const std::vector<SweepRow> rows = rows_of(a_name());
    ASSERT_EQ(rows.size(), 3U);
    for (const SweepRow& row : rows) {
      EXPECT_EQ(row.outcome, outcome) << row.note;
      EXPECT_EQ(row.seconds, 0);
      EXPECT_NE(row.note.find(note), std::string::npos) << row.note;
    }
  }
};

TEST_F(SweepTest, StoresVerifiedTimesAndTheClock) {
  const SweepReport report = run();
  EXPECT_EQ(report.problems, 3U);
  EXPECT_EQ(report.measured, 3U);
  EXPECT_EQ(report.remaining, 0U);
  const SweepData data = store.read();
  ASSERT_EQ(data.rows.size(), 9U);
  for (const SweepRow& row : data.rows) {
    EXPECT_EQ(row.outcome, Outcome::ok) << row.note;
    EXPECT_GT(row.seconds, 0);
    EXPECT_LE(row.min_seconds, row.seconds);
    EXPECT_TRUE(row.finalist);
    EXPECT_EQ(row.readings, 11);
  }
  ASSERT_EQ(data.runs.size(), 1U);
  EXPECT_EQ(data.runs[0].id, report.run);
  EXPECT_EQ(data.runs[0].target, "generic");
  EXPECT_FALSE(data.runs[0].compiler.empty());
  EXPECT_GE(data.clock.size(), 1U);
}

TEST_F(SweepTest, MeasuresGroupsAndScales) {
  for (const char* line : {"gemm m=70 n=24 k=32 dtype=bf16 groups=5 grouping=contiguous",
                           "gemm m=24 n=16 k=70 dtype=bf16 layout=crr groups=5 grouping=along_k",
                           "gemm m=9 n=140 k=200 dtype=fp8 out=bf16 groups=3 grouping=masked "
                           "scale_a=1x128 scale_b=128x128"}) {
    problems = {parse_problem(line)};
    const SweepReport report = run(1);
    EXPECT_EQ(report.measured, 1U) << line;
    EXPECT_EQ(report.outcomes.at(Outcome::ok), 1U) << line;
  }
}

TEST_F(SweepTest, MeasuresWhatIsMissingAndNothingElse) {
  run(2);
  const std::vector<SweepRow> before = rows_of(a_name(0));
  const SweepReport second = run(3);
  EXPECT_EQ(second.rows, 3U);
  EXPECT_EQ(rows_of(a_name(0)), before);
  const SweepReport third = run(3);
  EXPECT_EQ(third.rows, 0U);
  EXPECT_EQ(third.stored, 3U);
}

TEST_F(SweepTest, ShardsTogetherMeasureEverythingOnce) {
  options.shards = 2;
  std::size_t rows = 0;
  for (options.shard = 1; options.shard <= 2; ++options.shard) rows += run().rows;
  EXPECT_EQ(rows, 9U);
  EXPECT_EQ(store.read().rows.size(), 9U);
}

TEST_F(SweepTest, StopsBetweenProblemsAndGoesOn) {
  bool stop = false;
  options.stop = [&] { return stop; };
  options.progress = [&](const SweepProgress& at) { stop = !at.is_building; };
  const SweepReport first = run();
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.measured, 1U);
  EXPECT_EQ(first.remaining, 2U);
  options.stop = {};
  const SweepReport second = run();
  EXPECT_EQ(second.measured, 2U);
  EXPECT_EQ(store.read().rows.size(), 9U);
}

TEST_F(SweepTest, ASpentBudgetStartsNothing) {
  options.budget_seconds = 1e-9;
  const SweepReport report = run();
  EXPECT_TRUE(report.out_of_time);
  EXPECT_EQ(report.measured, 0U);
  EXPECT_EQ(report.remaining, 3U);
}

TEST_F(SweepTest, WrongKernelsAreStoredAsSuch) {
  break_kernel(testing_support::kWritesNothing);
  expect_one_bad(run(), Outcome::wrong, "nan, the reference is ");
}

TEST_F(SweepTest, CrashesAreStoredAndTheSweepGoesOn) {
  break_kernel(testing_support::kCrashes);
  expect_one_bad(run(), Outcome::crashed, "it died on signal 11");
}

TEST_F(SweepTest, HangsAreEndedAndStored) {
  options.kernel_timeout_seconds = 0.5;
  break_kernel(testing_support::kHangs);
  expect_one_bad(run(), Outcome::timeout, "it ran past its limit of 0.5 s");
}

TEST_F(SweepTest, KernelsThatCannotBeBuiltAreStoredAndTriedAgainWhenAsked) {
  break_kernel("this is no C++");
  expect_one_bad(run(), Outcome::failed, a_name());
  options.build.compiler.clear();
  EXPECT_EQ(run().rows, 0U);
  options.retry = true;
  EXPECT_EQ(run().outcomes.at(Outcome::ok), 3U);
  EXPECT_EQ(store.read().rows.size(), 9U);
}

TEST_F(SweepTest, AKernelThatKeepsEndingTheWorkerIsNotRunAgain) {
  problems.push_back(gemm(40, 40, 40));
  problems.push_back(gemm(41, 41, 41));
  break_kernel(testing_support::kCrashes);
  const SweepReport report = run();
  EXPECT_EQ(report.outcomes.at(Outcome::crashed), 3U);
  EXPECT_EQ(report.outcomes.at(Outcome::refused), 2U);
  EXPECT_EQ(report.outcomes.at(Outcome::ok), 10U);
}

TEST_F(SweepTest, NonsenseIsRefusedWithASentence) {
  const auto words = [&](const std::vector<KernelSpec>& specs) {
    try {
      sweep(problems, specs, target, store, options);
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::vector<Problem> others = {gemm_problem(DType::bf16, GemmLayout::rrr, 8, 8, 8)};
  const std::vector<KernelSpec> unfit = kernels_for(others, target, "*");
  EXPECT_EQ(words(unfit), fmt::format("sweep: none of the {} kernels serves any of the 3 problems; "
                                      "are their types and layouts the same?",
                                      unfit.size()));
  options.shard = 3;
  options.shards = 2;
  EXPECT_EQ(words(kernels(1)), "sweep: shard must be 1/n to n/n, got 3/2");
}

// The kernels of a filter of one point are no candidates of other convolutions of its signature.
TEST_F(SweepTest, AllLegalKernelsAreThoseOfEveryProblem) {
  const Problem wide = parse_problem("conv direction=forward n=1 c=8 k=8 h=9 w=9 y=3 x=3");
  const Problem pointwise = parse_problem("conv direction=forward n=1 c=8 k=8 h=9 w=9");
  const auto names = [&](const std::vector<Problem>& some) {
    std::vector<std::string> all;
    for (const KernelSpec& spec : kernels_for(some, target, "*")) all.push_back(name_of(spec));
    return all;
  };
  EXPECT_EQ(names({wide, pointwise}), names({pointwise}));
  EXPECT_LT(names({wide}).size(), names({pointwise}).size());
}

// ---- a GPU that is none: see fake_cuda/ ----

struct CudaSweepTest : SweepTest {
  CudaSweepTest() {
    target = load_target("sm90a");
    setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
    setenv("TESSERA_NVRTC", FAKE_NVRTC, 1);
    setenv("FAKE_CUDA_KERNEL", "gemm", 1);
    problems[2] = gemm(200, 130, 20);  // an output whose rows are fetched one by one
  }
};

TEST_F(CudaSweepTest, MeasuresOnTheDevicesClock) {
  const SweepReport report = run();
  EXPECT_EQ(report.outcomes.at(Outcome::ok), 9U);
  for (const SweepRow& row : store.read().rows) EXPECT_NEAR(row.seconds, 1e-3, 1e-9);
  EXPECT_EQ(store.read().runs[0].device, "Fake GPU 0");
}

TEST_F(CudaSweepTest, WrongKernelsAreStoredAsSuch) {
  setenv("FAKE_CUDA_KERNEL", "wrong", 1);
  const SweepReport report = run();
  EXPECT_EQ(report.outcomes.at(Outcome::wrong), 9U);
}

TEST_F(CudaSweepTest, AKernelThatHangsIsEnded) {
  options.kernel_timeout_seconds = 1;
  setenv("FAKE_CUDA_HANG_ON", a_name().c_str(), 1);
  setenv("FAKE_CUDA_KERNEL", "hang", 1);
  const SweepReport report = run();
  unsetenv("FAKE_CUDA_HANG_ON");
  expect_one_bad(report, Outcome::timeout, "it ran past its limit of 1 s");
}

TEST_F(CudaSweepTest, FailedLaunchesAreCrashes) {
  setenv("FAKE_CUDA_KERNEL", "crash", 1);
  const SweepReport report = run();
  EXPECT_EQ(report.outcomes.at(Outcome::crashed), 9U);
  EXPECT_NE(rows_of(a_name()).at(0).note.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
}

}  // namespace
}  // namespace tessera::measure
