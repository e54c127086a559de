// What learned models see of convolutions: finite, the same in any company, and described.
#include "tessera/families/conv/features_internal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "host/conv/conv_problems.h"
#include "host/tile/feature_checks.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

// It has many kernels.
constexpr const char* kLayer =
    "conv direction=forward n=32 c=64 k=64 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16";

// Feature of the general kernel.
double value_of(std::string_view name, const std::string& line, const std::string& target_name) {
  const Problem problem = parse_problem(line);
  const Target target = load_target(target_name);
  const std::vector<KernelSpec> specs = {general(problem, target)};
  return extract_all(problem, target, 1, specs)[place_of(name, family())];
}

ConvProblem any_problem(RandomConvs& random) {
  static constexpr DType kTypes[] = {DType::fp32, DType::bf16, DType::fp16};
  ConvProblem p = random.problem();
  p.direction = kDirections[random.integer(0, 2)];
  p.in = p.weight = p.out = p.d = kTypes[random.integer(0, 2)];
  if (random.coin()) {
    const std::int64_t c = random.integer(1, 16), k = random.integer(1, 16);
    p.in_strides = p.weight_strides = p.out_strides = kPackedStrides;
    p.c *= 8 * c, p.k *= 8 * k;
    p.n = random.integer(0, 300);
  }
  if (p.direction == ConvDirection::forward && random.coin()) {
    p.epilogue = parse_epilogue("bias+add+gelu");
  }
  if (random.integer(0, 3) == 0) p.beta = 1;
  random.share_places(p);
  validate(p);
  return p;
}

TEST(ConvFeatures, NamesAreUniqueAndExplained) { expect_unique_names(family()); }

TEST(ConvFeatures, ProblemAndMachineComeFirst) { expect_shared_first(family()); }

// The flag `is_other_pipeline` stands for one pipeline.
TEST(ConvFeatures, EveryDescribedPipelineHasAFlag) {
  std::set<Pipeline> others;
  for (const Way* way : Types::ways()) {
    if (way->backend == "hip") continue;  // no model was learned there
    KernelSpec spec;
    spec.algorithm.pipeline = way->pipeline;
    const auto flags = pipelines_with_flags();
    const bool has_flag = std::ranges::find(flags, way->pipeline) != flags.end();
    if (is_described(spec) && !has_flag) others.insert(way->pipeline);
  }
  EXPECT_EQ(others, std::set{Pipeline::grouped});
}

TEST(ConvFeatures, RoomOfTheWrongSize) {
  expect_room_is_checked(small_problem(ConvDirection::forward, ConvLayout::nhwgc),
                         load_target("sm90a"));
}

TEST(ConvFeatures, BatchEqualsSingle) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomConvs random(seed);
  int count = 0;
  const auto draw = [&] {
    return count++ % 40 == 0 ? parse_problem(kLayer) : Problem(any_problem(random));
  };
  EXPECT_GT(expect_whole_columns(random, draw, 40, 5), 50U);
}

TEST(ConvFeatures, HugeProblemsStayFinite) {
  expect_finite({
      "conv direction=forward n=2147483647 c=1 k=1 h=32768 w=32768",
      "conv direction=backward_weight n=1 c=2147483647 k=1073741824 w=1",
      "conv direction=backward_data n=1 c=1 k=1 h=2147483647 w=536870911 y=2147483647 "
      "x=536870911",
      "conv direction=forward ndim=1 n=1 c=1 k=1 w=2147483647 x=1073741824 "
      "stride_w=2147483647 "
      "pad_w=1073741823",
      "conv direction=forward ndim=1 n=1 c=1 k=1 w=2147483647 x=2 dilation_w=2147483646",
      "conv direction=forward n=0 c=1 k=1 w=1",
  });
}

TEST(ConvFeatures, OnlyWhatIsWantedIsWritten) {
  RandomConvs random(7);
  expect_only_wanted(random, [&] { return any_problem(random); });
}

TEST(ConvFeatures, EstimatesAreTheFamilys) {
  RandomConvs random(8);
  expect_estimates([&] { return any_problem(random); });
}

