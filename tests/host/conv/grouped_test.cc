// The grouped kernels: which specs are legal, which problems they serve, what a launch holds, and
// when they are chosen.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "host/conv/conv_problems.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/families/conv/grouped_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

struct GroupedText {
  const char* name;
  const char* text;
};

constexpr GroupedText kIllegalGrouped[] = {
    {"conv_forward_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x2_sm90a", ""},
    {"conv_forward_fp16_nhwgc_3d_grouped_128x56x56_2x1x1_128x56x1_s3_sm90a", ""},
    {"conv_backwardweight_bf16_nhwgc_1d_grouped_64x16x16_4x1x1_144x16x4_sm90a", ""},
    {"conv_forward_bf16_nchw_2d_grouped_64x16x16_2x2x1_32x16x2_sm90a",
     "grouped copies neighbouring channels, which lie side by side in nhwgc only, got nchw"},
    {"conv_forward_fp32_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x2_sm90a",
     "grouped multiplies and stores fp16 or bf16 alone, got in=fp32, weight=fp32 and out=fp32"},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x16x12_2x2x1_32x16x2_sm90a",
     "grouped has tiles of multiples of 16 results up to 512, of 8 columns up to 128 and of 8 "
     "channels up to 128, got 64x16x12"},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x16x16_2x2x2_32x16x2_sm90a",
     "grouped has 1 to 16 warps over m and n (wave_k is 1), got 2x2x2"},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x56x56_2x1x1_64x56x1_s3_sm90a", ""},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x56x56_2x1x1_32x56x1_s3_sm90a",
     "with 2 to 4 stages grouped multiplies by wgmma: all columns, one product and 1 to 3 "
     "warpgroups; by w, multiples of 64 rows; otherwise 64 or 128 results, a warp tile of all of "
     "them and no more warpgroups than stages; got 3 stages, tile 64x56x56, wave 2x1x1, warp tile "
     "32x56x1 and forward"},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x56x56_3x1x1_64x56x1_s2_sm90a",
     "with 2 to 4 stages grouped multiplies by wgmma: all columns, one product and 1 to 3 "
     "warpgroups; by w, multiples of 64 rows; otherwise 64 or 128 results, a warp tile of all of "
     "them and no more warpgroups than stages; got 2 stages, tile 64x56x56, wave 3x1x1, warp tile "
     "64x56x1 and forward"},
    {"conv_backwardweight_bf16_nhwgc_2d_grouped_208x56x56_3x1x1_192x56x1_s2_sm90a", ""},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x24x2_sm90a",
     "a warp has multiples of 16 rows, and of 8 columns that divide 16, got 32x24"},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x8_sm90a",
     "warp_tile_k is the products of a block, which have at most 64 channels and 128 columns "
     "together, got 8 products of 16 and 16"},
    {"conv_forward_bf16_nhwgc_2d_grouped_128x64x64_2x1x1_64x64x1_sm90a",
     "needs 128 accumulators a thread (64x64 of a warp), at most 64 fit"},
    {"conv_forward_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x2_splitordered1_slices2_sm90a",
     "split_k must be none with grouped, got ordered"},
};

TEST(ConvGrouped, IllegalSpecsSayWhy) {
  const Target target = load_target("sm90a");
  for (const GroupedText& row : kIllegalGrouped) {
    EXPECT_EQ(family().is_legal(parse_name(row.name), target).reason, row.text) << row.name;
  }
}

KernelSpec grouped_on(const Problem& problem, const char* name) {
  KernelSpec spec = parse_name(name);
  spec.signature = signature_of(problem);
  return spec;
}
Problem grouped_problem(const std::string& line) {
  return parse_problem("conv dtype=bf16 direction=" + line);
}

