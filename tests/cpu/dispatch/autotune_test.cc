// Choosing by measurements: autotuning, and measuring where no model has an opinion.
#include "tessera/tune/autotune.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "cpu/broken_compiler.h"
#include "cpu/dispatch/dispatcher_fixture.h"
#include "cpu/waiting_worker.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using testing_support::Breakage;

struct AutotuneTest : DispatcherTest {
  DispatcherOptions tuning_options() const {
    DispatcherOptions o = options();
    o.autotune = true;
    o.autotune_seconds = 5;
    o.autotune_top = 3;
    return o;
  }
};

TEST_F(AutotuneTest, MeasuresOnFirstUseAndReusesInTheNextProcess) {
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 96, 96, 96);
  std::string winner;
  {
    Dispatcher dispatcher(tuning_options());
    const ReadyKernel& kernel = dispatcher.kernel_for(p, with_threads(1));
    EXPECT_EQ(kernel.source, ChoiceSource::tuned);
    EXPECT_GT(kernel.predicted_seconds, 0);
    winner = kernel.name;
  }
  const fs::path file = folder / "cache" / "tuning.sqlite";
  const std::vector<tune::Measurement> rows = tune::Store(file).all();
  EXPECT_EQ(rows.size(), 3U);
  for (const tune::Measurement& row : rows) {
    EXPECT_EQ(row.outcome, measure::Outcome::ok) << row.kernel << ": " << row.note;
  }
  // Without autotuning the store is still asked; nothing is measured again.
  Dispatcher next(options());
  const ReadyKernel& kernel = next.kernel_for(p, with_threads(1));
  EXPECT_EQ(kernel.source, ChoiceSource::tuned);
  EXPECT_EQ(kernel.name, winner);
  EXPECT_EQ(tune::Store(file).all().size(), 3U);
}

// The pool has more kernels than autotuning would measure. A model that has no opinion is replaced
// by measurements of all of them, or of the best by the estimate; one that has is asked.
TEST_F(AutotuneTest, MeasuresAllKernelsWhereNoModelHasAnOpinion) {
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 33, 44, 55);
  const auto registry = std::make_shared<Registry>("few", options().build);
  const Decision all = Dispatcher(options()).explain(p, with_threads(2));
  std::vector<std::string> names;
  for (const Considered& c : all.considered) {
    if (c.refusal.empty() && names.size() < 7) names.push_back(c.name);
  }
  ASSERT_EQ(names.size(), 7U);
  for (const std::string& name : names) registry->declare(parse_name(name));
  DispatcherOptions o = options();
  o.without_model = WithoutModel::measure;
  o.without_model_top = 2;
  o.models = (folder / "no models").string();
  const fs::path file = folder / "cache" / "tuning.sqlite";
  EXPECT_EQ(Dispatcher(o, registry).kernel_for(p, with_threads(2)).source, ChoiceSource::tuned);
  EXPECT_EQ(tune::Store(file).all().size(), 2U);
  o.without_model_top = 0;
  const GemmProblem other = gemm_problem(DType::fp32, GemmLayout::rcr, 44, 33, 55);
  Dispatcher dispatcher(o, registry);
  EXPECT_EQ(dispatcher.kernel_for(other, with_threads(2)).source, ChoiceSource::tuned);
  EXPECT_EQ(tune::Store(file).all().size(), 9U);
  dispatcher.kernel_for(other, with_threads(2));
  EXPECT_EQ(tune::Store(file).all().size(), 9U);
}

// Real children running kernels that are broken in each way; this process notices nothing.
TEST_F(AutotuneTest, SurvivesBrokenKernelsAndChoosesAWorkingOne) {
  const Decision decision = Dispatcher(options()).explain(small(), with_threads(1));
  std::vector<std::string> best;
  for (const Considered& c : decision.considered) {
    if (c.refusal.empty() && best.size() < 4) best.push_back(c.name);
  }
  ASSERT_EQ(best.size(), 4U);
  const Breakage breakages[] = {{best[0], testing_support::kCrashes},
                                {best[1], testing_support::kWritesNothing},
                                {best[2], testing_support::kHangs}};
  DispatcherOptions o = tuning_options();
  o.build.compiler = testing_support::broken_compiler(folder, breakages).string();
  o.autotune_top = 4;
  o.autotune_seconds = 60;
  Dispatcher dispatcher(o);
  EXPECT_EQ(dispatcher.kernel_for(small(), with_threads(1)).name, best[3]);
  std::map<std::string, measure::Outcome> outcomes;
  for (const tune::Measurement& row : tune::Store(folder / "cache" / "tuning.sqlite").all()) {
    outcomes[row.kernel] = row.outcome;
  }
  const std::map<std::string, measure::Outcome> expected = {{best[0], measure::Outcome::crashed},
                                                            {best[1], measure::Outcome::wrong},
                                                            {best[2], measure::Outcome::timeout},
                                                            {best[3], measure::Outcome::ok}};
  EXPECT_EQ(outcomes, expected);
}

