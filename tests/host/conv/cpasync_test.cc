// The cpasync kernels: which specs are legal, which problems they serve, how they see a problem.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tessera/device/cuda/abi.h"
#include "tessera/families/conv/cpasync_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

constexpr const char* kForward =
    "conv_forward_bf16_nhwgc_2d_cpasync_128x64x32_2x2x1_16x8x16_s4_sm90a";
constexpr Shape3 kTile = {128, 64, 32};

struct GatherRow {
  const char* name;
  const char* text;
};

constexpr GatherRow kIllegalGathers[] = {
    {"conv_forward_fp32_nhwgc_2d_cpasync_128x64x16_2x2x1_16x8x8_s4_sm90a",
     "cpasync multiplies tf32, fp16, bf16, fp8, bf8 and int8, got fp32"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_128x64x32_2x2x2_16x8x16_s4_sm90a",
     "cpasync has warps over m and n (wave_k is 1), got 2x2x2"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_128x64x32_2x2x1_16x8x8_s4_sm90a",
     "cpasync multiplies by mma, and sm90a does not list a mma of 16x8x8 for bf16"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_72x64x32_2x2x1_16x8x16_s4_sm90a",
     "tile 72x64 does not divide over 2x2 warps of 16x8"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_256x256x32_2x2x1_16x8x16_s4_sm90a",
     "needs 512 accumulators a thread (256x256 over 128 threads), at most 128 fit"},
    {"conv_forward_fp8_nchw_2d_cpasync_128x128x64_2x2x1_16x8x16_s4_sm90a",
     "needs 128 accumulators a thread (128x128 over 128 threads), at most 64 fit"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_128x64x24_2x2x1_16x8x16_s4_sm90a",
     "tile_k must be a multiple of 16 up to 128 threads for bf16, got 24"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_64x64x48_2x2x1_16x8x16_s4_sm90a",
     "a line of A's tile must be 16 bytes times a power of two that divides 128 threads, got 96 "
     "bytes"},
    {"conv_forward_int8_nhwgc_2d_cpasync_16x64x32_1x4x1_16x8x32_s4_sm90a",
     "A's tile must be a multiple of 1024 bytes, got 16 x 32 x 1"},
    {"conv_forward_int8_nchw_2d_cpasync_32x128x64_2x2x1_16x8x32_s4_sm90a",
     "a warp takes a power of two of at least 32 contiguous rows of A, got 16"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_128x64x32_2x2x1_16x8x16_s9_sm90a",
     "stages must be between 2 and 8, got 9"},
    {"conv_backwardweight_bf16_nhwgc_2d_cpasync_64x64x32_2x2x1_16x8x16_splitordered1_slices200_s4_"
     "sm90a",
     "slices must be between 1 and 128, and split_k ordered with more than one, got 200 and "
     "ordered"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_64x64x32_2x2x1_16x8x16_splitordered1_slices8_s4_sm90a",
     "cpasync has slices of pixels (backward_weight), got 8 slices of forward"},
    {"conv_forward_bf16_nhwgc_2d_cpasync_128x128x128_2x4x1_16x8x16_s4_sm90a",
     "needs 286720 bytes of shared memory (4 stages and 24576 for places), sm90a has 232448"},
};

TEST(ConvCpasync, IllegalSpecsSayWhy) {
  const Target target = load_target("sm90a");
  for (const GatherRow& row : kIllegalGathers) {
    EXPECT_EQ(family().is_legal(parse_name(row.name), target).reason, row.text) << row.name;
  }
}

ConvProblem layer_of(const std::string& words) {
  return with_strides(std::get<ConvProblem>(parse_problem("conv dtype=bf16 direction=" + words)));
}

TEST(ConvCpasync, UnservedProblemsSayWhy) {
  const Target target = load_target("sm90a");
  constexpr GatherRow kUnservedGathers[] = {
      {"forward n=0 c=64 k=64 h=9 w=9", "cpasync needs n >= 1, got 0"},
      {"forward n=1 c=1 k=1 h=1 w=300000000",
       "cpasync counts places up to 268435456 and pixels and steps up to 1073741824, got "
       "300000000"},
      {"forward n=1000 c=1 k=1 h=2000 w=2000",
       "cpasync counts places up to 268435456 and pixels and steps up to 1073741824, got "
       "4000000000"},
  };
  for (const GatherRow& row : kUnservedGathers) {
    const Problem problem = layer_of(row.name);
    EXPECT_EQ(family().supports(parse_name(kForward), problem, target).reason, row.text)
        << row.name;
  }
}