constexpr GroupedText kUnservedGrouped[] = {
    {"forward n=2 c=64 k=64 g=4 h=9 w=9 y=3 x=3 dilation_w=2 stride_h=3 pad_h=7", ""},
    {"forward n=0 c=64 k=64 g=4 h=9 w=9 y=3 x=3",
     "grouped needs an image and two channels of x or y in each group, got n=0, c=64, k=64 and "
     "g=4"},
    {"forward n=2 c=16 k=16 h=9 w=9 y=3 x=3 in_stride_g=3", ""},
    {"forward n=2 c=64 k=64 g=64 h=9 w=9 y=3 x=3",
     "grouped needs an image and two channels of x or y in each group, got n=2, c=64, k=64 and "
     "g=64"},
    {"forward n=2 c=64 k=64 g=2 h=9 w=9 y=3 x=3",
     "tile_k must be 32, the channels that are multiplied, filled up, got 16"},
    {"forward n=2 c=32 k=16 g=2 h=9 w=9 y=3 x=3",
     "tile_n must be at most 8, the channels of a product, filled up, got 16"},
    {"forward n=2 c=64 k=64 g=4 h=9 w=9 y=3 x=3 in_stride_g=17 in_stride_w=68 in_stride_h=612 "
     "in_stride_n=5508",
     "grouped needs the channels of all groups side by side, 16 and 16 in a group, got a stride "
     "of 17"},
    {"forward n=2 c=64 k=64 g=4 h=19 w=19 y=13 x=13",
     "grouped has room for 128 taps and 27 residues of a gradient by x, got 169 and 1"},
    {"backward_data n=2 c=64 k=64 g=4 h=19 w=19 y=3 x=3 stride_h=6 stride_w=6",
     "grouped has room for 128 taps and 27 residues of a gradient by x, got 9 and 36"},
    {"forward n=300000000 c=64 k=64 g=4 h=9 w=9 y=3 x=3",
     "grouped counts images, channels and places up to 268435456, got 300000000"},
    {"forward n=2 c=64 k=64 g=4 h=999 w=999 y=3 x=3 dilation_h=99 dilation_w=99",
     "the filters of a block and what one result reads need 3188640 bytes of shared memory, sm90a "
     "has 232448"},
};

TEST(ConvGrouped, UnservedProblemsSayWhy) {
  const Target target = load_target("sm90a");
  for (const GroupedText& row : kUnservedGrouped) {
    const Problem problem = grouped_problem(row.name);
    const KernelSpec spec =
        grouped_on(problem, "conv_forward_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x2_sm90a");
    EXPECT_EQ(family().supports(spec, problem, target).reason, row.text) << row.name;
  }
}

// Two products of 8 columns are a warp's only where they have no more.
TEST(ConvGrouped, PartsOfProductsAreNotJoined) {
  const Problem problem = grouped_problem("forward n=2 c=64 k=128 g=8 h=9 w=9 y=3 x=3");
  const Target target = load_target("sm90a");
  for (const auto& [name, text] :
       {GroupedText{"conv_forward_bf16_nhwgc_2d_grouped_64x8x8_2x2x1_32x8x4_sm90a",
                    "a warp has two products of 8 columns, which must be all columns of a product, "
                    "got 16"},
        GroupedText{"conv_forward_bf16_nhwgc_2d_grouped_64x8x8_2x2x1_32x8x1_sm90a", ""}}) {
    EXPECT_EQ(family().supports(grouped_on(problem, name), problem, target).reason, text) << name;
  }
}

// Groups of 1, 2 and 4 channels make a product of 8 together, others are filled up.
TEST(ConvGrouped, SmallGroupsShareAProduct) {
  struct Case {
    const char* line;
    std::int64_t together, products, depth, columns;
  };
  for (const Case& c : {Case{"forward n=1 c=64 k=32 g=16 h=9 w=9", 2, 8, 8, 4},
                        Case{"backward_data n=1 c=64 k=32 g=16 h=9 w=9", 4, 4, 8, 16},
                        Case{"backward_weight n=1 c=6 k=6 g=3 h=9 w=9", 3, 1, 6, 6},
                        Case{"forward n=1 c=36 k=36 g=3 h=9 w=9", 1, 3, 12, 12}}) {
    const GroupedProduct product = grouped_product(conv_of(grouped_problem(c.line)));
    EXPECT_EQ(product.together, c.together) << c.line;
    EXPECT_EQ(product.products, c.products) << c.line;
    EXPECT_EQ(product.depth, c.depth) << c.line;
    EXPECT_EQ(product.columns, c.columns) << c.line;
  }
}

device::GroupedArguments grouped_arguments(const Launch& launch) {
  device::GroupedArguments arguments;
  EXPECT_EQ(launch.arguments.size(), sizeof(arguments));
  std::memcpy(&arguments, launch.arguments.data(), sizeof(arguments));
  return arguments;
}
Launch bound(const Problem& problem, const char* name) {
  return family().bind(grouped_on(problem, name), problem, load_target("sm90a"), ConvOperands{});
}

