// verify_every: kernels that are wrong on purpose are found among many launches, and set aside.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/broken_compiler.h"
#include "cpu/dispatch/dispatcher_fixture.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/measure/operands.h"

namespace tessera {
namespace {

using testing_support::Breakage;

struct Sampling : DispatcherTest {
  Problem problem = small();
  measure::OwnedOperands owned = measure::random_operands(problem, seed);
  std::mutex mutex;
  std::vector<std::string> warnings;

  Sampling() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex);
      if (level == LogLevel::warning) warnings.emplace_back(line);
    });
  }
  ~Sampling() override { set_log_sink({}); }

  DispatcherOptions sampled(int every) const {
    DispatcherOptions o = options();
    o.build.cache.folder =
        fs::current_path() / "sampling_kernels";  // the next run compiles nothing
    o.build.use_shipped_packs = false;
    o.verify_every = every;
    return o;
  }
  // The kernel that is chosen for the problem writes nothing.
  DispatcherOptions wrong(int every) const {
    DispatcherOptions o = sampled(every);
    const std::string name = Dispatcher(options()).explain(problem).name;
    const Breakage all[] = {{name, testing_support::kWritesNothing}};
    o.build.cache.folder = folder / "cache";
    o.build.compiler = testing_support::broken_compiler(folder, all).string();
    return o;
  }
  void run(Dispatcher& dispatcher, int times) const {
    for (int i = 0; i < times; ++i) dispatcher.run(problem, owned.operands);
  }
};

TEST_F(Sampling, AWrongKernelIsFoundAndSetAside) {
  Dispatcher dispatcher(wrong(8));
  const ReadyKernel& first = dispatcher.kernel_for(problem);
  const std::string name = first.name;
  run(dispatcher, 8);
  const SamplingReport report = dispatcher.sampling();
  EXPECT_EQ(report.launches, 8U);
  EXPECT_EQ(report.compared, 1U);
  EXPECT_EQ(report.wrong, 1U);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(
      warnings[0].find(fmt::format("{} is set aside for '{}' until the process ends: a launch "
                                   "of '{}' that was drawn at random was wrong: gemm: out",
                                   name, to_string(problem), to_string(problem))),
      0U)
      << warnings[0];
  EXPECT_NE(warnings[0].find("; the reference's seed was "), std::string::npos) << warnings[0];

  EXPECT_EQ(first.name, name);  // the reference stays valid
  EXPECT_NE(dispatcher.kernel_for(problem).name, name);
  EXPECT_NO_THROW(dispatcher.run(problem, owned.operands, verified()));
  const Decision decision = dispatcher.explain(problem);
  EXPECT_NE(decision.name, name);
  EXPECT_EQ(decision.considered.back().name.empty(), false);
  const auto refused =
      std::find_if(decision.considered.begin(), decision.considered.end(),
                   [&](const Considered& c) { return c.name == name && !c.refusal.empty(); });
  ASSERT_NE(refused, decision.considered.end());
  EXPECT_NE(refused->refusal.find("was wrong"), std::string::npos);
  EXPECT_EQ(dispatcher.kernel_for(small(34)).name, Dispatcher(options()).explain(small(34)).name);
}

TEST_F(Sampling, ARightKernelStays) {
  Dispatcher dispatcher(sampled(3));
  for (const char* line :
       {"gemm m=33 n=17 k=29 beta=0.5 epilogue=bias+gelu", "gemm m=5 n=6 k=7 batch=3 dtype=int8",
        "norm kind=softmax rows=9 columns=40", "fmha heads=2 seqlen_q=9 seqlen_k=9 hdim=16",
        "conv direction=forward n=1 c=4 k=4 h=5 w=5 y=3 x=3 dtype=fp32"}) {
    const Problem one = parse_problem(line);
    measure::OwnedOperands operands = measure::random_operands(one, seed);
    for (int i = 0; i < 6; ++i) {
      measure::reset_outputs(operands);
      dispatcher.run(one, operands.operands);
      // What the caller changes afterwards is not what is compared.
      for (const runtime::AlignedBuffer& buffer : operands.storage) {
        if (i == 5) std::memset(buffer.data(), 0x31, buffer.size());
      }
      dispatcher.sampling();
    }
  }
  const SamplingReport report = dispatcher.sampling();
  EXPECT_EQ(report.launches, 30U);
  EXPECT_EQ(report.compared, 10U);
  EXPECT_EQ(report.wrong, 0U);
  EXPECT_TRUE(warnings.empty()) << warnings[0];
}

