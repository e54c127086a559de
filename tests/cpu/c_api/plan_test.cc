#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "c_handles.h"
#include "tessera/base/files.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing_support::CDispatcher;
using testing_support::CKernelSet;
using testing_support::CPlan;
using testing_support::CProblem;
using testing_support::CRegistry;
using testing_support::CText;
using testing_support::failure;
using testing_support::ok;
using testing_support::parsed;

constexpr int kRows = 5;
constexpr int kColumns = 7;
constexpr int kDepth = 3;

// A plan of a small product with the generic row, in a cache of its own.
struct CPlanTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-c-");
  std::uint32_t seed = std::random_device{}();
  std::string cache = (folder / "cache").string();
  tsr_build_options_t build = TSR_INIT(tsr_build_options_t);
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  CDispatcher dispatcher;
  CProblem problem;
  CPlan plan;
  std::vector<float> a = std::vector<float>(kRows * kDepth);
  std::vector<float> b = std::vector<float>(kColumns * kDepth);
  std::vector<float> out = std::vector<float>(kRows * kColumns, -7.0F);

  CPlanTest() {
    RecordProperty("seed", std::to_string(seed));
    build.cache = cache.c_str();
    build.worker = TESSERA_WORKER;
    options.target = "generic";
    options.build = &build;
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> whole(-8, 8);  // whole numbers multiply exactly
    for (float& x : a) x = static_cast<float>(whole(random));
    for (float& x : b) x = static_cast<float>(whole(random));
  }
  ~CPlanTest() override { remove_tree(folder); }

  void make(const char* line = "gemm m=5 n=7 k=3") {
    ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
    ASSERT_TRUE(ok(tsr_problem_parse(line, &problem)));
    ASSERT_TRUE(ok(tsr_plan(dispatcher, problem, nullptr, &plan)));
  }
  void expect_product() const {
    for (int m = 0; m < kRows; ++m) {
      for (int n = 0; n < kColumns; ++n) {
        float sum = 0;
        for (int k = 0; k < kDepth; ++k) sum += a[m * kDepth + k] * b[n * kDepth + k];
        EXPECT_EQ(out[m * kColumns + n], sum) << m << ", " << n << ", seed " << seed;
      }
    }
  }
};

TEST_F(CPlanTest, LaunchesByPosition) {
  make();
  size_t count = 0;
  ASSERT_TRUE(ok(tsr_operand_count(plan, &count)));
  ASSERT_EQ(count, 3);
  std::vector<const void*> operands(count);
  const std::pair<const char*, void*> by_name[] = {
      {"a", a.data()}, {"b", b.data()}, {"out", out.data()}};
  for (const auto& [name, data] : by_name) {
    size_t index = 0;
    ASSERT_TRUE(ok(tsr_operand_index(plan, name, &index)));
    operands[index] = data;
  }
  ASSERT_TRUE(ok(tsr_launch(plan, operands.data(), count, nullptr)));
  expect_product();
}

TEST_F(CPlanTest, LaunchesByNameInAnyOrder) {
  make();
  const tsr_operand_t operands[] = {{"out", out.data()}, {"b", b.data()}, {"a", a.data()}};
  tsr_launch_options_t launch = TSR_INIT(tsr_launch_options_t);
  launch.verify = 1;
  ASSERT_TRUE(ok(tsr_launch_named(plan, operands, 3, &launch)));
  expect_product();
}

TEST_F(CPlanTest, OutlivesItsDispatcherAndProblem) {
  make();
  tsr_dispatcher_destroy(dispatcher.it);
  dispatcher.it = nullptr;
  tsr_problem_destroy(problem.it);
  problem.it = nullptr;
  const void* operands[] = {a.data(), b.data(), out.data()};
  ASSERT_TRUE(ok(tsr_launch(plan, operands, 3, nullptr)));
  expect_product();
}

