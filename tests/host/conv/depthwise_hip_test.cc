// The depthwise kernels of AMD GPUs without running them: rules, problems, launches, choice.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/families/conv/conv.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

constexpr std::pair<const char*, const char*> kHipDepthwiseNames[] = {
    {"conv_forward_fp16_nhwgc_2d_depthwise_128x64x1_4x1x1_1x4x3_gfx942", ""},
    {"conv_backwardweight_fp32_nhwgc_3d_depthwise_128x32x2_4x1x1_4x4x5_gfx90a", ""},
    {"conv_forward_bf16_nhwgc_1d_depthwise_32x128x0_4x1x1_2x2x0_gfx950", ""},
    {"conv_forward_fp16_nchw_2d_depthwise_128x64x1_4x1x1_1x4x3_gfx942",
     "depthwise reads vectors of channels, which lie side by side in nhwgc only, got nchw"},
    {"conv_forward_fp8_nhwgc_2d_depthwise_128x64x1_4x1x1_1x4x3_gfx942",
     "depthwise takes fp32, fp16 and bf16, got in=fp8, weight=fp8 and out=fp16"},
    {"conv_forward_fp16_nhwgc_2d_depthwise_128x64x1_2x2x1_1x4x3_gfx942",
     "depthwise has 4 waves (4x1x1), got 2x2x1"},
    {"conv_backwardweight_fp16_nhwgc_2d_depthwise_128x64x1_4x1x1_1x4x3_splitordered1_slices4_"
     "gfx942",
     "depthwise takes its slices from the problem on AMD GPUs: slices=1 and split_k none, got "
     "slices=4 and ordered"},
    {"conv_forward_fp16_nhwgc_2d_depthwise_128x64x1_4x1x1_3x4x3_gfx942",
     "a lane has 1, 2 or 4 channels of y of each channel of x, 1, 2 or 4 columns and up to 7 taps "
     "of a line, got 3x4x3"},
    {"conv_forward_fp16_nhwgc_2d_depthwise_128x64x1_4x1x1_1x4x9_gfx942",
     "a lane has 1, 2 or 4 channels of y of each channel of x, 1, 2 or 4 columns and up to 7 taps "
     "of a line, got 1x4x9"},
    {"conv_backwarddata_fp16_nhwgc_2d_depthwise_128x64x2_4x1x1_1x4x3_gfx942",
     "tile_k is the places from a column to the next one, 1 or 2, of backward_data 1, and 0 for "
     "any filter, got 2 of backward_data with 3 taps"},
    {"conv_forward_fp16_nhwgc_2d_depthwise_64x64x1_4x1x1_1x4x3_gfx942",
     "tile_n is 8 channels of each of 8, 16 or 32 lanes, and tile_m 4 columns of each of the 32 "
     "lanes besides, got 64x64"},
};

TEST(DepthwiseOnHip, SaysWhichKernelsAreLegal) {
  for (const auto& [name, text] : kHipDepthwiseNames) {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, text) << name;
  }
}

constexpr std::pair<const char*, const char*> kHipDepthwiseProblems[] = {
    {"c=64 k=64 g=64 y=3 x=3", ""},
    {"c=2 k=2 g=2 y=1 x=2 stride_h=3 dilation_h=2", ""},
    {"c=64 k=64 g=32 y=3 x=3", "depthwise needs one channel of x in each group, got c=64 and g=32"},
    {"c=64 k=128 g=64 y=3 x=3",
     "this kernel makes 1 channels of y in each group, got k=128 and g=64"},
    {"c=63 k=63 g=63 y=3 x=3", "depthwise loads dwords: c must be a multiple of 2, got 63"},
    {"c=64 k=64 g=64 y=3 x=3 in_stride_w=65 in_stride_h=650 in_stride_n=6500",
     "depthwise loads dwords 2 elements long, got pixels 65 apart"},
    {"c=64 k=64 g=64 y=4 x=3", "this kernel keeps 9 weights of a channel, got 1x4x3 taps"},
    {"c=64 k=64 g=64 y=1 x=5",
     "this kernel takes lines of up to 3 taps 1 apart and columns 1 apart, got 5 taps 1 apart and "
     "columns 1 apart"},
    {"c=64 k=64 g=64 y=3 x=3 stride_w=2",
     "this kernel takes lines of up to 3 taps 1 apart and columns 1 apart, got 3 taps 1 apart and "
     "columns 2 apart"},
    {"c=64 k=64 g=64 y=3 x=3 in_stride_g=2 in_stride_w=128 in_stride_h=1280 in_stride_n=12800",
     "depthwise needs channels side by side, got in_stride_g=2, out_stride_g=1 and "
     "weight_stride_g=9"},
};

TEST(DepthwiseOnHip, SaysWhichProblemsItServes) {
  const Target target = load_target("gfx942");
  const KernelSpec spec =
      parse_name("conv_forward_fp16_nhwgc_2d_depthwise_128x64x1_4x1x1_1x4x3_gfx942");
  for (const auto& [words, text] : kHipDepthwiseProblems) {
    const Problem p =
        parse_problem(std::string("conv direction=forward dtype=fp16 n=2 h=10 w=10 ") + words);
    EXPECT_EQ(family().supports(spec, p, target).reason, text) << words;
  }
}

// Gradients by w have blocks for each line of taps, whose sums wait for a second step.
TEST(DepthwiseOnHip, GradientsByWHaveASecondStep) {
  const Target target = load_target("gfx942");
  const KernelSpec spec =
      parse_name("conv_backwardweight_fp16_nhwgc_2d_depthwise_128x64x1_4x1x1_1x4x3_gfx942");
  const Problem p = parse_problem(
      "conv direction=backward_weight dtype=fp16 n=2 c=96 k=96 g=96 h=9 w=10 y=3 x=3 pad_h=1 "
      "pad_w=1");
  const Launch launch = family().bind(spec, p, target, ConvOperands{});
  ASSERT_EQ(launch.steps.size(), 2U);
  EXPECT_EQ(launch.steps[0].grid[0], 2U * 2);  // 64 channels a block; 54 runs, 32 at a time
  EXPECT_EQ(launch.steps[0].grid[1], 3U);
  EXPECT_EQ(launch.steps[1].entry, 1U);
  EXPECT_EQ(launch.steps[1].grid[0], (96U * 9 + 255) / 256);
}

}  // namespace
}  // namespace tessera::conv