TEST_F(Sampling, ReadsWhatLiesInPlaceBeforeItIsOverwritten) {
  Dispatcher dispatcher(sampled(1));
  GemmProblem p = small();
  p.beta = 0.5F;
  auto operands = std::get<GemmOperands>(measure::random_operands(p, seed).operands);
  const measure::OwnedOperands keep = measure::random_operands(p, seed);
  operands = std::get<GemmOperands>(keep.operands);
  operands.c = operands.out;
  std::memset(operands.out, 0, static_cast<std::size_t>(p.m * p.n * 4));
  for (int i = 0; i < 5; ++i) {
    dispatcher.run(p, operands);
    EXPECT_EQ(dispatcher.sampling().wrong, 0U);
  }
  EXPECT_EQ(dispatcher.sampling().compared, 5U);
}

TEST_F(Sampling, SkipsAndCountsWhatCannotBeCompared) {
  Dispatcher dispatcher(sampled(1));
  GemmProblem packed = small();
  packed.preshuffled_b = true;
  measure::OwnedOperands operands = measure::random_operands(packed, seed);
  const runtime::AlignedBuffer b(dispatcher.packed_bytes(packed));
  dispatcher.pack(packed, operands.operands, b.data());
  std::get<GemmOperands>(operands.operands).b = b.data();
  dispatcher.run(packed, operands.operands);
  const SamplingReport report = dispatcher.sampling();
  EXPECT_EQ(report.launches, 1U);
  EXPECT_EQ(report.not_comparable, 1U);
  EXPECT_EQ(report.compared, 0U);
}

TEST_F(Sampling, ThreadsShareOneComparison) {
  Dispatcher dispatcher(sampled(2));
  constexpr int kThreads = 8, kRuns = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const measure::OwnedOperands own =
          measure::random_operands(problem, seed + static_cast<unsigned>(t));
      for (int i = 0; i < kRuns; ++i) dispatcher.run(problem, own.operands, with_threads(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const SamplingReport report = dispatcher.sampling();
  EXPECT_EQ(report.launches, static_cast<std::uint64_t>(kThreads * kRuns));
  EXPECT_EQ(report.compared + report.busy, static_cast<std::uint64_t>(kThreads * kRuns / 2));
  EXPECT_GT(report.compared, 0U);
  EXPECT_EQ(report.wrong, 0U);
}

TEST_F(Sampling, AChildOfForkGoesOn) {
  Dispatcher dispatcher(sampled(1));
  run(dispatcher, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t before = dispatcher.sampling().compared;
    dispatcher.run(problem, owned.operands, with_threads(1));
    ::_exit(dispatcher.sampling().compared == before + 1 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Sampling, TheEnvironmentAsksForIt) {
  setenv("TESSERA_VERIFY_EVERY", "1", 1);
  Dispatcher dispatcher(sampled(0));
  setenv("TESSERA_VERIFY_EVERY", "often", 1);
  std::string sentence;
  try {
    Dispatcher refused(sampled(0));
  } catch (const Error& error) {
    sentence = error.what();
  }
  unsetenv("TESSERA_VERIFY_EVERY");
  EXPECT_EQ(sentence,
            "TESSERA_VERIFY_EVERY must be a whole number from 0, which compares no launch, to "
            "2147483647, got 'often'");
  run(dispatcher, 1);
  EXPECT_EQ(dispatcher.sampling().compared, 1U);
}

}  // namespace
}  // namespace tessera