TEST(ConvFeatures, OfAStridedGroupedLayer) {
  const std::string line =
      "conv direction=forward n=2 c=96 k=48 g=4 h=15 w=20 y=3 x=5 stride_h=2 dilation_w=2 pad_h=1 "
      "pad_w=4 dtype=bf16";
  const std::pair<std::string_view, double> expected[] = {
      {"c_group", 24},      {"k_group", 12},   {"out_h", 8},
      {"out_w", 20},        {"taps", 15},      {"extent_w", 9},
      {"c_align", 3},       {"k_align", 2},    {"small_group", 1},
      {"is_depthwise", 0},  {"is_strided", 1}, {"is_dilated", 1},
      {"residues", 2},      {"rows", 320},     {"columns", 12},
      {"depth", 360},       {"k_over_c", 0.5}, {"group_density", 1.0 / 24},
      {"images_groups", 8}, {"tiles_m", 5},    {"tiles_n", 1},
      {"total_tiles", 20},  {"tiles_k", 23},   {"tile_eff_n", 12.0 / 64},
      {"slabs", 2},         {"halo", 1.125},   {"slab_efficiency", 0.75},
      {"is_direct", 1},     {"is_tmaws", 0},   {"unit_utilisation", 20.0 / 132},
  };
  for (const auto& [name, value] : expected) {
    EXPECT_DOUBLE_EQ(value_of(name, line, "sm90a"), value) << name;
  }
}

// Whatever the direction, tiles of depthwise kernels hold pixels of channels of all groups.
TEST(ConvFeatures, DepthwiseKernelsCountPixelsAndChannels) {
  const Algorithm a = {.pipeline = Pipeline::depthwise,
                       .tile = {64, 16, 2},
                       .wave = {4, 1, 1},
                       .warp_tile = {2, 4, 3}};
  const Target target = load_target("sm90a");
  const std::string line =
      " n=2 c=40 k=40 g=40 h=12 w=10 y=3 x=3 stride_h=2 stride_w=2 pad_h=1 pad_w=1";
  for (const auto& [direction, pixels] :
       {std::pair{"forward", 60.0}, {"backward_data", 240.0}, {"backward_weight", 60.0}}) {
    const std::string text = std::string("conv direction=") + direction + line;
    const ProblemFacts f = problem_facts(conv_of(parse_problem(text)), target, 0);
    const KernelFacts x = kernel_facts(f, a);
    EXPECT_EQ(x.rows, pixels) << direction;
    EXPECT_EQ(x.columns, 40) << direction;
    EXPECT_EQ(x.tiles, std::ceil(pixels / 64) * 3) << direction;
    EXPECT_EQ(x.tiles_k, 1) << direction;
    EXPECT_EQ(x.threads, 128) << direction;
  }
}

// A filter of 1 x 1 x 3 is no 1 x 1 filter, and stride, padding and dilation along d count.
TEST(ConvFeatures, DepthCounts) {
  const std::string line =
      "conv direction=forward ndim=3 n=1 c=8 k=8 d=9 h=4 w=4 z=3 stride_d=2 dilation_d=2 pad_d=1";
  EXPECT_EQ(value_of("is_1x1", line, "avx512"), 0);
  EXPECT_EQ(value_of("stride_d", line, "avx512"), 2);
  EXPECT_EQ(value_of("dilation_d", line, "avx512"), 2);
  EXPECT_EQ(value_of("is_strided", line, "avx512"), 1);
  EXPECT_EQ(value_of("out_d", line, "avx512"), 4);
}

TEST(ConvFeatures, NoFeatureDescribesGaps) {
  const std::string line = "conv direction=forward n=2 c=8 k=16 g=2 h=5 w=1 y=3";
  const auto reason = [&](const std::string& more) {
    return features_fit(parse_problem(line + more)).reason;
  };
  EXPECT_EQ(reason(""), "");
  EXPECT_EQ(reason(" in_stride_n=40 in_stride_h=8 out_stride_n=48 out_stride_g=8"), "");
  EXPECT_EQ(reason(" in_stride_w=99 in_stride_h=8 in_stride_n=40"), "");  // a line of one pixel
  EXPECT_EQ(reason(" in_stride_n=41"), "no feature describes gaps between elements of x");
  EXPECT_EQ(reason(" weight_stride_k=13"), "no feature describes gaps between elements of w");
  EXPECT_EQ(reason(" out_stride_h=17"), "no feature describes gaps between elements of y");
}

}  // namespace
}  // namespace tessera::conv
