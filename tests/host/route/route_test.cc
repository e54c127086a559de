// Routers without running any: validity, operands, kernels, launches, estimates.
#include "tessera/families/route/route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "host/families/asked.h"
#include "tessera/device/route.h"
#include "tessera/families/operands.h"
#include "tessera/targets/targets.h"

namespace tessera::route {
namespace {

// ---- problems ----

struct BadProblem {
  const char* line;
  const char* sentence;
};
constexpr BadProblem kBadProblems[] = {
    {"route tokens=-1 experts=8 top_k=2", "route: tokens must be at least 0, got -1"},
    {"route tokens=1 experts=0 top_k=1", "route: experts must be between 1 and 1024, got 0"},
    {"route tokens=1 experts=1025 top_k=1", "route: experts must be between 1 and 1024, got 1025"},
    {"route tokens=1 experts=8 top_k=0",
     "route: top_k must be between 1 and the number of experts, 8, got 0"},
    {"route tokens=1 experts=8 top_k=0 scoring=given order=1",
     "route: top_k must be at least 1, got 0"},
    {"route tokens=1 experts=8 top_k=9",
     "route: top_k must be between 1 and the number of experts, 8, got 9"},
    {"route tokens=1073741824 experts=8 top_k=2",
     "route: tokens times top_k must be at most 2147483647, got 1073741824 times 2"},
    {"route tokens=1 experts=8 top_k=2 dtype=fp8", "route: in must be fp32, fp16 or bf16, got fp8"},
    {"route tokens=1 experts=8 top_k=2 num_groups=3",
     "route: num_groups must divide the number of experts, 8, got 3"},
    {"route tokens=1 experts=8 top_k=2 num_groups=0",
     "route: num_groups must divide the number of experts, 8, got 0"},
    {"route tokens=1 experts=8 top_k=2 num_groups=4 top_groups=5",
     "route: top_groups must be between 1 and num_groups, 4, got 5"},
    {"route tokens=1 experts=8 top_k=3 num_groups=4",
     "route: top_k must be at most 2, the experts of 1 group, got 3"},
    {"route tokens=1 experts=8 top_k=5 num_groups=4 top_groups=2",
     "route: top_k must be at most 4, the experts of 2 groups, got 5"},
    {"route tokens=1 experts=8 top_k=2 scaling_factor=inf",
     "route: scaling_factor must be finite, got inf"},
    {"route tokens=1 experts=8 top_k=2 ld_logits=7",
     "route: ld_logits must be at least 8 (experts), got 7"},
    {"route tokens=3 experts=8 top_k=2 ld_logits=4611686018427387904",
     "route: the last byte of logits must be below 2^63, got 3 rows 4611686018427387904 apart"},
    {"route tokens=1 experts=8 top_k=2 scoring=given",
     "route: order must be 1 with scoring=given, which computes nothing else, got 0"},
    {"route tokens=1 experts=8 top_k=2 scoring=given order=1 bias=1",
     "route: bias must be 0 with scoring=given, which has no scores, got 1"},
    {"route tokens=1 experts=8 top_k=2 scoring=given order=1 dtype=bf16",
     "route: in must be fp32 with scoring=given, which has no logits, got bf16"},
    {"route tokens=1 experts=8 top_k=2 scoring=given order=1 renormalize=0",
     "route: num_groups, top_groups, ld_logits, scaling_factor and renormalize must be left out "
     "with scoring=given, got 'route tokens=1 experts=8 top_k=2 scoring=given renormalize=0 "
     "order=1'"},
};

TEST(RouteValidate, SaysWhatIsWrong) {
  for (const BadProblem& row : kBadProblems) {
    EXPECT_EQ(refusal(parse_problem(row.line)), row.sentence) << row.line;
  }
  RouteProblem damaged{.tokens = 1, .experts = 1, .top_k = 1};
  damaged.scoring = static_cast<RouteScoring>(9);
  EXPECT_EQ(refusal(damaged), "route: scoring must be a number from 0 to 2, got 9");
}

TEST(RouteValidate, AcceptsWhatIsAllowed) {
  for (const char* line :
       {"route tokens=0 experts=1 top_k=1", "route tokens=3 experts=1024 top_k=1024 order=1",
        "route tokens=3 experts=256 top_k=8 scoring=sigmoid bias=1 num_groups=8 top_groups=4 "
        "scaling_factor=-2.5 renormalize=0 ld_logits=300 dtype=fp16",
        "route tokens=2147483647 experts=2 top_k=1 scoring=given order=1",
        "route tokens=3 experts=2 top_k=7 scoring=given order=1"}) {
    EXPECT_EQ(refusal(parse_problem(line)), "") << line;
  }
}

TEST(RouteWords, ForeignRowsAreReadByTheirKeys) {
  const ProblemWords words = {
      {"tokens", "7"}, {"experts", "9"}, {"top_k", "2"}, {"dtype", "bf16"}, {"m", "3"}};
  EXPECT_EQ(family().from_words(words),
            parse_problem("route tokens=7 experts=9 top_k=2 dtype=bf16"));
  EXPECT_EQ(error_of([] { parse_problem("route tokens=7 experts=9"); }, ErrorCode::parse_error),
            "problem: route needs top_k, as in 'route tokens=512 experts=128 top_k=8 dtype=bf16'");
  EXPECT_EQ(error_of([] { parse_problem("route tokens=7 experts=9 top_k=1 dtype=bf16,fp32"); },
                     ErrorCode::parse_error),
            "problem: dtype takes at most 1 dtype, got 2");
}

TEST(RouteSets, SidesShareNoShapeAndAreValid) {
  using Shape = std::array<std::int64_t, 3>;
  std::set<Shape> learned;
  for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
    const auto problems =
        family().draw("layers", side, load_target("sm90a"), {.dtype = "bf16", .layout = ""});
    EXPECT_EQ(problems.size(), side == ProblemSide::learned ? 180U : 60U);
    for (const Problem& problem : problems) {
      const auto& p = std::get<RouteProblem>(problem);
      EXPECT_EQ(refusal(problem), "");
      EXPECT_EQ(p.in, DType::bf16);
      const Shape shape = {p.tokens, p.experts, p.top_k};
      if (side == ProblemSide::learned) learned.insert(shape);
      EXPECT_EQ(learned.contains(shape), side == ProblemSide::learned);
    }
  }
}

// ---- operands ----

TEST(RouteOperands, AreWhatTheProblemNeeds) {
  const auto names = [](const char* line) {
    std::string all;
    for (const Tensor& tensor : family().tensors(parse_problem(line))) {
      all += std::string(tensor.is_written() ? ">" : "<") + std::string(tensor.name) + " ";
    }
    return all;
  };
  EXPECT_EQ(names("route tokens=3 experts=8 top_k=2"), "<logits >ids >weights ");
  EXPECT_EQ(names("route tokens=3 experts=8 top_k=2 bias=1 order=1"),
            "<logits <bias >ids >weights >group_ends >row_index >slots ");
  EXPECT_EQ(names("route tokens=3 experts=8 top_k=2 scoring=given order=1"),
            "<ids >group_ends >row_index >slots ");
}

TEST(RouteOperands, EndsAreWrittenWithoutTokens) {
  tessera::RouteOperands operands;
  const Problem problem = parse_problem("route tokens=0 experts=8 top_k=2 order=1");
  EXPECT_EQ(error_of([&] { validate_operands(family(), problem, operands); },
                     ErrorCode::invalid_argument),
            "route: group_ends must not be null: 1 rows of 8 elements are needed");
  alignas(16) std::int32_t ends[8];
  operands.group_ends = ends;
  validate_operands(family(), problem, operands);
}

// ---- kernels ----

struct Rejected {
  const char* name;
  const char* reason;
};
constexpr Rejected kRejected[] = {
    {"route_fp32_softmax_direct_1x1024x1_0x1x1_1x1x1_avx2", "avx2 has no pipeline direct"},
    {"route_fp8_softmax_rows_1x1024x1_0x1x1_1x1x1_avx2", "in must be fp32, fp16 or bf16, got fp8"},
    {"route_fp32_given_rows_1x1024x1_0x1x1_1x1x1_avx2",
     "order must be 1 with scoring=given, which computes nothing else, got 0"},
    {"route_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_s3_avx2", "stages must be 1 with rows, got 3"},
    {"route_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_slices2_avx2",
     "slices must be 1 and cluster 1x1, got 2 and 1x1"},
    {"route_fp32_softmax_rows_1x1024x1_0x1x1_2x1x1_avx2", "warp tile must be 1x1x1, got 2x1x1"},
    {"route_fp32_softmax_rows_1x1024x1_2x1x1_1x1x1_avx2", "wave must be 1x1x1 or 0x1x1, got 2x1x1"},
    {"route_fp32_softmax_rows_1x512x1_0x1x1_1x1x1_avx2", "tile must be 1x1024x1, got 1x512x1"},
    {"route_fp32_softmax_rows_16x128x1_16x1x1_1x1x1_c1x2_sm90a",
     "slices must be 1 and cluster 1x1, got 1 and 1x2"},
    {"route_fp32_softmax_rows_33x128x1_33x1x1_1x1x1_sm90a",
     "wave must be m x 1 x 1 warps of 32 threads, at most 1024 in all, got 33x1x1"},
    {"route_fp32_softmax_rows_17x128x1_17x1x1_1x1x1_gfx942",
     "wave must be m x 1 x 1 warps of 64 threads, at most 1024 in all, got 17x1x1"},
    {"route_fp32_softmax_rows_8x128x1_16x1x1_1x1x1_sm90a",
     "tile must be 16 x n x 1, n a power of two from 64 to 1024, got 8x128x1"},
    {"route_fp32_softmax_rows_16x100x1_16x1x1_1x1x1_sm90a",
     "tile must be 16 x n x 1, n a power of two from 64 to 1024, got 16x100x1"},
    {"route_fp32_softmax_rows_16x1024x1_16x1x1_1x1x1_sm90a",
     "needs 73800 bytes of shared memory, a block has 49152"},
};

TEST(RouteLegality, SaysWhichRuleIsBroken) {
  for (const Rejected& row : kRejected) {
    const KernelSpec spec = parse_name(row.name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, row.reason) << row.name;
  }
  expect_strangers_refused(family(), "route_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_avx2");
}

TEST(RouteSupports, SaysWhatDiffers) {
  const Target target = load_target("sm90a");
  const KernelSpec spec = parse_name("route_bf16_softmax_rows_16x128x1_16x1x1_1x1x1_order_sm90a");
  const auto reason = [&](const char* line) {
    return family().supports(spec, parse_problem(line), target).reason;
  };
  EXPECT_EQ(reason("route tokens=3 experts=128 top_k=2 dtype=bf16 order=1"), "");
  EXPECT_EQ(reason("route tokens=3 experts=129 top_k=2 dtype=bf16 order=1"),
            "experts must be at most 128, which a warp holds, got 129");
  EXPECT_EQ(reason("route tokens=3 experts=128 top_k=2 dtype=bf16"),
            "the kernel has order=1, the problem order=0");
  EXPECT_EQ(reason("route tokens=3 experts=128 top_k=2 scoring=sigmoid dtype=bf16 order=1"),
            "the kernel has scoring=softmax, the problem scoring=sigmoid");
}

class RouteOn : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, RouteOn,
                         testing::Values("avx512", "avx2", "generic", "sm90a", "gfx90a", "gfx942",
                                         "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(RouteOn, ListedKernelsAreLegalAndSorted) {
  const std::vector<KernelSpec> specs = family().enumerate(target_, {});
  EXPECT_EQ(specs.size(), 19U * (is_gpu(target_) ? 7U : 2U));
  std::string last;
  for (const KernelSpec& spec : specs) {
    EXPECT_LT(last, name_of(spec));
    last = name_of(spec);
    EXPECT_EQ(parse_name(last), spec);
    EXPECT_EQ(family().is_legal(spec, target_).reason, "") << last;
  }
}

TEST_P(RouteOn, EssentialKernelsAreLegalAndOfTheirSet) {
  if (target_.name == "gfx1100" || target_.name == "gfx1201") GTEST_SKIP() << "it has no set";
  std::size_t found = 0;
  for (const std::string& set : family().preselected_names()) {
    for (const KernelSpec& spec : family().preselected(set, target_)) {
      const auto& s = std::get<RouteSignature>(spec.signature);
      EXPECT_EQ(set, std::string(to_string(s.in)) + "_" + std::string(to_string(s.scoring)) +
                         "_essential");
      EXPECT_TRUE(family().is_essential(spec, target_));
      ++found;
    }
  }
  EXPECT_EQ(found, is_gpu(target_) ? 15U : 9U);
}

TEST_P(RouteOn, GeneralServesEveryProblem) {
  for (const char* line :
       {"route tokens=1 experts=1 top_k=1 dtype=fp16", "route tokens=0 experts=7 top_k=3 order=1",
        "route tokens=99999 experts=1024 top_k=1024 scoring=sigmoid bias=1 ld_logits=2000",
        "route tokens=9 experts=1000 top_k=6 num_groups=10 top_groups=2 order=1 dtype=bf16",
        "route tokens=9 experts=1024 top_k=3 scoring=given order=1"}) {
    const Problem problem = parse_problem(line);
    const KernelSpec spec = family().general(problem, target_);
    EXPECT_EQ(family().is_legal(spec, target_).reason, "") << line;
    EXPECT_EQ(family().supports(spec, problem, target_).reason, "") << line;
    for (const KernelSpec& one : serving(problem, target_)) {
      const Estimate e = family().estimate(one, problem, target_, 0);
      EXPECT_TRUE(std::isfinite(e.seconds) && e.seconds > 0) << name_of(one);
    }
  }
}

TEST_P(RouteOn, SamplesAreValidAndServed) {
  for (const KernelSpec& spec : family().enumerate(target_, {})) {
    for (const Problem& problem : family().samples(spec, target_)) {
      EXPECT_EQ(refusal(problem), "") << to_string(problem);
      EXPECT_EQ(family().supports(spec, problem, target_).reason, "") << to_string(problem);
    }
  }
}

// ---- launches ----

Launch launch_of(const char* name, const char* line) {
  const KernelSpec spec = parse_name(name);
  return family().bind(spec, parse_problem(line), load_target(spec.target),
                       tessera::RouteOperands{});
}
device::RouteArguments arguments_of(const Launch& launch) {
  device::RouteArguments g;
  EXPECT_EQ(launch.arguments.size(), sizeof(g));
  std::memcpy(&g, launch.arguments.data(), sizeof(g));
  return g;
}

TEST(RouteBind, FewTokensTakeOneBlock) {
  const char* const kName = "route_bf16_softmax_rows_16x128x1_16x1x1_1x1x1_order_sm90a";
  const Launch launch = launch_of(kName, "route tokens=64 experts=128 top_k=8 dtype=bf16 order=1");
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].entry, 2);
  EXPECT_EQ(launch.steps[0].grid, (std::array<unsigned, 3>{1, 1, 1}));
  EXPECT_EQ(launch.steps[0].block, (std::array<unsigned, 3>{512, 1, 1}));
  EXPECT_EQ(arguments_of(launch).block_slots, 512);
  EXPECT_EQ(launch.workspace.bytes, 0U);
}