TEST_F(CPlanTest, RefusesWrongOperands) {
  make();
  const void* missing[] = {a.data(), nullptr, out.data()};
  EXPECT_EQ(failure(tsr_launch(plan, missing, 3, nullptr)),
            "invalid_argument: gemm: b must not be null: 7 rows of 3 elements are needed");
  EXPECT_EQ(failure(tsr_launch(plan, missing, 2, nullptr)),
            "invalid_argument: 'gemm m=5 n=7 k=3' has 3 operands, got 2");
  EXPECT_EQ(failure(tsr_launch(plan, nullptr, 3, nullptr)),
            "invalid_argument: the list of operands must not be NULL");
  const void* overlapping[] = {a.data(), b.data(), a.data() + 1};
  EXPECT_EQ(tsr_launch(plan, overlapping, 3, nullptr), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(tsr_error(), HasSubstr("overlap"));
  const tsr_operand_t unknown[] = {{"a", a.data()}, {"bb", b.data()}};
  EXPECT_EQ(failure(tsr_launch_named(plan, unknown, 2, nullptr)),
            "not_found: 'gemm m=5 n=7 k=3' has no operand 'bb'; it has a, b, out");
  const tsr_operand_t twice[] = {{"a", a.data()}, {"a", a.data()}};
  EXPECT_EQ(failure(tsr_launch_named(plan, twice, 2, nullptr)),
            "invalid_argument: operand a is given twice");
  for (const float x : out) EXPECT_EQ(x, -7.0F);
}

// In C++ numbers may take their place.
TEST_F(CPlanTest, NeedsTheWordsOfDropout) {
  make("fmha heads=1 seqlen_q=2 seqlen_k=3 hdim=4 p_drop=0.5");
  const std::vector<float> ones(12, 1.0F);
  const std::uint64_t words[] = {3, 4};
  const tsr_operand_t given[] = {{"q", ones.data()},
                                 {"k", ones.data()},
                                 {"v", ones.data()},
                                 {"out", out.data()},
                                 {"dropout_rng", words}};
  EXPECT_EQ(failure(tsr_launch_named(plan, given, 4, nullptr)),
            "invalid_argument: 'fmha heads=1 seqlen_q=2 seqlen_k=3 hdim=4 p_drop=0.5' needs its "
            "operand dropout_rng, of 16 bytes; it must not be null");
  EXPECT_EQ(out[0], -7.0F);
  ASSERT_TRUE(ok(tsr_launch_named(plan, given, 5, nullptr)));
  EXPECT_GE(out[0], 0);
}

// One sequence of three keys, whose fourth lies in the second entry's page.
TEST_F(CPlanTest, AppendsToAPage) {
  make("fmha kind=append heads=1 seqlen_q=1 seqlen_k=4 hdim=4 pages=table page_size=2 num_pages=3");
  std::vector<float> k(3 * 2 * 4, -7.0F), v(k.size(), -7.0F);
  const std::int32_t before[] = {3}, table[] = {2, 1};
  const tsr_operand_t given[] = {{"k", k.data()},     {"v", v.data()},       {"k_new", a.data()},
                                 {"v_new", b.data()}, {"seqlens_k", before}, {"page_table", table}};
  ASSERT_TRUE(ok(tsr_launch_named(plan, given, 6, nullptr)));
  for (std::size_t i = 0; i < k.size(); ++i) {
    const bool is_new = i / 4 == 1 * 2 + 3 % 2;  // a row of page 1
    EXPECT_EQ(k[i], is_new ? a[i % 4] : -7.0F) << i;
    EXPECT_EQ(v[i], is_new ? b[i % 4] : -7.0F) << i;
  }
}

TEST_F(CPlanTest, ThePartsOfKeysAreThoseThatWereAskedFor) {
  constexpr std::size_t kKeys = 4096;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> q(64), k(kKeys * 64), v(kKeys * 64);
  for (auto* all : {&q, &k, &v}) {
    for (float& x : *all) x = normal(random);
  }
  std::vector<std::vector<float>> results;
  for (const char* parts : {"1", "1", "16"}) {
    tsr_plan_destroy(plan.it), tsr_problem_destroy(problem.it);
    tsr_dispatcher_destroy(dispatcher.it);
    plan.it = nullptr, problem.it = nullptr, dispatcher.it = nullptr;
    make(
        ("fmha heads=1 seqlen_q=1 seqlen_k=4096 hdim=64 num_splits=" + std::string(parts)).c_str());
    results.emplace_back(64, -7.0F);
    const tsr_operand_t given[] = {
        {"q", q.data()}, {"k", k.data()}, {"v", v.data()}, {"out", results.back().data()}};
    ASSERT_TRUE(ok(tsr_launch_named(plan, given, 4, nullptr)));
  }
  EXPECT_EQ(results[0], results[1]) << "seed " << seed;
  EXPECT_NE(results[0], results[2]) << "seed " << seed;
  EXPECT_THAT(results[2], testing::Pointwise(testing::FloatNear(1e-5F), results[0])) << seed;
}

TEST_F(CPlanTest, RefusesAWorkspaceOfTheWrongSize) {
  make("gemm m=64 n=64 k=512");
  size_t bytes = 0;
  ASSERT_TRUE(ok(tsr_workspace_bytes(plan, &bytes)));
  if (bytes == 0) GTEST_SKIP() << "the chosen kernel needs no workspace";
  std::vector<float> x(64 * 512, 1.0F), y(64 * 64);
  const void* operands[] = {x.data(), x.data(), y.data()};
  alignas(64) static char workspace[64];
  tsr_launch_options_t launch = TSR_INIT(tsr_launch_options_t);
  launch.workspace = workspace;
  launch.workspace_bytes = bytes - 1;
  EXPECT_EQ(tsr_launch(plan, operands, 3, &launch), TSR_INVALID_ARGUMENT);
}

TEST_F(CPlanTest, RefusesAWorkspaceThatOverlapsAnOperand) {
  make("gemm m=64 n=64 k=512");
  size_t bytes = 0;
  ASSERT_TRUE(ok(tsr_workspace_bytes(plan, &bytes)));
  std::vector<float> x(64 * 512, 1.0F), y(64 * 64);
  const void* operands[] = {x.data(), x.data(), y.data()};
  tsr_launch_options_t launch = TSR_INIT(tsr_launch_options_t);
  launch.workspace = x.data() + x.size() - 1;
  launch.workspace_bytes = std::max<std::size_t>(bytes, 64);
  EXPECT_EQ(tsr_launch(plan, operands, 3, &launch), TSR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tsr_error()).find("the workspace must not overlap a, got "),
            std::string::npos)
      << tsr_error();
}

