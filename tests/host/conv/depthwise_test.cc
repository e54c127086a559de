// The depthwise kernels of GPUs: which specs are legal, which problems they serve, what a launch
// holds.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tessera/device/cuda/abi.h"
#include "tessera/device/cuda/conv/depthwise_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

struct DepthwiseRow {
  const char* name;
  const char* text;
};

constexpr DepthwiseRow kIllegalDepthwise[] = {
    {"conv_forward_bf16_nchw_2d_depthwise_64x128x1_2x2x1_4x4x3_sm90a",
     "depthwise reads vectors of channels, which lie side by side in nhwgc only, got nchw"},
    {"conv_forward_tf32_nhwgc_2d_depthwise_64x128x1_2x2x1_4x4x3_sm90a",
     "depthwise takes fp32, fp16 and bf16, got in=tf32, weight=tf32 and out=tf32"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_64x128x1_4x1x1_4x4x3_sm90a",
     "depthwise has 4 warps (2x2x1), got 4x1x1"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_64x128x1_2x2x1_4x4x11_sm90a",
     "a thread has 1 to 8 lines and columns and up to 9 taps of a line, got 4x4x11"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_4x32x0_2x2x1_1x2x0_sm90a",
     "a kernel for any filter has warp tile 1x1x0, stride 0 and 128 results a block, got 1x2x0, "
     "stride 0 and 4 x 32 results"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_64x128x3_2x2x1_4x4x3_sm90a",
     "tile_k is the stride, 1 to 2, got 3"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_64x256x1_2x2x1_4x4x3_sm90a",
     "tile_m x tile_n must be 128 threads x 4 x 4 results x 2 or 4 channels, got 64 x 256"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_16x512x1_2x2x1_4x4x3_sm90a", ""},
    {"conv_forward_bf16_nhwgc_2d_depthwise_4x1024x1_2x2x1_4x4x3_sm90a",
     "tile_n must be a multiple of 2 channels up to 256, got 1024"},
    {"conv_backwarddata_bf16_nhwgc_2d_depthwise_56x64x2_2x2x1_2x7x5_sm90a",
     "lines and columns of a thread must be multiples of the stride 2 with backward_data, got 2 "
     "and 7"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_14x512x1_2x2x1_2x7x7_sm90a",
     "needs 100352 bytes of shared memory for weights, at most 49152 fit"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_256x128x1_2x2x1_8x8x3_sm90a",
     "needs 336 registers a thread for sums and elements, at most 232 fit"},
    {"conv_forward_bf16_nhwgc_2d_depthwise_64x128x1_2x2x1_4x4x3_splitordered1_slices4_sm90a",
     "slices must be between 1 and 1 with forward, got 4"},
    {"conv_backwardweight_bf16_nhwgc_2d_depthwise_32x128x1_2x2x1_2x4x3_splitordered1_slices300_"
     "sm90a",
     "slices must be between 1 and 256 with backward_weight, got 300"},
    {"conv_backwardweight_bf16_nhwgc_2d_depthwise_32x128x1_2x2x1_2x4x3_splitordered1_sm90a",
     "split_k is ordered with slices and none without, got slices=1 and ordered"},
};

TEST(ConvDepthwise, IllegalSpecsSayWhy) {
  const Target target = load_target("sm90a");
  for (const DepthwiseRow& row : kIllegalDepthwise) {
    EXPECT_EQ(family().is_legal(parse_name(row.name), target).reason, row.text) << row.name;
  }
}

constexpr DepthwiseRow kUnservedDepthwise[] = {
    {"forward n=2 c=64 k=64 g=32 h=9 w=9 y=3 x=3",
     "depthwise needs one channel of x in each group, got c=64 and g=32"},
    {"forward n=2 c=64 k=128 g=64 h=9 w=9 y=3 x=3",
     "this kernel needs one channel of y in each group, got k=128 and g=64"},
    {"forward n=2 c=64 k=64 g=64 h=9 w=9 y=5 x=3",
     "this kernel is for filters of 3 columns and at most 3 lines, got 3 and 5"},
    {"forward n=2 c=64 k=64 g=64 h=9 w=9 y=3 x=3 stride_h=2",
     "this kernel is for strides of 1, got stride_h 2 and stride_w 1"},
    {"forward n=2 c=64 k=64 g=64 h=9 w=9 y=3 x=3 dilation_w=2",
     "this kernel is for taps side by side, got dilation_h 1 and dilation_w 2"},
    {"backward_weight n=2 c=66 k=66 g=66 h=9 w=9 y=3 x=3",
     "this kernel has vectors of 4 channels, got 66 channels"},
    {"forward n=2 c=64 k=64 g=64 h=9 w=9 y=3 x=3 in_stride_g=2 in_stride_w=128 in_stride_h=1152 "
     "in_stride_n=10368",
     "this kernel needs channels side by side, got in_stride_g 2 and out_stride_g 1"},
    {"forward n=2 c=64 k=64 g=64 h=9 w=9 y=3 x=3 out_stride_w=66 out_stride_h=594 "
     "out_stride_n=5346",
     "this kernel needs strides of multiples of 4 elements, got 66"},
    {"forward n=1 c=64 k=64 g=64 h=9 w=9 y=3 x=3 in_stride_h=1073741824 in_stride_n=12884901888",
     "this kernel needs lines and columns at most 536870911 elements apart, got 1073741824"},
    {"forward n=1 c=64 k=64 g=64 h=9 w=1100000000 y=3 x=3",
     "depthwise counts places up to 1073741823, got 1100000000"},
    {"forward n=2000000000 c=4 k=4 g=4 h=9 w=9 y=3 x=3",
     "depthwise counts patches, blocks, channels and taps up to 1073741823, got 1073741824, "
     "8388608, 4 and 9"},
};

KernelSpec depthwise_on(const Problem& problem, const char* name) {
  KernelSpec spec = parse_name(name);
  spec.signature = signature_of(problem);
  return spec;
}

TEST(ConvDepthwise, UnservedProblemsSayWhy) {
  const Target target = load_target("sm90a");
  for (const DepthwiseRow& row : kUnservedDepthwise) {
    const Problem problem = parse_problem("conv dtype=bf16 direction=" + std::string(row.name));
    const KernelSpec spec =
        depthwise_on(problem, "conv_forward_bf16_nhwgc_2d_depthwise_64x128x1_2x2x1_4x4x3_sm90a");
    EXPECT_EQ(family().supports(spec, problem, target).reason, row.text) << row.name;
  }
}

TEST(ConvDepthwise, CpuKernelsOfInt8SayWhatTheyNeed) {
  const Target target = load_target("avx512");
  const KernelSpec turned =
      parse_name("conv_forward_int8_nchw_2d_depthwise_1x1x1_0x0x1_7x32x3_avx512");
  EXPECT_EQ(family().is_legal(turned, target).reason,
            "depthwise multiplies int8 in nhwgc, got nchw");
  const KernelSpec mixed =
      parse_name("conv_forward_fp8_nhwgc_2d_depthwise_1x1x1_0x0x1_7x32x3_avx512");
  EXPECT_EQ(family().is_legal(mixed, target).reason,
            "depthwise multiplies fp32, tf32, fp16, bf16 and int8, got fp8 and fp8 to fp16");
  const Problem large =
      parse_problem("conv direction=forward n=1 c=8 k=8 g=8 h=64 w=64 y=40 x=40 dtype=int8");
  const KernelSpec spec =
      depthwise_on(large, "conv_forward_int8_nhwgc_2d_depthwise_1x1x1_0x0x1_7x32x3_avx512");
  EXPECT_EQ(family().is_legal(spec, target).reason, "");
  EXPECT_EQ(family().supports(spec, large, target).reason,
            "depthwise adds up to 1024 products of int8, got 1600 taps");
}

TEST(ConvDepthwise, AnyFilterServesWhatOneFilterRefuses) {
  const Target target = load_target("sm90a");
  for (const char* line :
       {"forward n=2 c=7 k=21 g=7 h=9 w=9 y=5 x=3 stride_h=3 dilation_w=2",
        "backward_data n=2 c=1 k=3 g=1 h=9 w=9 y=5 x=3 stride_h=3 dilation_w=2",
        "backward_weight n=0 c=7 k=7 g=7 h=9 w=9 y=5 x=3 in_stride_g=2 in_stride_w=14 "
        "in_stride_h=126 in_stride_n=1134"}) {
    const Problem problem = parse_problem("conv dtype=bf16 direction=" + std::string(line));
    const KernelSpec spec =
        depthwise_on(problem, "conv_forward_bf16_nhwgc_2d_depthwise_4x32x0_2x2x1_1x1x0_sm90a");
    EXPECT_EQ(family().supports(spec, problem, target).reason, "") << line;
  }
}

TEST(ConvDepthwise, SlicesNeedPatches) {
  const Problem problem =
      parse_problem("conv direction=backward_weight n=1 c=64 k=64 g=64 h=9 w=9 y=3 x=3 dtype=bf16");
  const KernelSpec spec = depthwise_on(
      problem,
      "conv_backwardweight_bf16_nhwgc_2d_depthwise_32x128x1_2x2x1_2x4x3_splitordered1_slices16_"
      "sm90a");
  EXPECT_EQ(family().supports(spec, problem, load_target("sm90a")).reason,
            "slices need a patch each, got 16 slices of 8 patches");
}

device::DepthwiseArguments depthwise_arguments(const Launch& launch) {
  device::DepthwiseArguments arguments;
  EXPECT_EQ(launch.arguments.size(), sizeof(arguments));
  std::memcpy(&arguments, launch.arguments.data(), sizeof(arguments));
  return arguments;
}

// 36 vectors of 4 channels: two blocks of 18 leave 2 of 128 threads idle, one of 36 leaves 20.
TEST(ConvDepthwise, ChannelsAreSharedSoThatFewThreadsIdle) {
  const Problem problem = parse_problem(
      "conv direction=forward n=32 c=144 k=144 g=144 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16");
  const Launch launch = conv::family().bind(
      depthwise_on(problem, "conv_forward_bf16_nhwgc_2d_depthwise_64x128x1_2x2x1_4x4x3_sm90a"),
      problem, load_target("sm90a"), ConvOperands{});
  const device::DepthwiseArguments arguments = depthwise_arguments(launch);
  EXPECT_EQ(arguments.channel_blocks, 2);
  EXPECT_EQ(arguments.vectors, 18);
  EXPECT_EQ(arguments.together, 7);
  EXPECT_EQ(arguments.across, 14);
  EXPECT_EQ(arguments.down, 14);
  EXPECT_EQ(arguments.patches, 32 * 14 * 14);
  EXPECT_EQ(arguments.image_line, 56 * 144 * 2);
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].grid[0], 896U * 2U);
}