TEST(RouteBind, ManyTokensTakeTwoSteps) {
  const char* const kName = "route_bf16_softmax_rows_16x128x1_16x1x1_1x1x1_order_sm90a";
  const Launch launch =
      launch_of(kName, "route tokens=16384 experts=128 top_k=8 dtype=bf16 order=1");
  ASSERT_EQ(launch.steps.size(), 2U);
  EXPECT_EQ(launch.steps[0].entry, 0);
  EXPECT_EQ(launch.steps[0].grid[0], 1024U);
  EXPECT_EQ(launch.steps[1].entry, 1);
  EXPECT_EQ(launch.steps[1].grid[0], 64U);
  EXPECT_EQ(arguments_of(launch).block_slots, 2048);
  EXPECT_EQ(arguments_of(launch).blocks, 1024);
}

// Every slot has a block and a warp, and no block is without end.
TEST(RouteBind, BlocksHaveAllSlots) {
  const char* const kName = "route_fp32_given_rows_8x1024x1_8x1x1_1x1x1_order_gfx942";
  for (const std::int64_t tokens : {0, 1, 300, 4096, 100001, 40000000}) {
    RouteProblem p = {.scoring = RouteScoring::given, .tokens = tokens, .experts = 999};
    p.top_k = 3, p.order = true;
    const KernelSpec spec = parse_name(kName);
    const Launch launch =
        family().bind(spec, p, load_target(spec.target), tessera::RouteOperands{});
    ASSERT_EQ(launch.steps.size(), 1U);
    const std::int64_t each = arguments_of(launch).block_slots;
    EXPECT_EQ(each % 512, 0);
    EXPECT_GE(each * launch.steps[0].grid[0], tokens * 3);
    EXPECT_LE(launch.steps[0].grid[0], 64U);
  }
}