TEST_F(CPlanTest, ForcesAKernelOrSaysWhyNot) {
  make();
  tsr_choose_options_t choice = TSR_INIT(tsr_choose_options_t);
  choice.force = "gemm_fp32_nothing";
  CPlan other;
  EXPECT_NE(tsr_plan(dispatcher, problem, &choice, &other), TSR_OK);
  EXPECT_EQ(other.it, nullptr);
  CText json;
  ASSERT_TRUE(ok(tsr_plan_json(plan, &json)));
  const std::string name = parsed(json)["kernel"];
  choice.force = name.c_str();
  ASSERT_TRUE(ok(tsr_plan(dispatcher, problem, &choice, &other)));
}

TEST_F(CPlanTest, RefusesToPackWhatIsNotPacked) {
  make();
  size_t bytes = 0;
  EXPECT_EQ(tsr_packed_bytes(plan, &bytes), TSR_INVALID_ARGUMENT);
}

TEST_F(CPlanTest, RunsWithAPackedOperand) {
  make("gemm m=5 n=7 k=3 preshuffle=1");
  size_t bytes = 0;
  ASSERT_TRUE(ok(tsr_packed_bytes(plan, &bytes)));
  ASSERT_GT(bytes, 0);
  std::vector<float> packed(bytes / sizeof(float) + 16);
  const void* operands[] = {a.data(), b.data(), out.data()};
  void* const aligned =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(packed.data()) + 63) / 64 * 64);
  ASSERT_TRUE(ok(tsr_pack(plan, operands, 3, aligned, nullptr)));
  operands[1] = aligned;
  ASSERT_TRUE(ok(tsr_launch(plan, operands, 3, nullptr)));
  expect_product();
}

