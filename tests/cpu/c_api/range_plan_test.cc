// Plans over a range through the C ABI.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "c_handles.h"
#include "tessera/base/files.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing_support::CDispatcher;
using testing_support::CPlan;
using testing_support::CText;
using testing_support::failure;
using testing_support::Handle;
using testing_support::ok;
using testing_support::parsed;
using CRangePlan = Handle<tsr_range_plan_t, tsr_range_plan_destroy>;

constexpr int kMostRows = 20;
constexpr int kWidth = 7;
constexpr int kLength = 3;

struct CRangePlanTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-c-range-");
  std::uint32_t seed = std::random_device{}();
  std::string cache = (folder / "cache").string();
  tsr_build_options_t build = TSR_INIT(tsr_build_options_t);
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  CDispatcher dispatcher;
  CRangePlan plan;
  std::vector<float> a = std::vector<float>(kMostRows * kLength);
  std::vector<float> b = std::vector<float>(kWidth * kLength);
  std::vector<float> out = std::vector<float>(kMostRows * kWidth, -7.0F);

  CRangePlanTest() {
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
  ~CRangePlanTest() override { remove_tree(folder); }

  void make(const char* line = "gemm m=1..20 n=7 k=3") {
    ASSERT_TRUE(ok(tsr_dispatcher_create(&options, &dispatcher)));
    ASSERT_TRUE(ok(tsr_range_plan(dispatcher, line, nullptr, &plan)));
  }
  void expect_product(int rows) const {
    for (int m = 0; m < kMostRows; ++m) {
      for (int n = 0; n < kWidth; ++n) {
        float sum = 0;
        for (int k = 0; k < kLength; ++k) sum += a[m * kLength + k] * b[n * kLength + k];
        const float wanted = m < rows ? sum : -7.0F;
        EXPECT_EQ(out[m * kWidth + n], wanted) << m << ", " << n << ", seed " << seed;
      }
    }
  }
};

TEST_F(CRangePlanTest, LaunchesAtAnyValueByPositionAndByName) {
  make();
  const void* const by_position[] = {a.data(), b.data(), out.data()};
  const tsr_operand_t by_name[] = {{"out", out.data()}, {"b", b.data()}, {"a", a.data()}};
  for (const int rows : {1, 5, 19, 20}) {
    std::fill(out.begin(), out.end(), -7.0F);
    ASSERT_TRUE(ok(tsr_range_launch(plan, rows, by_position, 3, nullptr)));
    expect_product(rows);
    std::fill(out.begin(), out.end(), -7.0F);
    ASSERT_TRUE(ok(tsr_range_launch_named(plan, rows, by_name, 3, nullptr)));
    expect_product(rows);
  }
}

TEST_F(CRangePlanTest, VerifiesALaunch) {
  make();
  const void* const operands[] = {a.data(), b.data(), out.data()};
  tsr_launch_options_t with = TSR_INIT(tsr_launch_options_t);
  with.verify = 1;
  ASSERT_TRUE(ok(tsr_range_launch(plan, 11, operands, 3, &with)));
  expect_product(11);
}

TEST_F(CRangePlanTest, TellsItsTableAndItsWorkspace) {
  make();
  CText json;
  ASSERT_TRUE(ok(tsr_range_plan_json(plan, &json)));
  const nlohmann::json told = parsed(json);
  EXPECT_EQ(told["problem"], "gemm m=1..20 n=7 k=3");
  EXPECT_EQ(told["field"], "m");
  EXPECT_EQ(told["first"], 1);
  EXPECT_EQ(told["last"], 20);
  EXPECT_EQ(told["parts"].front()["first"], 1);
  EXPECT_EQ(told["parts"].back()["last"], 20);
  size_t bytes = 0;
  ASSERT_TRUE(ok(tsr_range_workspace_bytes(plan, &bytes)));
  EXPECT_EQ(told["workspace_bytes"], bytes);
}

// The plan of a value outlives the plan over the range.
TEST_F(CRangePlanTest, GivesThePlanOfAValue) {
  make();
  CPlan one;
  ASSERT_TRUE(ok(tsr_range_plan_at(plan, 6, &one)));
  tsr_range_plan_destroy(std::exchange(plan.it, nullptr));
  const void* const operands[] = {a.data(), b.data(), out.data()};
  ASSERT_TRUE(ok(tsr_launch(one, operands, 3, nullptr)));
  expect_product(6);
  CText json;
  ASSERT_TRUE(ok(tsr_plan_json(one, &json)));
  EXPECT_EQ(parsed(json)["problem"], "gemm m=6 n=7 k=3");
}

TEST_F(CRangePlanTest, RefusesWithASentence) {
  make();
  const void* const operands[] = {a.data(), b.data(), out.data()};
  const void* const lacking[] = {a.data(), nullptr, out.data()};
  EXPECT_EQ(failure(tsr_range_launch(plan, 21, operands, 3, nullptr)),
            "invalid_argument: range: m must be from 1 to 20, got 21");
  EXPECT_EQ(failure(tsr_range_launch(plan, 0, operands, 3, nullptr)),
            "invalid_argument: range: m must be from 1 to 20, got 0");
  EXPECT_THAT(failure(tsr_range_launch(plan, 2, operands, 2, nullptr)),
              HasSubstr("has 3 operands, got 2"));
  EXPECT_THAT(failure(tsr_range_launch(plan, 2, lacking, 3, nullptr)),
              HasSubstr("must not be null"));
  CPlan one;
  EXPECT_EQ(failure(tsr_range_plan_at(plan, 21, &one)),
            "invalid_argument: range: m must be from 1 to 20, got 21");
  EXPECT_THAT(failure(tsr_range_launch(nullptr, 2, operands, 3, nullptr)),
              HasSubstr("must not be NULL"));
  CRangePlan other;
  EXPECT_THAT(failure(tsr_range_plan(dispatcher, "gemm m=4 n=7 k=3", nullptr, &other)),
              HasSubstr("the line must give one field a range"));
  EXPECT_THAT(failure(tsr_range_plan(dispatcher, "gemm m=1.. n=7 k=3", nullptr, &other)),
              HasSubstr("has no end"));
  EXPECT_THAT(failure(tsr_range_plan(dispatcher, nullptr, nullptr, &other)),
              HasSubstr("must not be NULL"));
}

}  // namespace
}  // namespace tessera
