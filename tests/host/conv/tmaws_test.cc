// The tmaws kernels: which specs are legal, which problems they serve, what a launch holds.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tessera/device/cuda/conv/conv_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

struct Row {
  const char* name;
  const char* text;
};

constexpr Row kIllegal[] = {
    {"conv_forward_bf16_nchw_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a",
     "tmaws without repack reads channels last (nhwgc), got nchw"},
    {"conv_forward_tf32_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a",
     "tmaws multiplies fp16 by fp16 or bf16 by bf16, got tf32 by tf32"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x2x1_64x128x16_cooperative_s6_sm90a",
     "tmaws has 1 to 3 consumers over m (1x1x1, 2x1x1, 3x1x1), got 2x2x1"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_s6_sm90a",
     "tmaws is scheduled cooperative or pingpong, got standard"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_192x128x64_3x1x1_64x128x16_pingpong_s5_sm90a",
     "pingpong needs 2 consumers, got 3"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x72x64_2x1x1_64x72x16_pingpong_s6_sm90a",
     "tile_n must be a multiple of 16 up to 256 with forward, got 72"},
    {"conv_backwardweight_bf16_nhwgc_2d_tmaws_128x80x64_2x1x1_64x80x16_pingpong_s6_sm90a",
     "tile_n must be a multiple of 64 up to 256 with backward_weight, got 80"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x128x128_2x1x1_64x128x16_pingpong_s3_sm90a",
     "tile_k must be 64 (128 bytes), got 128"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_192x128x64_2x1x1_64x128x16_cooperative_s4_sm90a",
     "tile_m must be a multiple of 128 rows of its consumers up to 256, got 192"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x64x16_pingpong_s6_sm90a",
     "the warp tile is one wgmma: 64x128x16, got 64x64x16"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x256x64_2x1x1_64x256x16_pingpong_s4_sm90a",
     "needs 256 accumulators a thread, at most 208 fit"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_192x256x64_3x1x1_64x256x16_cooperative_s3_sm90a",
     "3 consumers leave registers for tile_n <= 192, got 256"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_s10_sm90a",
     "stages must be between 2 and 9, got 10"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_cooperative_s6_c2x1_sm90a",
     "convolutions have splits=1, a 1x1 cluster, swap_ab=0 and the standard store, got splits=1, a "
     "2x1 cluster, swap_ab=0 and standard"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_slices3_"
     "s6_"
     "repack_sm90a",
     "repack takes slices with backward_weight only, got slices=3 with forward"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_"
     "slices200_s6_sm90a",
     "slices must be between 1 and 128, got 200"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_splitordered1_slices4_s6_"
     "sm90a",
     "split_k is ordered and the scheduler cooperative with slices, split_k is none without, got "
     "slices=4, ordered and pingpong"},
    {"conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s9_sm90a",
     "needs 311448 bytes of shared memory (9 stages and the rest), sm90a has 232448"},
};

TEST(ConvTmaws, IllegalSpecsSayWhy) {
  const Target target = load_target("sm90a");
  for (const Row& row : kIllegal) {
    EXPECT_EQ(family().is_legal(parse_name(row.name), target).reason, row.text) << row.name;
  }
}

constexpr Row kUnserved[] = {
    {"forward n=0 c=64 k=64 h=9 w=9", "tmaws needs n >= 1, got 0"},
    {"forward n=2 c=64 k=128 g=2 h=9 w=9",
     "tmaws needs one group, or c / g and k / g that are multiples of 64, got 2 groups of 32 and "
     "64"},
    {"backward_data n=2 c=64 k=64 h=99 w=99 y=9 x=9 stride_h=4 stride_w=3",
     "tmaws serves strides of at most 9 residues, got 12"},
    {"forward n=2 c=64 k=64 h=9 w=9 y=3 x=3 weight_stride_y=256 weight_stride_k=768",
     "tmaws needs taps that lie at one distance, got weight_stride_x 64, weight_stride_y 256 and "
     "weight_stride_z 768"},
    {"forward n=2 c=64 k=64 h=9 w=9 out_stride_h=640 out_stride_n=5760",
     "tmaws needs pixels of y that lie at one distance, got out_stride_w 64, out_stride_h 640, "
     "out_stride_d 5760 and out_stride_n 5760"},
    {"forward n=2 c=20 k=64 h=9 w=9",
     "tmaws needs strides of multiples of 16 bytes above 0 and below 2^40, got 20 elements"},
    {"forward n=2 c=64 k=64 h=9 w=9 in_stride_w=0 in_stride_h=0 in_stride_n=64",
     "tmaws needs strides of multiples of 16 bytes above 0 and below 2^40, got 0 elements"},
    {"backward_weight n=1 c=64 k=64 h=9 w=9 out_stride_w=0",
     "tmaws needs pixels of y that lie at one distance, got out_stride_w 0, out_stride_h 0, "
     "out_stride_d 0 and out_stride_n 0"},
    {"forward n=1 c=64 k=64 h=9 w=9 y=3 x=3 weight_stride_x=0 weight_stride_k=64",
     "tmaws needs taps that lie at one distance, got weight_stride_x 0, weight_stride_y 0 and "
     "weight_stride_z 0"},
    {"forward n=2 c=64 k=64 h=99 w=99 stride_h=9",
     "the copy engine steps over at most 8 pixels, got 9"},
    {"forward n=2 c=64 k=64 h=300 w=99 y=3 dilation_h=130 pad_h=130",
     "the copy engine's boxes begin and end 128 before to 127 behind the image's borders in 2 "
     "dimensions, got -130"},
    {"backward_weight n=2 c=64 k=64 h=300 w=99 y=3 dilation_h=130",
     "the copy engine's boxes begin and end 128 before to 127 behind the image's borders in 2 "
     "dimensions, got -260"},
};