// A gradient with strides of 2 multiplies each tap once: 1, 2, 2 and 4 of them.
TEST(ConvGrouped, ResiduesShareTheTaps) {
  const Problem problem = grouped_problem(
      "backward_data n=2 c=64 k=64 g=4 h=28 w=28 y=3 x=3 stride_h=2 stride_w=2 pad_h=1 pad_w=1");
  const auto g = grouped_arguments(
      bound(problem, "conv_backwarddata_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x2_sm90a"));
  ASSERT_EQ(g.classes, 4);
  EXPECT_EQ(g.taps, 9);
  std::set<int> filters;
  for (int i = 0; i < g.taps; ++i) filters.insert(g.tap[i].filter);
  EXPECT_EQ(filters.size(), 9U);
  const int counts[] = {1, 2, 2, 4};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(g.of_class[i].taps, counts[i]);
    EXPECT_EQ(g.of_class[i].start[device::kHeight], i / 2);
    EXPECT_EQ(g.of_class[i].start[device::kWidth], i % 2);
  }
  EXPECT_EQ(g.result_step[device::kWidth], 2);
  EXPECT_EQ(g.image_step[device::kWidth], 1);
}

// Every place that a tap of a result meets lies in the tile.
TEST(ConvGrouped, TapsStayInTheTile) {
  RandomConvs random(std::random_device{}());
  const Target target = load_target("sm90a");
  int seen = 0;
  while (seen < 100) {
    ConvProblem p = random.problem();
    p.layout = ConvLayout::nhwgc;
    p.direction = kDirections[random.integer(0, 2)];
    p.in = p.weight = p.out = p.d = DType::bf16;
    p.in_strides = p.weight_strides = p.out_strides = kPackedStrides;
    p.c *= random.integer(2, 16), p.k *= random.integer(2, 16);
    const Problem problem = p;
    for (const KernelSpec& spec : family().legal_candidates(problem, target)) {
      if (spec.algorithm.pipeline != Pipeline::grouped) continue;
      ++seen;
      const Launch launch = family().bind(spec, problem, target, ConvOperands{});
      const auto g = grouped_arguments(launch);
      SCOPED_TRACE(name_of(spec) + " on " + to_string(problem));
      int last = (g.images - 1) * g.image_pitch;
      for (int dim = 0; dim < 3; ++dim) last += (g.box[dim] - 1) * g.pitch[dim];
      const int end = spec.algorithm.stages > 1 ? g.plane : g.image_bytes;
      for (int i = 0; i < g.taps; ++i) {
        EXPECT_GE(g.tap[i].image, 0);
        EXPECT_LE(last + g.tap[i].image + 16, end);
      }
      EXPECT_LE(launch.steps[0].shared_memory_bytes,
                static_cast<std::size_t>(target.shared_memory_bytes));
    }
  }
}

// Rows of filters are copied as they lie only where each tap has a place, and then its own.
TEST(ConvGrouped, TapsOfRowsHaveTheirPlaces) {
  const char* const kSixteen =
      "conv_backwarddata_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x2_sm90a";
  const auto arguments = [&](const char* line) {
    return grouped_arguments(bound(grouped_problem(line), kSixteen));
  };
  for (const char* line : {"backward_data n=2 c=64 k=64 g=4 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1",
                           "backward_data n=2 c=64 k=64 g=4 h=28 w=28 y=3 x=3 stride_h=2 "
                           "stride_w=2 pad_h=1 pad_w=1",
                           "backward_data n=2 c=64 k=64 g=4 h=28 w=28 y=4 x=2 stride_h=3"}) {
    const auto g = arguments(line);
    EXPECT_EQ(g.row_elements, g.taps * 16) << line;
    EXPECT_EQ(g.filter_lines.columns, g.taps * 2) << line;
    for (int i = 0; i < g.taps; ++i) {
      EXPECT_EQ(g.tap[g.slot[i]].filter, i * 16) << line << ", tap " << i;
    }
  }
  // A line of one place and strides of 3: three of the four lines of the filter meet nothing.
  const auto g = arguments(
      "backward_data n=1 c=64 k=64 g=4 h=1 w=21 y=4 x=2 stride_h=3 stride_w=3 pad_h=1 "
      "pad_right_h=4 pad_right_w=2");
  EXPECT_EQ(g.taps, 2);
  EXPECT_EQ(g.row_elements, 0);
}