TEST(ConvCpasync, SlicesNeedSteps) {
  const Target target = load_target("sm90a");
  const KernelSpec spec = parse_name(
      "conv_backwardweight_bf16_nhwgc_2d_cpasync_64x64x32_2x2x1_16x8x16_splitordered1_slices8_s4_"
      "sm90a");
  EXPECT_EQ(
      family().supports(spec, layer_of("backward_weight n=2 c=64 k=64 h=9 w=9"), target).reason,
      "slices need a step of 32 each, got 8 slices of 6 steps");
}

// ---- how a problem becomes products ----

TEST(ConvCpasync, GroupsOfFewChannelsShareATile) {
  const auto together = [](const std::string& words, const Shape3& tile) {
    return gather_plan(layer_of(words), tile).together;
  };
  EXPECT_EQ(together("forward n=1 c=128 k=128 g=32 h=9 w=9", kTile), 16);
  EXPECT_EQ(together("forward n=1 c=128 k=256 g=32 h=9 w=9", kTile), 8);
  EXPECT_EQ(together("backward_data n=1 c=128 k=256 g=32 h=9 w=9", kTile), 16);
  EXPECT_EQ(together("backward_weight n=1 c=128 k=512 g=32 h=9 w=9", kTile), 8);
  EXPECT_EQ(together("forward n=1 c=120 k=120 g=30 h=9 w=9", kTile), 15);  // divides the groups
  EXPECT_EQ(together("forward n=1 c=256 k=256 g=2 h=9 w=9", kTile), 1);
  EXPECT_EQ(together("forward n=1 c=9 k=18 g=9 h=9 w=9", kTile), 9);
  // Groups between whose channels others lie stay by themselves.
  EXPECT_EQ(together("forward n=1 c=128 k=128 g=32 h=9 w=9 in_stride_g=8", kTile), 1);
}

TEST(ConvCpasync, LinesOfFewChannelsAreOneRun) {
  const GatherPlan stem = gather_plan(layer_of("forward n=2 c=3 k=64 h=32 w=32 y=7 x=7"), kTile);
  EXPECT_TRUE(stem.taps_in_run);
  EXPECT_EQ(stem.run, 21);
  EXPECT_EQ(stem.padded_run, 24);
  EXPECT_EQ(stem.depth, 7 * 24);
  EXPECT_EQ(stem.lead, 0);
  for (const char* words : {"forward n=2 c=3 k=64 h=32 w=32 y=7 x=7 dilation_w=2",
                            "forward n=2 c=3 k=64 h=32 w=32 y=7 x=7 layout=nchw",
                            "forward n=2 c=3 k=64 h=32 w=32 y=7 x=7 in_stride_w=4 in_stride_h=128 "
                            "in_stride_n=4096",
                            "backward_data n=2 c=3 k=3 h=32 w=32 y=7 x=7"}) {
    const GatherPlan plan = gather_plan(layer_of(words), kTile);
    EXPECT_FALSE(plan.taps_in_run) << words;
    EXPECT_EQ(plan.run, 3) << words;
  }
  const std::string whole_chunks = "forward n=2 c=8 k=64 h=32 w=32 y=7 x=7";
  EXPECT_FALSE(gather_plan(layer_of(whole_chunks), kTile).taps_in_run);
}

// A pixel's line of 7 x 3 elements begins 9 before the image, and the next one's 6 further.
TEST(ConvCpasync, LeadsAlignLinesOfFewChannels) {
  const std::string stem = " k=64 h=32 w=32 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 pad_w=3";
  const ConvProblem p = layer_of("forward n=2 c=3" + stem);
  EXPECT_EQ(gather_plan(p, kTile).lead, 1);
  EXPECT_EQ(gather_plan(p, kTile).padded_run, 24);
  EXPECT_EQ(gather_arguments(p, gather_plan(p, kTile), {}).image.width, device::kBy4);
  const ConvProblem q = layer_of("backward_weight n=2 c=4" + stem);
  EXPECT_EQ(gather_plan(q, kTile).lead, 4);
  EXPECT_EQ(gather_plan(q, kTile).padded_run, 32);
  EXPECT_EQ(gather_arguments(q, gather_plan(q, kTile), {}).image.width, device::kBy16);
}