TEST_F(AutotuneTest, NeverChoosesAKernelThatCrashedHere) {
  const std::string best = [&] { return Dispatcher(options()).explain(small()).name; }();
  const Target target = load_target("generic");
  tune::Measurement crash;
  crash.device = measure::device_name(target, 0);
  crash.target = "generic";
  crash.problem = to_string(Problem(small()));
  crash.kernel = best;
  crash.threads = 2;
  crash.outcome = measure::Outcome::crashed;
  crash.note = "it died on signal 4 (Illegal instruction)";
  DispatcherOptions o = options();
  o.tuning_store = (folder / "store.sqlite").string();
  tune::Store(o.tuning_store).record(crash);
  crash.kernel = "a name of the future";
  tune::Store(o.tuning_store).record(crash);

  Dispatcher dispatcher(o);
  const RunOptions two = with_threads(2);
  const Decision decision = dispatcher.explain(small(), two);
  EXPECT_NE(decision.name, best);
  EXPECT_NE(dispatcher.kernel_for(small(), two).name, best);
  std::string refusal;
  for (const Considered& c : decision.considered) {
    if (c.name == best) refusal = c.refusal;
  }
  EXPECT_EQ(refusal, "measured here as crashed: it died on signal 4 (Illegal instruction)");
  // By name it can be had all the same.
  EXPECT_EQ(dispatcher.kernel_for(small(), with_threads(2, best)).name, best);
}

TEST_F(AutotuneTest, AStoreThatCannotBeReadCostsNoResult) {
  DispatcherOptions o = options();
  o.tuning_store = folder.string();  // a folder
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) warnings.emplace_back(text);
  });
  Dispatcher dispatcher(o);
  EXPECT_EQ(dispatcher.kernel_for(small()).source, ChoiceSource::analytic);
  set_log_sink({});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find(fmt::format("tuning store '{}': ", folder.string())), 0U);

  o.autotune = true;  // but whoever asks for it must know
  Dispatcher tuning(o);
  EXPECT_THROW(tuning.kernel_for(small()), Error);
}

TEST_F(AutotuneTest, ThreadsShareOneMeasurement) {
  Dispatcher dispatcher(tuning_options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      EXPECT_EQ(dispatcher.kernel_for(small(), with_threads(1)).source, ChoiceSource::tuned);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tune::Store(folder / "cache" / "tuning.sqlite").all().size(), 3U);
}

// The worker of another problem's measurement does not go on before a file is there.
TEST_F(AutotuneTest, AKnownProblemWaitsForNoOthersMeasurement) {
  tune::Measurement row;
  row.device = measure::device_name(load_target("generic"), 0);
  row.target = "generic";
  row.problem = to_string(Problem(small()));
  row.kernel = Dispatcher(options()).kernel_for(small(), with_threads(1)).name;
  row.outcome = measure::Outcome::ok;
  row.seconds = 1e-3;
  DispatcherOptions o = tuning_options();
  o.tuning_store = (folder / "store.sqlite").string();
  tune::Store(o.tuning_store).record(row);
  const testing_support::WaitingWorker worker(folder, TESSERA_WORKER);
  o.tuning_worker = worker.program();

  Dispatcher dispatcher(o);
  std::atomic<bool> has_measured = false;
  std::thread other([&] {
    dispatcher.kernel_for(small(96), with_threads(1));
    has_measured = true;
  });
  worker.wait_until_begun();
  EXPECT_EQ(dispatcher.kernel_for(small(), with_threads(1)).source, ChoiceSource::tuned);
  EXPECT_FALSE(has_measured);
  worker.go_on();
  other.join();
  EXPECT_EQ(dispatcher.kernel_for(small(96), with_threads(1)).source, ChoiceSource::tuned);
}

}  // namespace
}  // namespace tessera