// How wide copies are follows from addresses, channels and strides.
TEST(ConvGrouped, CopiesAreAsWideAsChannelsAllow) {
  const char* const kSixteen = "conv_forward_bf16_nhwgc_2d_grouped_64x16x16_2x2x1_32x16x2_sm90a";
  const auto widths = [&](const char* line) {
    const auto g = grouped_arguments(bound(grouped_problem(line), kSixteen));
    return std::array{g.image_width, g.filter_width, g.result_width};
  };
  EXPECT_EQ(widths("forward n=2 c=64 k=64 g=4 h=9 w=9"), (std::array{16, 16, 8}));
  EXPECT_EQ(widths("forward n=2 c=48 k=48 g=4 h=9 w=9"), (std::array{8, 2, 4}));
  EXPECT_EQ(widths("forward n=2 c=56 k=56 g=4 h=9 w=9"), (std::array{4, 2, 2}));
  EXPECT_EQ(widths("forward n=2 c=52 k=52 g=4 h=9 w=9"), (std::array{2, 2, 1}));
  // The last product has the channels of one group instead of two.
  const auto last = grouped_arguments(
      bound(grouped_problem("forward n=1 c=12 k=24 g=3 h=5 w=5 y=3 x=3 pad_h=1 pad_w=1 "
                            "in_stride_w=16 in_stride_h=80 in_stride_n=400"),
            "conv_forward_bf16_nhwgc_2d_grouped_64x16x8_2x2x1_32x16x2_sm90a"));
  EXPECT_EQ(last.image_width, 8);
  // A tile steps into the padding by the stride of a dimension of one place.
  EXPECT_EQ(widths("forward n=2 c=64 k=64 g=4 h=1 w=9 y=3 x=3 pad_h=1 pad_w=1 in_stride_h=577"),
            (std::array{2, 16, 8}));
}

TEST(ConvGrouped, BlocksThatShareSumsHaveACounterEach) {
  const Problem problem =
      grouped_problem("backward_weight ndim=1 n=1 c=655400 k=655400 g=16385 w=16 x=3 pad_w=1");
  const KernelSpec spec = grouped_on(
      problem, "conv_backwardweight_bf16_nhwgc_1d_grouped_64x40x40_3x1x1_64x40x1_s2_sm90a");
  EXPECT_EQ(family().supports(spec, problem, load_target("sm90a")).reason,
            "grouped has 65536 bytes of counters for blocks that share sums, got 65540");
}

// Blocks that share sums leave them in the workspace, and meet at a counter each.
TEST(ConvGrouped, PartsReserveTheirSums) {
  const Problem problem =
      grouped_problem("backward_weight n=16 c=64 k=64 g=4 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1");
  const Launch launch =
      bound(problem, "conv_backwardweight_bf16_nhwgc_2d_grouped_208x16x16_4x1x1_144x16x4_sm90a");
  const auto g = grouped_arguments(launch);
  EXPECT_EQ(g.product_blocks, 1);
  EXPECT_EQ(g.row_units, 1);
  EXPECT_GT(g.parts, 64);
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].grid[0], static_cast<unsigned>(g.parts));
  EXPECT_EQ(launch.workspace.counter_bytes, 4U);
  EXPECT_EQ(launch.workspace.bytes,
            std::size_t{device::kCounterBytes} +
                std::size_t{4} * 144 * 16 * 4 * static_cast<std::size_t>(g.parts));
}