TEST(ConvTmaws, UnservedProblemsSayWhy) {
  const Target target = load_target("sm90a");
  for (const Row& row : kUnserved) {
    const Problem problem = parse_problem("conv dtype=bf16 direction=" + std::string(row.name));
    KernelSpec spec =
        parse_name("conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a");
    spec.signature = signature_of(problem);
    EXPECT_EQ(family().supports(spec, problem, target).reason, row.text) << row.name;
  }
}

TEST(ConvTmaws, SlicesNeedStepsAndOneResidue) {
  const Target target = load_target("sm90a");
  KernelSpec spec = parse_name(
      "conv_backwardweight_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_"
      "slices8_s6_sm90a");
  Problem problem =
      parse_problem("conv direction=backward_weight n=2 c=64 k=64 h=9 w=9 dtype=bf16");
  EXPECT_EQ(family().supports(spec, problem, target).reason,
            "slices need a step of 64 each, got 8 slices of 3 steps");
  problem = parse_problem(
      "conv direction=backward_data n=2 c=64 k=640 h=9 w=9 y=3 x=3 stride_h=2 dtype=bf16");
  spec.signature = signature_of(problem);
  EXPECT_EQ(family().supports(spec, problem, target).reason,
            "slices need strides of 1 residue, got 2");
}

// Nine classes of pixels, each with a window for what is read and one for what is written.
TEST(ConvTmaws, ResiduesHaveWindowsAndTiles) {
  const KernelSpec spec = parse_name(
      "conv_backwarddata_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a");
  const Problem problem = parse_problem(
      "conv direction=backward_data n=4 c=128 k=64 h=30 w=30 y=3 x=3 stride_h=3 stride_w=3 pad_h=1 "
      "pad_w=1 dtype=bf16");
  const Launch launch =
      conv::family().bind(spec, problem, load_target(spec.target), ConvOperands{});
  EXPECT_EQ(launch.tensor_maps.size(), 19U);
  EXPECT_EQ(launch.steps.size(), 1U);
  device::CudaConvArguments arguments;
  ASSERT_EQ(launch.arguments.size(), sizeof(arguments));
  std::memcpy(&arguments, launch.arguments.data(), sizeof(arguments));
  EXPECT_EQ(arguments.num_classes, 9);
  EXPECT_EQ(arguments.tiles, 9 * 4);  // 4 x 10 x 10 pixels of a class, 128 a tile
  EXPECT_EQ(launch.steps[0].grid[0], 36U);
  for (const device::ConvClass& c : arguments.classes) {
    EXPECT_EQ(c.rows, 400);
    EXPECT_EQ(c.steps, 1);
    EXPECT_EQ(c.tiles_p, 4);
  }
}

// Tiles are 2 x 9, and each of their 2 consumers has a counter.
TEST(ConvTmaws, SlicesReserveTheirSumsAndCounters) {
  const KernelSpec spec = parse_name(
      "conv_backwardweight_bf16_nhwgc_2d_tmaws_128x64x64_2x1x1_64x64x16_cooperative_splitordered1_"
      "slices8_s6_sm90a");
  const Problem problem = parse_problem(
      "conv direction=backward_weight n=8 c=64 k=160 h=16 w=16 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16");
  const Launch launch =
      conv::family().bind(spec, problem, load_target(spec.target), ConvOperands{});
  EXPECT_EQ(launch.workspace.bytes,
            std::size_t{device::kCounterBytes} + std::size_t{8} * 160 * 9 * 64 * sizeof(float));
  EXPECT_EQ(launch.workspace.counter_bytes, 2U * 9U * 2U * sizeof(unsigned));
  EXPECT_EQ(family().emit(spec, load_target("sm90a")).entries, std::vector<std::string>{""});
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].entry, 0);
  EXPECT_EQ(launch.steps[0].extent, Step::Extent::resident);
  EXPECT_EQ(launch.steps[0].grid[0], 2U * 9U * 8U);
}

TEST(ConvTmaws, SlicesNeedCounters) {
  const Target target = load_target("sm90a");
  const KernelSpec spec = parse_name(
      "conv_forward_bf16_nhwgc_2d_tmaws_64x32x64_1x1x1_64x32x16_cooperative_splitordered1_slices2_"
      "s6_sm90a");
  const std::string line = "conv direction=forward dtype=bf16 c=64 k=32 y=2 h=65 w=128 n=";
  EXPECT_EQ(family().supports(spec, parse_problem(line + "128"), target).reason, "");
  EXPECT_EQ(family().supports(spec, parse_problem(line + "129"), target).reason,
            "slices take a counter for each of 1 consumers of a tile, 16384 at most, got 16512 "
            "tiles");
}

}  // namespace
}  // namespace tessera::conv