TEST_F(CPlanTest, VerifiesAndTimes) {
  make();
  EXPECT_TRUE(ok(tsr_verify(plan, seed)));
  tsr_bench_options_t bench = TSR_INIT(tsr_bench_options_t);
  bench.rounds = 3;
  bench.min_seconds = 1e-4;
  CText json;
  ASSERT_TRUE(ok(tsr_bench(plan, nullptr, 0, &bench, nullptr, &json)));
  EXPECT_EQ(parsed(json)["seconds"].size(), 3);
  const void* operands[] = {a.data(), b.data(), out.data()};
  CText own;
  ASSERT_TRUE(ok(tsr_bench(plan, operands, 3, &bench, nullptr, &own)));
  EXPECT_GT(parsed(own)["gflops"], 0);
  expect_product();
  bench.rounds = -1;
  CText none;
  EXPECT_EQ(failure(tsr_bench(plan, nullptr, 0, &bench, nullptr, &none)),
            "invalid_argument: rounds must be at least 0, got -1");
}

TEST_F(CPlanTest, AutotunesAndRemembers) {
  const std::string store = (folder / "tuning.sqlite").string();
  options.tuning_store = store.c_str();
  make();
  CText json;
  ASSERT_TRUE(ok(tsr_autotune(dispatcher, problem, 0.2, 2, &json)));
  const auto rows = parsed(json)["measurements"];
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0]["outcome"], "ok");
  CDispatcher later;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &later)));
  CText decision;
  ASSERT_TRUE(ok(tsr_choose(later, problem, nullptr, &decision)));
  EXPECT_EQ(parsed(decision)["source"], "tuned");
  EXPECT_EQ(parsed(decision)["kernel"], rows[0]["kernel"]);
}

int stop_at_once(void*) { return 1; }

TEST_F(CPlanTest, TimesHaveAnEnd) {
  make();
  tsr_bench_options_t bench = TSR_INIT(tsr_bench_options_t);
  bench.min_seconds = std::numeric_limits<double>::infinity();
  CText json;
  EXPECT_EQ(failure(tsr_bench(plan, nullptr, 0, &bench, nullptr, &json)),
            "invalid_argument: min_seconds must be from 0 to 86400 seconds, a day, got inf");
  EXPECT_EQ(failure(tsr_autotune(dispatcher, problem, 1e9, 2, &json)),
            "invalid_argument: seconds must be from 0 to 86400 seconds, a day, got 1000000000");
  bench.min_seconds = 3600;
  ASSERT_TRUE(ok(tsr_set_stop(stop_at_once, nullptr)));
  const std::string benched = failure(tsr_bench(plan, nullptr, 0, &bench, nullptr, &json));
  const std::string tuned = failure(tsr_autotune(dispatcher, problem, 3600, 2, &json));
  ASSERT_TRUE(ok(tsr_set_stop(nullptr, nullptr)));
  EXPECT_EQ(benched, "cancelled: the call-back ended it");
  EXPECT_EQ(tuned, "cancelled: the call-back ended it");
}

int stop_after_one(void* user, const char*, size_t done, size_t, const char*) {
  *static_cast<size_t*>(user) = done;
  return 1;
}

TEST_F(CPlanTest, ACallBackEndsABuild) {
  make();
  CKernelSet set;
  ASSERT_TRUE(ok(tsr_kernel_set_create("mine", "generic", &set)));
  ASSERT_TRUE(ok(tsr_kernel_set_for_problem(set, problem, 3)));
  CRegistry registry;
  ASSERT_TRUE(ok(tsr_registry_create("mine", &build, &registry)));
  ASSERT_TRUE(ok(tsr_registry_declare(registry, set)));
  size_t done = 0;
  tsr_callbacks_t callbacks = TSR_INIT(tsr_callbacks_t);
  callbacks.user = &done;
  callbacks.progress = stop_after_one;
  EXPECT_EQ(tsr_registry_build(registry, 1, &callbacks, nullptr), TSR_CANCELLED);
  EXPECT_EQ(done, 1);
  CText json;
  ASSERT_TRUE(ok(tsr_registry_build(registry, 2, nullptr, &json)));
  for (const auto& row : parsed(json)["results"]) EXPECT_EQ(row["error"], "") << row;
}

}  // namespace
}  // namespace tessera