// Blocks that meet run at the same time, and the raster of y has room for all lines.
TEST(ConvGrouped, PartsRunAtTheSameTime) {
  RandomConvs random(std::random_device{}());
  const Target target = load_target("sm90a");
  int seen = 0;
  while (seen < 200) {
    ConvProblem p = random.problem();
    p.layout = ConvLayout::nhwgc;
    p.direction = ConvDirection::backward_weight;
    p.in = p.weight = p.out = p.d = DType::bf16;
    p.in_strides = p.weight_strides = p.out_strides = kPackedStrides;
    p.c *= random.integer(2, 90), p.k *= random.integer(2, 90);
    const Problem problem = p;
    for (const KernelSpec& spec : family().legal_candidates(problem, target)) {
      if (spec.algorithm.pipeline != Pipeline::grouped) continue;
      ++seen;
      const Launch launch = family().bind(spec, problem, target, ConvOperands{});
      const auto g = grouped_arguments(launch);
      SCOPED_TRACE(name_of(spec) + " on " + to_string(problem));
      EXPECT_TRUE(g.parts == 1 || g.waits == 1);
      EXPECT_GE(g.parts * g.tiles_of_part, g.tiles);
      if (spec.algorithm.stages == 1) continue;
      EXPECT_GE(g.other_image, g.raster_blocks * 16 * 16);
      const int last = (g.images - 1) * g.other_image + (g.box[0] - 1) * g.other_slice +
                       (g.box[1] - 1) * g.other_line + (g.other_box[2] - 1) * 16;
      EXPECT_LE(last + 16, g.other_plane);
      EXPECT_LE(g.image_bytes + g.other_plane * spec.algorithm.tile.n / 8, g.stage_bytes);
      EXPECT_EQ(launch.workspace.counter_bytes * static_cast<std::size_t>(g.parts),
                launch.steps[0].grid[0] * 4);
    }
  }
}

// As device code divides.
int divided(int value, const device::GroupedDivisor& by) {
  const std::uint64_t product = std::uint64_t{static_cast<unsigned>(value) * 2U} * by.magic;
  return static_cast<int>(product >> 32 >> by.shift);
}
TEST(ConvGrouped, QuotientsAreExact) {
  RandomConvs random(std::random_device{}());
  constexpr int kLargest = std::numeric_limits<int>::max();
  for (int i = 0; i < 20000; ++i) {
    const int bits = static_cast<int>(random.integer(0, 30));
    const int by =
        static_cast<int>(random.integer(std::int64_t{1} << bits, kLargest >> (30 - bits)));
    const device::GroupedDivisor divisor = grouped_divisor(by);
    const int any = static_cast<int>(random.integer(0, kLargest));
    const int multiple = any / by * by;
    for (const int value : {any, multiple, std::max(multiple - 1, 0), 0, kLargest}) {
      ASSERT_EQ(divided(value, divisor), value / by) << value << " / " << by;
    }
  }
}

// Groups and dense layers of few channels have such candidates.
TEST(ConvGrouped, GroupsAndNarrowLayersHaveCandidates) {
  const Target target = load_target("sm90a");
  const auto count = [&](const char* line) {
    int found = 0;
    for (const KernelSpec& spec : family().candidates(grouped_problem(line), target)) {
      if (spec.algorithm.pipeline != Pipeline::grouped) continue;
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("forward n=2 c=128 k=64 h=9 w=9 y=3 x=3"), 0);
  EXPECT_EQ(count("forward n=2 c=64 k=64 g=64 h=9 w=9 y=3 x=3"), 0);
  EXPECT_EQ(count("forward n=2 c=512 k=512 g=2 h=9 w=9 y=3 x=3"), 0);
  EXPECT_EQ(count("forward n=2 c=512 k=512 g=4 h=9 w=9 y=3 x=3"), 0);
  EXPECT_GT(count("forward n=2 c=64 k=64 g=4 h=9 w=9 y=3 x=3"), 4);
  EXPECT_EQ(count("forward n=2 c=24 k=96 h=9 w=9"), 0);
  EXPECT_EQ(count("forward n=2 c=20 k=96 h=9 w=9 y=3 x=3"), 0);
  EXPECT_GT(count("forward n=2 c=24 k=96 h=9 w=9 y=3 x=3"), 4);
  EXPECT_GT(count("forward n=2 c=96 k=320 h=9 w=9 y=3 x=3"), 4);
  EXPECT_GT(count("backward_data n=2 c=12 k=56 h=9 w=9"), 4);
  EXPECT_EQ(count("backward_data n=2 c=16 k=56 h=9 w=9"), 0);
  EXPECT_GT(count("forward n=2 c=8 k=256 h=9 w=9 y=3 x=3"), 4);
  EXPECT_GT(count("backward_weight n=2 c=64 k=64 ndim=3 d=9 h=9 w=9 z=3 y=3 x=3"), 4);
  EXPECT_GT(count("backward_data n=2 c=448 k=448 g=4 h=9 w=9 y=3 x=3"), 4);
  EXPECT_GT(count("backward_weight n=2 c=18 k=54 g=9 h=9 w=9 y=3 x=3"), 4);
}

}  // namespace
}  // namespace tessera::conv