TEST(RouteBind, NothingToChoose) {
  const Launch none = launch_of("route_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_avx2",
                                "route tokens=0 experts=9 "
                                "top_k=2");
  EXPECT_TRUE(none.steps.empty());
  for (const char* name : {"route_fp32_softmax_rows_1x1024x1_1x1x1_1x1x1_order_avx2",
                           "route_fp32_softmax_rows_16x128x1_16x1x1_1x1x1_order_sm90a"}) {
    const Launch ends = launch_of(name, "route tokens=0 experts=9 top_k=2 order=1");
    ASSERT_EQ(ends.steps.size(), 1U) << "group_ends are written";
    EXPECT_EQ(ends.steps[0].entry, 1);
  }
}

// ---- estimates ----

TEST(RouteEstimate, CountsBytes) {
  EXPECT_EQ(family().bytes(parse_problem("route tokens=10 experts=100 top_k=3 dtype=bf16 order=1 "
                                         "ld_logits=500")),
            10 * 100 * 2 + 10 * 3 * 16 + 100 * 4);
}

TEST(RouteEstimate, ChoosesTheSmallestTileThatHoldsTheExperts) {
  const Target target = load_target("sm90a");
  for (const auto& [experts, tile] :
       std::initializer_list<std::pair<int, int>>{{8, 128}, {128, 128}, {160, 256}, {1000, 1024}}) {
    for (const int tokens : {1, 300, 16384}) {
      const Problem problem =
          RouteProblem{.tokens = tokens, .experts = experts, .top_k = 8, .order = true};
      std::pair<double, int> best = {1, 0};
      for (const KernelSpec& spec : serving(problem, target)) {
        best = std::min(
            best, {family().estimate(spec, problem, target, 0).seconds, spec.algorithm.tile.n});
      }
      EXPECT_EQ(best.second, tile) << experts << " experts, " << tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace tessera::route
