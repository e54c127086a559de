// The general convolution for AMD GPUs without running it: rules, launches, estimates.
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/device/hip/conv/direct_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

TEST(DirectOnHip, SaysWhichRuleIsBroken) {
  const std::pair<const char*, const char*> rows[] = {
      {"conv_forward_fp32_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1_gfx90a", ""},
      {"conv_backwardweight_tf32_nchw_3d_direct_64x1x1_1x1x16_1x1x1_gfx950", ""},
      {"conv_forward_fp32_nhwgc_2d_direct_64x1x1_1x1x8_1x1x1_gfx942",
       "direct has tile 64x1x1, wave 1x1x4 or 1x1x16 and warp tile 1x1x1, got 64x1x1, 1x1x8 and "
       "1x1x1"},
      {"conv_forward_fp16_nhwgc_2d_direct_64x64x16_2x2x1_4x8x1_gfx942",
       "direct has tile 64x1x1, wave 1x1x4 or 1x1x16 and warp tile 1x1x1, got 64x64x16, 2x2x1 and "
       "4x8x1"},
      {"conv_forward_fp8_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1_gfx942", ""},
      {"conv_forward_fp8_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1_gfx90a", "gfx90a has no fp8"},
      {"conv_forward_bf8_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1_gfx90a", "gfx90a has no bf8"}};
  for (const auto& [name, reason] : rows) {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, reason) << name;
  }
}

TEST(DirectOnHip, GeneralServesEverySignature) {
  const Target target = load_target("gfx942");
  for (const char* line :
       {"conv direction=forward n=1 c=3 k=5 w=7 dtype=fp8,bf8 epilogue=bias+silu out=fp32",
        "conv direction=forward n=1 c=3 k=5 w=7 dtype=int8 alpha=2",
        "conv direction=backward_data ndim=3 n=1 c=4 k=4 d=5 h=5 w=5 z=3 y=3 x=3 stride_d=3",
        "conv direction=backward_weight n=1 c=3 k=3 g=3 h=9 w=9 y=3 x=3 layout=nchw beta=2"}) {
    const Problem problem = parse_problem(line);
    const KernelSpec spec = family().general(problem, target);
    EXPECT_EQ(family().is_legal(spec, target).reason, "") << line;
    EXPECT_EQ(family().supports(spec, problem, target).reason, "") << line;
    const Source source = family().emit(spec, target);
    EXPECT_EQ(source.name, name_of(spec));
    EXPECT_NE(source.text.find("void " + name_of(spec) + "(HipDirectConvArguments"),
              std::string::npos);
  }
}

device::HipDirectConvArguments arguments_of(const Launch& launch) {
  device::HipDirectConvArguments g{};
  EXPECT_EQ(launch.arguments.size(), sizeof g);
  std::memcpy(&g, launch.arguments.data(), sizeof g);
  return g;
}

TEST(DirectOnHip, AWorkgroupHas64Results) {
  const Problem problem = parse_problem(
      "conv direction=backward_data n=3 c=8 k=6 g=2 h=9 w=7 y=3 x=2 stride_h=2 pad_w=1 beta=1");
  const Target target = load_target("gfx942");
  ConvOperands o;
  std::byte memory[8] = {};
  o.weight = memory, o.grad_out = memory + 1, o.c = memory + 2, o.grad_in = memory + 3;
  const Launch launch = conv::family().bind(family().general(problem, target), problem, target, o);
  const device::HipDirectConvArguments g = arguments_of(launch);
  EXPECT_EQ(g.conv.out, memory + 3);
  EXPECT_EQ(g.blocks, (3 * 8 * 9 * 7 + 63) / 64);
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].grid, (std::array<unsigned, 3>{static_cast<unsigned>(g.blocks), 1, 1}));
  EXPECT_EQ(launch.steps[0].block, (std::array<unsigned, 3>{256, 1, 1}));
}

// AMD counts the lanes of a grid in 32 bits; workgroups take several runs of results then.
TEST(DirectOnHip, MoreResultsThanAGridHasLanes) {
  const Target target = load_target("gfx90a");
  const Problem problem = parse_problem("conv direction=forward n=2000000000 c=8 k=64 w=5");
  const Launch launch =
      conv::family().bind(family().general(problem, target), problem, target, ConvOperands{});
  EXPECT_EQ(arguments_of(launch).blocks, ((std::int64_t{1} << 32) - 1) / 256);
}

double seconds(const char* wave, const char* line) {
  const Problem problem = parse_problem(line);
  const Target target = load_target("gfx942");
  KernelSpec spec = family().general(problem, target);
  spec.algorithm.wave.k = std::string(wave) == "few" ? 4 : 16;
  return estimate(spec, problem, target, 0).seconds;
}

// A gradient by filters has few results and many products of each.
TEST(DirectOnHip, ManyWavesForFewLongSums) {
  constexpr const char* kFewSums =
      "conv direction=backward_weight n=32 c=3 k=64 h=224 w=224 y=7 x=7 stride_h=2 stride_w=2 "
      "pad_h=3 pad_w=3 dtype=fp16";
  EXPECT_LT(2 * seconds("many", kFewSums), seconds("few", kFewSums));
  constexpr const char* kManySums =
      "conv direction=forward n=32 c=3 k=64 h=224 w=224 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 "
      "pad_w=3 dtype=fp16";
  EXPECT_LT(seconds("few", kManySums), seconds("many", kManySums));
}

}  // namespace
}  // namespace tessera::conv
