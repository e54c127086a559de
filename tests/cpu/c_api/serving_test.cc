// The C ABI without a compiler: hooks, packs that are loaded ahead, launches that are compared.
#include <gmock/gmock.h>

#include <random>
#include <string>
#include <vector>

#include "c_handles.h"
#include "cpu/broken_compiler.h"
#include "tessera/base/files.h"
#include "tessera/measure/operands.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_support::Breakage;
using testing_support::CDispatcher;
using testing_support::CPlan;
using testing_support::CProblem;
using testing_support::CText;
using testing_support::failure;
using testing_support::ok;
using testing_support::parsed;

struct CServing : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-c-serving-");
  std::uint64_t seed = std::random_device{}();
  std::string cache = (folder / "cache").string();
  std::string compiler;
  tsr_build_options_t build = TSR_INIT(tsr_build_options_t);
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  measure::OwnedOperands owned = measure::random_operands(parse_problem(kLine), seed);
  CProblem problem;

  static constexpr const char* kLine = "gemm m=33 n=17 k=29";

  CServing() {
    RecordProperty("seed", std::to_string(seed));
    build.cache = cache.c_str();
    build.no_shipped_packs = 1;
    options.target = "generic";
    options.threads = 1;
    options.build = &build;
    EXPECT_TRUE(ok(tsr_problem_parse(kLine, &problem)));
  }
  ~CServing() override {
    tsr_set_compile_hook(nullptr, nullptr);
    remove_tree(folder);
  }

  std::string kernel_of(const CPlan& plan) const {
    CText text;
    EXPECT_TRUE(ok(tsr_plan_json(plan, &text)));
    return parsed(text).at("kernel");
  }
  void launch(const CPlan& plan) const {
    const auto& gemm = std::get<GemmOperands>(owned.operands);
    const std::vector<tsr_operand_t> operands = {{"a", gemm.a}, {"b", gemm.b}, {"out", gemm.out}};
    EXPECT_TRUE(ok(tsr_launch_named(plan, operands.data(), operands.size(), nullptr)));
  }
  nlohmann::json sampling(const CDispatcher& dispatcher) const {
    CText text;
    EXPECT_TRUE(ok(tsr_sampling(dispatcher, &text)));
    return parsed(text);
  }
};

TEST_F(CServing, PlansKeepAWrongKernelAndNewOnesHaveAnother) {
  options.verify_every = 1;
  CDispatcher chooser;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &chooser)));
  CText chosen;
  ASSERT_TRUE(ok(tsr_choose(chooser, problem, nullptr, &chosen)));
  const Breakage all[] = {{parsed(chosen).at("kernel"), testing_support::kWritesNothing}};
  compiler = testing_support::broken_compiler(folder, all).string();
  build.compiler = compiler.c_str();
  CDispatcher dispatcher;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  CPlan wrong, right;
  ASSERT_TRUE(ok(tsr_plan(dispatcher, problem, nullptr, &wrong)));
  launch(wrong);
  EXPECT_EQ(sampling(dispatcher).at("wrong"), 1);
  ASSERT_TRUE(ok(tsr_plan(dispatcher, problem, nullptr, &right)));
  EXPECT_NE(kernel_of(right), kernel_of(wrong));
  launch(wrong);
  EXPECT_EQ(sampling(dispatcher).at("wrong"), 2);
  launch(right);
  const nlohmann::json report = sampling(dispatcher);
  EXPECT_EQ(report.at("launches"), 3);
  EXPECT_EQ(report.at("compared"), 3);
  EXPECT_EQ(report.at("wrong"), 2);
}

TEST_F(CServing, HooksHearAndRefuse) {
  std::vector<std::string> heard;
  const auto hear = [](void* user, const char* kernel, const char* why) {
    static_cast<std::vector<std::string>*>(user)->push_back(std::string(kernel) + " " + why);
    return 1;
  };
  ASSERT_TRUE(ok(tsr_set_compile_hook(hear, &heard)));
  CDispatcher dispatcher;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  CPlan plan;
  EXPECT_THAT(failure(tsr_plan(dispatcher, problem, nullptr, &plan)),
              StartsWith("jit_disabled: no kernel that can run 'gemm m=33 n=17 k=29' is ready"));
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_THAT(heard[0], HasSubstr(" for 'gemm m=33 n=17 k=29'"));
}

TEST_F(CServing, RefusesWhatIsNoPackAndNoNumber) {
  CDispatcher dispatcher;
  options.verify_every = -1;
  EXPECT_THAT(failure(tsr_dispatcher_create(&options, &dispatcher)), HasSubstr("verify_every"));
  options.verify_every = std::int64_t{1} << 40;
  EXPECT_THAT(failure(tsr_dispatcher_create(&options, &dispatcher)),
              HasSubstr("verify_every must be at most 2147483647, got 1099511627776"));
  options.verify_every = 0;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  EXPECT_THAT(failure(tsr_preload(dispatcher, "/nowhere.pack", nullptr)),
              StartsWith("io_error: cannot read the pack /nowhere.pack: "));
  EXPECT_THAT(failure(tsr_preload(dispatcher, nullptr, nullptr)), HasSubstr("pack's file"));
}

}  // namespace
}  // namespace tessera