TEST(ConvCpasync, ResiduesHaveTilesOfTheirOwn) {
  const GatherPlan plan = gather_plan(
      layer_of("backward_data n=4 c=64 k=64 h=30 w=31 y=3 x=3 stride_h=2 stride_w=3"), kTile);
  EXPECT_EQ(plan.residues, 6);
  EXPECT_EQ(plan.rows, 4 * 15 * 11);
  EXPECT_EQ(plan.tiles, 6 * 6);
}

TEST(ConvCpasync, LinesOfPixelsEndWithWholeChunks) {
  const GatherPlan plan = gather_plan(layer_of("forward n=2 c=16 k=64 h=7 w=7 layout=nchw"), kTile);
  EXPECT_EQ(plan.rows, 2 * 7 * 8);
}

struct WidthRow {
  const char* words;
  int image, other;
};
constexpr WidthRow kWidths[] = {
    {"forward n=2 c=64 k=64 h=9 w=9 y=3 x=3", device::kBy16, device::kBy16},
    {"forward n=2 c=20 k=64 h=9 w=9", device::kBy8, device::kBy8},
    {"forward n=2 c=6 k=64 h=9 w=9", device::kBy4, device::kBy4},
    {"forward n=2 c=7 k=64 h=9 w=9", device::kByVector, device::kByVector},
    {"forward n=2 c=4 k=64 h=9 w=9 y=3 x=3", device::kBy8, device::kBy8},
    {"forward n=2 c=128 k=128 g=32 h=9 w=9", device::kBy16, device::kBy8},
    {"backward_data n=2 c=64 k=8 h=9 w=9", device::kBy16, device::kBy16},
    {"backward_weight n=2 c=64 k=12 h=9 w=9", device::kBy16, device::kBy8},
    {"forward n=2 c=64 k=64 h=8 w=8 layout=nchw", device::kBy16, device::kBy16},
    {"forward n=2 c=64 k=64 h=8 w=8 x=3 layout=nchw", device::kByVector, device::kByElement},
    {"forward n=2 c=64 k=64 h=8 w=8 stride_w=2 layout=nchw", device::kByElement, device::kBy16},
};

TEST(ConvCpasync, WidthsOfCopiesFollowFromAlignment) {
  for (const WidthRow& row : kWidths) {
    const ConvProblem p = layer_of(row.words);
    const auto arguments = gather_arguments(p, gather_plan(p, kTile), {});
    EXPECT_EQ(arguments.image.width, row.image) << row.words;
    EXPECT_EQ(arguments.other.width, row.other) << row.words;
  }
  const ConvProblem p = layer_of(kWidths[0].words);
  ConvOperands operands;
  operands.in = reinterpret_cast<const void*>(0x1008);
  EXPECT_EQ(gather_arguments(p, gather_plan(p, kTile), operands).image.width, device::kBy8);
}

TEST(ConvCpasync, SlicesReserveTheirSums) {
  const KernelSpec spec = parse_name(
      "conv_backwardweight_bf16_nhwgc_2d_cpasync_64x64x32_2x2x1_16x8x16_splitordered1_slices8_s4_"
      "sm90a");
  const ConvProblem p = layer_of("backward_weight n=8 c=64 k=96 h=16 w=16 y=3 x=3 pad_h=1 pad_w=1");
  const Launch launch = conv::family().bind(spec, p, load_target(spec.target), ConvOperands{});
  EXPECT_EQ(launch.workspace.bytes,
            std::size_t{device::kCounterBytes} + std::size_t{8} * 2 * 9 * 64 * 64 * sizeof(float));
  ASSERT_EQ(launch.steps.size(), 2U);
  EXPECT_EQ(launch.steps[0].grid[0], 2U * 9U * 8U);
  EXPECT_EQ(launch.steps[0].block[0], 128U);
  EXPECT_EQ(launch.steps[1].entry, 1);
  EXPECT_EQ(launch.steps[1].grid[0], 2U * 9U * 16U);
}

}  // namespace
}  // namespace tessera::conv
