// Plans over a range: launches at any value, their kernels, their workspace and their memory.
#include "tessera/dispatch/range_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <malloc.h>

#include <chrono>
#include <set>
#include <thread>

#include "dispatcher_fixture.h"
#include "tessera/base/error.h"
#include "tessera/dispatch/call_plan_internal.h"
#include "tessera/families/operations.h"
#include "tessera/jit/pack.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/outcome.h"
#include "tessera/runtime/availability.h"
#include "tessera/targets/targets.h"
#include "tessera/tune/store.h"

namespace tessera {
namespace {

using testing::HasSubstr;

template <typename Call>
std::string sentence_of(const Call& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

// Its tests share a cache, because many have the same kernels.
struct RangePlanTest : DispatcherTest {
  std::mt19937_64 random{seed};
  static inline fs::path shared;

  static void SetUpTestSuite() {
    shared = make_unique_folder(fs::temp_directory_path(), "tessera-ranges-");
  }
  static void TearDownTestSuite() { remove_tree(shared); }
  DispatcherOptions options() const {
    DispatcherOptions o = DispatcherTest::options();
    o.build.cache.folder = shared / "cache";
    o.build.worker = TESSERA_WORKER;
    return o;
  }

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
  }
  // Runs the plan at a value on random operands and compares with the fp64 reference.
  void expect_right(const RangePlan& plan, std::int64_t value, const void* packed = nullptr) {
    const auto& [first, range] = plan.ranged();
    const Problem problem = problem_at(first, range, value);
    SCOPED_TRACE(
        fmt::format("{} on {}, seed {}", to_string(problem), plan.kernel_at(value).name, seed));
    measure::OwnedOperands owned = measure::random_operands(problem, random());
    const Family& family = family_of(problem);
    Problem plain = family.unpacked(problem);
    const Reference reference = family.reference(plain, owned.operands, {});
    Operands operands = owned.operands;
    if (packed != nullptr) std::get<GemmOperands>(operands).b = packed;
    plan.launch(value, operands);
    const Mismatch mismatch = family.compare(plain, owned.operands, reference);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
  }
  // A kernel that serves all: where the choice does not matter, one is built.
  RunOptions one_kernel(const std::string& line) const {
    return forced(
        name_of(general_kernel(read_ranged_problem(line).problem, load_target("generic"))));
  }
  static std::shared_ptr<const RangePlan> plan_of(Dispatcher& dispatcher, const std::string& line,
                                                  const RunOptions& run = {}) {
    const auto [problem, range] = read_ranged_problem(line);
    return dispatcher.plan_range(problem, range, run);
  }
};

TEST_F(RangePlanTest, LaunchesAtEveryValueAreRightAndChooseNothing) {
  Dispatcher dispatcher(options());
  const auto plan = plan_of(dispatcher, "gemm m=1..64 n=17 k=29");
  ASSERT_FALSE(plan->parts().empty());
  EXPECT_EQ(plan->parts().front().first, 1);
  EXPECT_EQ(plan->parts().back().last, 64);
  const std::size_t loaded = dispatcher.registry().size();
  for (std::int64_t m = 1; m <= 64; ++m) expect_right(*plan, m);
  EXPECT_EQ(dispatcher.registry().size(), loaded);  // nothing was built
}

// Every operation, layouts, strides and types. A short range has the single plans' kernels, and a
// long one has kernels that serve.
TEST_F(RangePlanTest, RandomRangesAgreeWithTheReferenceAndWithSinglePlans) {
  const std::vector<std::string> lines = {
      "gemm m={} n=24 k=40 dtype=bf16 layout=crr",
      "gemm m={} n=24 k=40 layout=ccr beta=1 epilogue=bias+relu",
      "gemm m={} n=24 k=40 dtype=int8 layout=rrr",
      "gemm m=5 n=24 k=40 batch={}",
      "gemm m=8 n={} k=16 layout=rrr",
      "norm kind=rmsnorm rows={} columns=77 scale=1 dtype=bf16",
      "fmha heads=2 seqlen_q={} seqlen_k=48 hdim=64 dtype=bf16",
      "fmha heads=2 seqlen_q=3 seqlen_k={} hdim=32 mask=top_left",
      "conv direction=forward n={} c=8 k=8 h=6 w=6 y=3 x=3 pad_h=1 pad_w=1"};
  Dispatcher dispatcher(options());
  for (int round = 0; round < 2; ++round) {
    const std::int64_t first = between(1, 60);
    const bool is_short = round == 0;
    const std::int64_t more = is_short ? between(0, 90) : between(256, 600);
    const std::string range = fmt::format("{}..{}", first, first + more);
    const std::string& line = lines[static_cast<std::size_t>(between(0, 8))];
    const auto plan = plan_of(dispatcher, fmt::format(fmt::runtime(line), range));
    const auto& [problem, values] = plan->ranged();
    for (int i = 0; i < 4; ++i) {
      const std::int64_t value = between(values.first, values.last);
      expect_right(*plan, value);
      const Problem at = problem_at(problem, values, value);
      const ReadyKernel ready = plan->kernel_at(value);
      EXPECT_TRUE(supports(ready.spec, at, dispatcher.target())) << to_string(at);
      if (!is_short) continue;
      EXPECT_EQ(ready.name, dispatcher.explain(at).name) << to_string(at);
      EXPECT_EQ(ready.worth_threads, dispatcher.kernel_for(at).worth_threads) << to_string(at);
    }
  }
}

// The bound is the most that any single plan needs.
TEST_F(RangePlanTest, TheWorkspaceIsTheMostOfAllValues) {
  Dispatcher dispatcher(options());
  const char* const lines[] = {"gemm m=30..50 n=40 k=300 dtype=bf16",
                               "fmha heads=2 seqlen_q=1..20 seqlen_k=90 hdim=64 dtype=bf16"};
  const char* const line = lines[random() % std::size(lines)];
  const auto plan = plan_of(dispatcher, line);
  const auto& [problem, range] = plan->ranged();
  std::size_t most = 0;
  for (std::int64_t value = range.first; value <= range.last; ++value) {
    most = std::max(most, dispatcher.workspace_bytes(problem_at(problem, range, value)));
  }
  EXPECT_EQ(plan->workspace_bytes(), most) << line;
}

TEST_F(RangePlanTest, TakesTheCallersWorkspace) {
  Dispatcher dispatcher(options());
  const auto plan = plan_of(dispatcher, "gemm m=30..50 n=40 k=300 dtype=bf16");
  const std::int64_t value = between(30, 50);
  const Problem problem = problem_at(plan->ranged().problem, plan->ranged().range, value);
  const measure::OwnedOperands owned = measure::random_operands(problem, seed);
  runtime::AlignedBuffer memory(plan->workspace_bytes() + 64);
  RangeLaunchOptions with{nullptr, memory.data(), plan->workspace_bytes()};
  plan->launch(value, owned.operands, with);
  EXPECT_TRUE(verify(problem, owned.operands).ok) << seed;
  // What overlaps an operand is refused, and so is what is too small.
  with = {nullptr, const_cast<void*>(std::get<GemmOperands>(owned.operands).a), 64};
  EXPECT_THROW(plan->launch(value, owned.operands, with), Error);
}

std::string message_at(const RangePlan& plan, std::int64_t value, const Operands& operands) {
  try {
    plan.launch(value, operands);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(RangePlanTest, RefusesOtherValuesAndWrongOperands) {
  Dispatcher dispatcher(options());
  const auto plan =
      plan_of(dispatcher, "gemm m=2..9 n=17 k=29", one_kernel("gemm m=2..9 n=17 k=29"));
  const Problem problem = plan->ranged().problem;
  const measure::OwnedOperands owned = measure::random_operands(problem, seed);
  EXPECT_EQ(message_at(*plan, 1, owned.operands), "range: m must be from 2 to 9, got 1");
  EXPECT_EQ(message_at(*plan, 10, owned.operands), "range: m must be from 2 to 9, got 10");
  GemmOperands none;
  EXPECT_THAT(message_at(*plan, 2, none), HasSubstr("must not be null"));
  EXPECT_THAT(message_at(*plan, 2, NormOperands{}), HasSubstr("gemm"));
}

// Operands that are allowed but not usual: each call binds for itself.
TEST_F(RangePlanTest, TakesOperandsAtAnyElement) {
  Dispatcher dispatcher(options());
  const auto plan =
      plan_of(dispatcher, "gemm m=2..9 n=17 k=29", one_kernel("gemm m=2..9 n=17 k=29"));
  std::vector<float> a(9 * 29 + 1, 2), b(17 * 29, 3), out(9 * 17, 0);
  plan->launch(9, GemmOperands{.a = a.data() + 1, .b = b.data(), .out = out.data()});
  EXPECT_EQ(out.front(), 6.0F * 29);
  EXPECT_EQ(out.back(), 6.0F * 29);
}

TEST_F(RangePlanTest, RefusesWhatNoKernelServesAtSomeValue) {
  Dispatcher dispatcher(options());
  // A leading dimension of 8 holds a column of at most 8 elements.
  EXPECT_THAT(sentence_of([&] { plan_of(dispatcher, "gemm m=1..9 n=8 k=8 layout=crr ld_a=8"); },
                          ErrorCode::invalid_argument),
              HasSubstr("ld_a"));
}

TEST_F(RangePlanTest, ForcedKernelsTakeTheWholeRange) {
  Dispatcher dispatcher(options());
  const std::string name = dispatcher.explain(small()).name;
  const auto plan = plan_of(dispatcher, "gemm m=1..300 n=17 k=29", forced(name));
  ASSERT_EQ(plan->parts().size(), 1U);
  EXPECT_EQ(plan->parts().front().kernel, name);
  EXPECT_EQ(plan->parts().front().source, ChoiceSource::pinned);
  expect_right(*plan, between(1, 300));
}

// The kernel of a row gives it the same bits in every batch.
TEST_F(RangePlanTest, BatchInvariantPlansGiveARowTheSameBits) {
  DispatcherOptions o = options();
  o.batch_invariant = true;
  Dispatcher dispatcher(o);
  const auto plan = plan_of(dispatcher, "gemm m=1..300 n=40 k=900");
  const measure::OwnedOperands owned =
      measure::random_operands(parse_problem("gemm m=300 n=40 k=900"), seed);
  const GemmOperands given = std::get<GemmOperands>(owned.operands);
  std::vector<float> one(40), many(300 * 40);
  plan->launch(1, GemmOperands{.a = given.a, .b = given.b, .out = one.data()});
  for (int i = 0; i < 5; ++i) {
    const std::int64_t value = between(2, 300);
    plan->launch(value, GemmOperands{.a = given.a, .b = given.b, .out = many.data()});
    EXPECT_EQ(std::memcmp(one.data(), many.data(), 40 * sizeof(float)), 0)
        << value << ", seed " << seed;
  }
}

// What was packed once is right at every value.
TEST_F(RangePlanTest, OnePackingServesAllValues) {
  Dispatcher dispatcher(options());
  const auto plan = plan_of(dispatcher, "gemm m=1..300 n=40 k=64 preshuffle=1");
  ASSERT_EQ(plan->parts().size(), 1U);
  const auto& [first, range] = plan->ranged();
  const RunOptions same = forced(plan->parts().front().kernel);
  for (int i = 0; i < 4; ++i) {
    const std::int64_t value = between(1, 300);
    const Problem problem = problem_at(first, range, value);
    const measure::OwnedOperands owned = measure::random_operands(problem, seed);
    // packed for the first value, with B of the value's operands
    std::vector<std::byte> packed(dispatcher.packed_bytes(first, same) + 64);
    void* at = packed.data();
    std::size_t space = packed.size();
    std::align(64, packed.size() - 64, at, space);
    dispatcher.pack(first, owned.operands, at, same);
    Operands operands = owned.operands;
    std::get<GemmOperands>(operands).b = at;
    const Problem plain = family_of(problem).unpacked(problem);
    const Reference reference = family_of(plain).reference(plain, owned.operands, {});
    plan->launch(value, operands);
    const Mismatch mismatch = family_of(plain).compare(plain, owned.operands, reference);
    EXPECT_TRUE(mismatch.ok) << value << ": " << mismatch.message;
  }
  // The packed operand has another size for each n.
  EXPECT_THAT(sentence_of([&] { plan_of(dispatcher, "gemm m=4 n=1..300 k=64 preshuffle=1"); },
                          ErrorCode::unsupported),
              HasSubstr("one packing of b must serve every value of n"));
}

// What was measured counts for its own value alone, also where the plan would not have asked.
TEST_F(RangePlanTest, TakesWhatWasMeasuredWhereItWasMeasured) {
  const RunOptions one = with_threads(1);
  auto registry = std::make_shared<Registry>("two", options().build);
  const Decision decision = Dispatcher(options()).explain(small(777), one);
  const std::string best = decision.considered.at(0).name;
  const std::string other = decision.considered.at(1).name;
  registry->declare(decision.considered.at(0).spec);
  registry->declare(decision.considered.at(1).spec);
  DispatcherOptions o = options();
  o.build = {};
  o.tuning_store = (folder / "store.sqlite").string();
  tune::Measurement row;
  row.device = measure::device_name(load_target("generic"), 0);
  row.target = "generic";
  row.problem = to_string(Problem(small(777)));
  row.kernel = other;
  row.outcome = measure::Outcome::ok;
  row.seconds = 1e-3;
  tune::Store(o.tuning_store).record(row);
  row.problem = to_string(Problem(small(779)));
  row.kernel = best;
  row.outcome = measure::Outcome::crashed;
  row.seconds = 0;
  tune::Store(o.tuning_store).record(row);

  Dispatcher dispatcher(o, registry);
  const auto plan = dispatcher.plan_range(small(), {"m", 700, 1000}, one);
  EXPECT_EQ(plan->kernel_at(776).name, best);
  EXPECT_EQ(plan->kernel_at(777).name, other);
  EXPECT_EQ(plan->kernel_at(778).name, best);
  EXPECT_EQ(plan->kernel_at(779).name, other);
  EXPECT_EQ(plan->kernel_at(780).name, best);
  for (const PlannedPart& part : plan->parts()) {
    EXPECT_EQ(part.source == ChoiceSource::tuned, part.first == 777) << part.first;
  }
  expect_right(*plan, 777);
}

// 0: every launch on the fake GPU gave the right result.
int launch_on_a_fake_gpu(DispatcherOptions options, std::uint64_t seed) {
  setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
  setenv("TESSERA_NVRTC", FAKE_NVRTC, 1);
  setenv("FAKE_CUDA_KERNEL", "gemm", 1);
  options.target = "sm90a";
  Dispatcher dispatcher(options);
  const auto [problem, range] = read_ranged_problem("gemm m=1..300 n=47 k=41 dtype=bf16");
  const auto plan = dispatcher.plan_range(problem, range);
  const runtime::Place place{&runtime::backend_for(dispatcher.target()), {}};
  for (const std::int64_t m : {1, 64, 65, 299, 65}) {
    const Problem at = problem_at(problem, range, m);
    if (dispatcher.workspace_bytes(at) > plan->workspace_bytes()) return 2;
    measure::OwnedOperands owned = measure::random_operands(at, seed);
    measure::PlacedOperands placed = measure::place_operands(owned, place);
    plan->launch(m, placed.operands);
    place.backend->synchronize(place.options);
    measure::fetch_outputs(owned, placed, place);
    if (!verify(at, owned.operands).ok) return 3;
  }
  return 0;
}

TEST_F(RangePlanTest, LaunchesOnGpus) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(launch_on_a_fake_gpu(options(), seed)), testing::ExitedWithCode(0), "");
}

// All threads find the same bound value, and each launch is right.
TEST_F(RangePlanTest, ManyThreadsLaunchAtOnce) {
  Dispatcher dispatcher(options());
  const std::string line = "gemm m=1..64 n=17 k=29";
  const auto plan = plan_of(dispatcher, line, one_kernel(line));
  const measure::OwnedOperands owned =
      measure::random_operands(parse_problem("gemm m=64 n=17 k=29"), seed);
  const GemmOperands given = std::get<GemmOperands>(owned.operands);
  std::vector<float> all(64 * 17);
  plan->launch(64, GemmOperands{.a = given.a, .b = given.b, .out = all.data()});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<float> out(64 * 17);
      for (std::int64_t m = 1; m <= 64; ++m) {
        plan->launch(m, GemmOperands{.a = given.a, .b = given.b, .out = out.data()});
        for (std::size_t i = 0; i < static_cast<std::size_t>(m) * 17; ++i) {
          wrong += std::abs(out[i] - all[i]) > 1e-3F * (1 + std::abs(all[i])) ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << seed;
}

// docs/security.md says how much.
TEST_F(RangePlanTest, AValueCostsFewBytes) {
  Dispatcher dispatcher(options());
  const Problem problem = parse_problem("gemm m=9 n=17 k=29 epilogue=bias+relu+add");
  const RunOptions run = with_threads(1, name_of(general_kernel(problem, dispatcher.target())));
  const auto plan = plan_of(dispatcher, "gemm m=1..2000 n=17 k=29 epilogue=bias+relu+add", run);
  std::vector<float> a(2000 * 29, 1), b(17 * 29, 1), bias(17, 1), add(2000 * 17, 1);
  std::vector<float> out(2000 * 17);
  const GemmOperands operands{
      .a = a.data(), .b = b.data(), .d = {bias.data(), add.data()}, .out = out.data()};
  plan->launch(1, operands);
  const auto heap = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = heap();
  for (std::int64_t m = 2; m <= 2000; ++m) plan->launch(m, operands);
  const double bytes = (heap() - before) / 1999;
  RecordProperty("bytes", std::to_string(bytes));
  EXPECT_LE(bytes, 1100) << bytes;
}

#ifdef NDEBUG
// The same kernel and operands through a plan over a range and through the dispatcher, in turns.
TEST_F(RangePlanTest, ALaunchCostsNoMoreThanAPlan) {
  Dispatcher dispatcher(options());
  const RunOptions one = with_threads(1);
  const auto plan = plan_of(dispatcher, "gemm m=1..64 n=1 k=1", one);
  const Problem problem = parse_problem("gemm m=1 n=1 k=1");
  float a = 2, b = 3, out = 0;
  alignas(16) float storage[3][4] = {{a}, {b}, {out}};
  const GemmOperands operands{.a = storage[0], .b = storage[1], .out = storage[2]};
  const ReadyKernel& kernel = dispatcher.kernel_for(problem, one);
  std::vector<double> ranged, single, called;
  const auto time = [](std::vector<double>& into, const auto& call) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) call();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    into.push_back(spent.count() / 200);
  };
  for (int batch = 0; batch < 201; ++batch) {
    time(ranged, [&] { plan->launch(1, operands); });
    time(single,
         [&] { kernel.loaded->launch(checked_launch(kernel, problem, operands, {}), one.launch); });
    time(called, [&] { dispatcher.run(problem, operands, one); });
  }
  const auto median = [](std::vector<double>& of) {
    std::nth_element(of.begin(), of.begin() + 100, of.end());
    return of[100];
  };
  const double at = median(ranged), alone = median(single), run = median(called);
  RecordProperty("range_plan_ns", std::to_string(at));
  RecordProperty("plan_ns", std::to_string(alone));
  RecordProperty("run_ns", std::to_string(run));
  if (std::getenv("TESSERA_TEST_TIMES") != nullptr) {
    fmt::print("a plan over a range {:.0f} ns, a plan {:.0f} ns, a call {:.0f} ns\n", at, alone,
               run);
  }
  EXPECT_EQ(storage[2][0], 6);
  EXPECT_LE(at, alone + 60);
}
#endif

}  // namespace
}  // namespace tessera
