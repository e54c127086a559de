#include <gmock/gmock.h>

#include <cstring>

#include "c_handles.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing_support::CDispatcher;
using testing_support::CKernelSet;
using testing_support::CProblem;
using testing_support::CRegistry;
using testing_support::CText;
using testing_support::failure;
using testing_support::ok;
using testing_support::parsed;

// Two kernels of the generic row, which every machine has.
void declare_two(CKernelSet& set) {
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=64 n=64 k=64", &problem)));
  ASSERT_TRUE(ok(tsr_kernel_set_create("two", "generic", &set)));
  ASSERT_TRUE(ok(tsr_kernel_set_for_problem(set, problem, 2)));
}

nlohmann::json kernels_of(const tsr_kernel_set_t* set) {
  CText json;
  EXPECT_TRUE(ok(tsr_kernel_set_json(set, &json)));
  return parsed(json)["kernels"];
}

TEST(CKernelSet, IsTheSameAfterJson) {
  CKernelSet set;
  declare_two(set);
  EXPECT_EQ(kernels_of(set).size(), 2);
  CText json;
  ASSERT_TRUE(ok(tsr_kernel_set_json(set, &json)));
  CKernelSet again;
  ASSERT_TRUE(ok(tsr_kernel_set_from_json(json.it, &again)));
  EXPECT_EQ(kernels_of(again), kernels_of(set));
  EXPECT_EQ(failure(tsr_kernel_set_add(again, "x")),
            "invalid_argument: kernel set 'two' was read from JSON; declare kernels in one that "
            "tsr_kernel_set_create() made");
}

TEST(CKernelSet, RefusesUnknownNamesAtOnce) {
  CKernelSet set;
  ASSERT_TRUE(ok(tsr_kernel_set_create("mine", "sm90a", &set)));
  EXPECT_THAT(failure(tsr_kernel_set_preselected(set, "nonsense")),
              HasSubstr("not_found: unknown kernel set 'nonsense'"));
  EXPECT_THAT(failure(tsr_kernel_set_add(set, "nonsense")), HasSubstr("nonsense"));
}

TEST(CKernelSet, NarrowsByPatterns) {
  CKernelSet set;
  ASSERT_TRUE(ok(tsr_kernel_set_create("mine", "sm90a", &set)));
  ASSERT_TRUE(ok(tsr_kernel_set_op(set, "gemm")));
  ASSERT_TRUE(ok(tsr_kernel_set_where(set, "dtype", "bf16")));
  ASSERT_TRUE(ok(tsr_kernel_set_where(set, "layout", "rcr")));
  ASSERT_TRUE(ok(tsr_kernel_set_where(set, "tile", "128x256x*")));
  const nlohmann::json kernels = kernels_of(set);
  ASSERT_FALSE(kernels.empty());
  for (const std::string name : kernels) {
    EXPECT_THAT(name, HasSubstr("gemm_bf16_rcr_"));
    EXPECT_THAT(name, HasSubstr("_128x256x"));
  }
}

TEST(CKernelSet, RefusesWhatMatchesNothing) {
  CKernelSet set;
  ASSERT_TRUE(ok(tsr_kernel_set_create("mine", "generic", &set)));
  ASSERT_TRUE(ok(tsr_kernel_set_op(set, "gemm")));
  ASSERT_TRUE(ok(tsr_kernel_set_where(set, "tile", "7777x*x*")));
  CText json;
  EXPECT_EQ(tsr_kernel_set_json(set, &json), TSR_NOT_FOUND);
  EXPECT_EQ(tsr_kernel_set_for_problem(set, nullptr, 0), TSR_INVALID_ARGUMENT);
  EXPECT_STREQ(tsr_error(), "best must be at least 1, got 0");
}