// Patches of a gradient by x begin at places that a tap 0 meets: one place before the image here.
TEST(ConvDepthwise, StridedGradientsHaveAPatchMoreForThePad) {
  const Problem problem = parse_problem(
      "conv direction=backward_data n=1 c=64 k=64 g=64 h=16 w=16 y=3 x=3 stride_h=2 stride_w=2 "
      "pad_h=1 pad_w=1 dtype=bf16");
  const Launch launch = conv::family().bind(
      depthwise_on(problem, "conv_forward_bf16_nhwgc_2d_depthwise_64x128x2_2x2x1_4x4x3_sm90a"),
      problem, load_target("sm90a"), ConvOperands{});
  EXPECT_EQ(depthwise_arguments(launch).across, 5);
}

TEST(ConvDepthwise, SlicesReserveTheirSums) {
  const Problem problem = parse_problem(
      "conv direction=backward_weight n=8 c=96 k=96 g=96 h=16 w=16 y=3 x=3 pad_h=1 pad_w=1 "
      "dtype=bf16");
  const Launch launch = conv::family().bind(
      depthwise_on(problem,
                   "conv_backwardweight_bf16_nhwgc_2d_depthwise_32x128x1_2x2x1_2x4x3_"
                   "splitordered1_slices16_sm90a"),
      problem, load_target("sm90a"), ConvOperands{});
  EXPECT_EQ(launch.workspace.bytes,
            std::size_t{device::kCounterBytes} + std::size_t{16} * 9 * 96 * sizeof(float));
  ASSERT_EQ(launch.steps.size(), 2U);
  EXPECT_EQ(launch.steps[0].grid[0], 16U);
  EXPECT_EQ(launch.steps[1].entry, 1);
  EXPECT_EQ(launch.steps[1].grid[0], 9U * 96U / 16U);
}

}  // namespace
}  // namespace tessera::conv