TEST(CRegistry, ListsFiltersMergesAndTravelsAsJson) {
  CKernelSet set;
  declare_two(set);
  CRegistry registry;
  ASSERT_TRUE(ok(tsr_registry_create("first", nullptr, &registry)));
  ASSERT_TRUE(ok(tsr_registry_declare(registry, set)));
  const auto list = [](const tsr_registry_t* of) {
    CText json;
    EXPECT_TRUE(ok(tsr_registry_list(of, &json)));
    return parsed(json)["kernels"];
  };
  ASSERT_EQ(list(registry).size(), 2);
  EXPECT_EQ(list(registry)[0]["is_loaded"], false);
  const std::string name = list(registry)[1]["kernel"];
  CRegistry one;
  ASSERT_TRUE(ok(tsr_registry_filter(registry, name.c_str(), &one)));
  ASSERT_EQ(list(one).size(), 1);
  EXPECT_EQ(list(one)[0]["kernel"], name);
  CText json;
  ASSERT_TRUE(ok(tsr_registry_export(registry, &json)));
  ASSERT_TRUE(ok(tsr_registry_import(one, json.it)));
  EXPECT_EQ(list(one), list(registry));
  CRegistry empty;
  ASSERT_TRUE(ok(tsr_registry_create("empty", nullptr, &empty)));
  ASSERT_TRUE(ok(tsr_registry_merge(empty, registry)));
  EXPECT_EQ(list(empty), list(registry));
  EXPECT_EQ(tsr_registry_import(empty, "{\"kernels\": 3}"), TSR_PARSE_ERROR);
}

TEST(CDispatcher, ChoosesOneOrderOfSumsForAnyBatch) {
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.target = "sm90a";
  options.batch_invariant = 1;
  CDispatcher dispatcher;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=3 n=512 k=512 dtype=bf16", &problem)));
  CText text;
  ASSERT_TRUE(ok(tsr_explain(dispatcher, problem, nullptr, 0, &text)));
  EXPECT_NE(std::string(text.it).find("which was chosen for any batch"), std::string::npos);
}

// A problem remembers what its setters say of the dispatcher, so that nobody drops it unseen.
TEST(CDispatcher, RefusesAProblemThatWasBuiltForAnotherChoice) {
  const auto chosen = [](const char* target, bool is_strict, const char* setters) {
    tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
    options.target = target;
    options.deterministic = is_strict ? 1 : 0;
    CDispatcher dispatcher;
    EXPECT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
    CProblem problem;
    const std::string json =
        R"({"dims": [64, 64, 2, 300, 400], "nheads": [8, 2], "data_type": "bf16", )" +
        std::string(setters) + "}";
    EXPECT_TRUE(ok(tsr_problem_build("fmha", json.c_str(), &problem)));
    CText decision;
    return failure(tsr_choose(dispatcher, problem, nullptr, &decision));
  };
  const char* const strict = R"("bwd_flags": [false, false, true])";
  EXPECT_EQ(chosen("sm90a", false, strict),
            "invalid_argument: problem: its setters ask for deterministic kernels, and the "
            "dispatcher was made without deterministic");
  EXPECT_EQ(chosen("sm90a", true, strict), "ok: ");
  const char* const elsewhere = R"("gfx_arch": "avx2")";
  EXPECT_EQ(chosen("sm90a", false, elsewhere),
            "invalid_argument: problem: its setters ask for the target 'avx2', and the "
            "dispatcher is for 'sm90a'");
  EXPECT_EQ(chosen("avx2", true, elsewhere), "ok: ");
}

TEST(CDispatcher, ChoosesForAMachineThatIsNotHere) {
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.target = "sm90a";
  CDispatcher dispatcher;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=4096 n=4096 k=4096 dtype=bf16", &problem)));
  CText json;
  ASSERT_TRUE(ok(tsr_choose(dispatcher, problem, nullptr, &json)));
  const auto decision = parsed(json);
  EXPECT_EQ(decision["target"], "sm90a");
  EXPECT_EQ(decision["considered"][0]["kernel"], decision["kernel"]);
  EXPECT_GT(decision["predicted_seconds"], 0);
  tsr_choose_options_t pinned = TSR_INIT(tsr_choose_options_t);
  const std::string second = decision["considered"][1]["kernel"];
  pinned.force = second.c_str();
  CText forced;
  ASSERT_TRUE(ok(tsr_choose(dispatcher, problem, &pinned, &forced)));
  EXPECT_EQ(parsed(forced)["kernel"], second);
  EXPECT_EQ(parsed(forced)["source"], "pinned");
  CText text;
  ASSERT_TRUE(ok(tsr_explain(dispatcher, problem, nullptr, 0, &text)));
  EXPECT_THAT(text.it, HasSubstr(std::string(decision["kernel"])));
}

TEST(CDispatcher, ChoosesAmongThePool) {
  CKernelSet set;
  declare_two(set);
  CRegistry registry;
  ASSERT_TRUE(ok(tsr_registry_create("pool", nullptr, &registry)));
  ASSERT_TRUE(ok(tsr_registry_declare(registry, set)));
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.target = "generic";
  options.pool = registry;
  CDispatcher dispatcher;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=8 n=8 k=8", &problem)));
  CText json;
  ASSERT_TRUE(ok(tsr_choose(dispatcher, problem, nullptr, &json)));
  const nlohmann::json kernels = kernels_of(set);
  EXPECT_NE(std::find(kernels.begin(), kernels.end(), parsed(json)["kernel"]), kernels.end());
  const tsr_build_options_t build = TSR_INIT(tsr_build_options_t);
  options.build = &build;
  CDispatcher refused;
  EXPECT_EQ(tsr_dispatcher_create(&options, &refused), TSR_INVALID_ARGUMENT);
}

TEST(COptions, RefusesASizeThatIsNone) {
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  CDispatcher dispatcher;
  options.struct_size = 0;
  EXPECT_EQ(failure(tsr_dispatcher_create(&options, &dispatcher)),
            "invalid_argument: tsr_dispatcher_options_t.struct_size must be " +
                std::to_string(sizeof(options)) + ", set by TSR_INIT, got 0");
  options.struct_size = 1 << 20;
  EXPECT_EQ(tsr_dispatcher_create(&options, &dispatcher), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(dispatcher.it, nullptr);
}

TEST(COptions, TakesTheShorterStructOfAnOlderProgram) {
  struct {
    size_t struct_size;
    const char* target;
  } older = {sizeof(older), "generic"};
  CDispatcher dispatcher;
  ASSERT_TRUE(ok(tsr_dispatcher_create(reinterpret_cast<const tsr_dispatcher_options_t*>(&older),
                                       &dispatcher)));
  CText json;
  ASSERT_TRUE(ok(tsr_dispatcher_target(dispatcher, &json)));
  EXPECT_EQ(parsed(json)["name"], "generic");
}

TEST(COptions, TakesALongerStructWhoseNewFieldsAreNotSet) {
  struct {
    tsr_choose_options_t known;
    long later;
  } newer = {TSR_INIT(tsr_choose_options_t), 0};
  newer.known.struct_size = sizeof(newer);
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.target = "generic";
  CDispatcher dispatcher;
  ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
  CProblem problem;
  ASSERT_TRUE(ok(tsr_problem_parse("gemm m=8 n=8 k=8", &problem)));
  CText json;
  EXPECT_TRUE(ok(tsr_choose(dispatcher, problem, &newer.known, &json)));
  newer.later = 1;
  CText none;
  EXPECT_EQ(failure(tsr_choose(dispatcher, problem, &newer.known, &none)),
            "invalid_argument: tsr_choose_options_t has a field beyond its first " +
                std::to_string(sizeof(tsr_choose_options_t)) +
                " bytes, which this release does not know");
}

TEST(COptions, RefusesNumbersOutOfRange) {
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  CDispatcher dispatcher;
  options.threads = -1;
  EXPECT_EQ(failure(tsr_dispatcher_create(&options, &dispatcher)),
            "invalid_argument: threads must be at least 0, got -1");
}

TEST(CReceipts, DeclareAndFilter) {
  CKernelSet set;
  ASSERT_TRUE(ok(tsr_kernel_set_create("mine", "avx2", &set)));
  ASSERT_TRUE(ok(tsr_kernel_set_receipt(set, "801")));
  EXPECT_EQ(kernels_of(set).size(), 2);
  EXPECT_THAT(failure(tsr_kernel_set_receipt(set, "flsh")),
              HasSubstr("not_found: unknown receipt 'flsh', did you mean 'flash'?"));
  CRegistry registry;
  ASSERT_TRUE(ok(tsr_registry_create("mine", nullptr, &registry)));
  ASSERT_TRUE(ok(tsr_registry_declare(registry, set)));
  CText names;
  ASSERT_TRUE(ok(tsr_registry_receipts(registry, &names)));
  EXPECT_EQ(parsed(names)["receipts"], (nlohmann::json{"fp32_all", "fp32_min", "fp32"}));
  CRegistry filtered;
  ASSERT_TRUE(ok(tsr_registry_filter_receipt(registry, "pytorch", &filtered)));
  CText list;
  ASSERT_TRUE(ok(tsr_registry_list(filtered, &list)));
  EXPECT_TRUE(parsed(list)["kernels"].empty());
}

}  // namespace
}  // namespace tessera
