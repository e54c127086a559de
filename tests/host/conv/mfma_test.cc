// Convolutions by MFMA on the host: which kernels are legal, and which problems they leave to
// others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/families/conv/conv.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

struct MfmaText {
  const char* words;
  const char* text;
};

constexpr MfmaText kIllegalMfma[] = {
    {"conv_forward_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_gfx942", ""},
    {"conv_backwardweight_bf16_nhwgc_3d_async_256x128x64_4x2x1_32x32x16_intrawave_s2_gfx950", ""},
    {"conv_forward_fp16_nchw_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_gfx942",
     "kernels by MFMA need neighbouring channels, layout nhwgc, got nchw"},
    {"conv_forward_fp8_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x32_intrawave_gfx90a",
     "gfx90a has no instruction mfma for fp8 x fp8 -> fp32"},
    {"conv_backwarddata_fp32_nhwgc_2d_async_128x128x32_2x2x1_32x32x8_intrawave_s2_gfx950",
     "async transposes elements of 16 bits for backward_data, got fp32"},
    {"conv_forward_fp16_nhwgc_2d_async_128x128x64_2x2x1_32x32x16_intrawave_gfx950",
     "async takes 2 to 3 stages on gfx950, got 1"},
    {"conv_forward_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_splitordered1_slices4_"
     "gfx942",
     "the depth of backward_weight is cut into 1 to 64 slices, got 4 of forward"},
    {"conv_forward_fp16_nhwgc_2d_compv4_128x128x128_2x2x1_32x32x16_intrawave_gfx942",
     "tiles are 1x1 to 256x256 and 64 or 128 bytes of the depth, got 128x128x128 of fp16"},
    {"conv_backwarddata_fp16_nhwgc_2d_compv4_128x0x64_4x1x1_32x32x16_intrawave_gfx942",
     "tiles are 1x1 to 256x256 and 64 or 128 bytes of the depth, got 128x0x64 of fp16"},
    {"conv_backwardweight_fp16_nhwgc_2d_compv4_128x64x64_2x2x1_32x32x16_intrawave_gfx942",
     "256 lanes don't move tiles of 64 columns and 64 of the depth in whole rounds in "
     "backward_weight, as compv4 does"},
};

TEST(ConvMfma, SaysWhichKernelsAreLegal) {
  for (const auto& [name, text] : kIllegalMfma) {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, text) << name;
  }
}

// Copies make channels last and whole chunks of them, and small groups one; what lies so already
// is read in place.
TEST(ConvMfma, RepackCopiesWhatItMust) {
  const Target target = load_target("gfx942");
  struct Row {
    const char *direction, *layout, *fields;
    std::size_t steps, copied;
  };
  constexpr Row kRows[] = {
      {"forward", "nhwgc", "c=3 k=64", 2, 2 * 81 * 8 * 2 + 64 * 8 * 2},
      {"forward", "nchw", "c=64 k=40", 2, 2 * 81 * 64 * 2 + 40 * 64 * 2},
      {"forward", "nhwgc", "c=64 k=64 g=16", 2, 64 * 64 * 2},
      {"backward_data", "nhwgc", "c=6 k=12 g=2", 2, 2 * 81 * 16 * 2 + 16 * 8 * 2},
      {"backward_weight", "nhwgc", "c=64 k=64 g=8", 1, 0},
      {"backward_weight", "nhwgc", "c=3 k=64", 2, 2 * 81 * 8 * 2},
      {"backward_weight", "nchw", "c=3 k=12", 2, 2 * 81 * 8 * 2 + 2 * 81 * 16 * 2},
  };
  for (const Row& row : kRows) {
    const Problem problem =
        parse_problem(fmt::format("conv direction={} layout={} n=2 {} h=9 w=9 dtype=fp16",
                                  row.direction, row.layout, row.fields));
    std::string word = row.direction;
    std::erase(word, '_');
    const KernelSpec spec = parse_name(
        fmt::format("conv_{}_fp16_{}_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_repack_gfx942",
                    word, row.layout));
    EXPECT_EQ(family().is_legal(spec, target).reason, "");
    EXPECT_EQ(family().supports(spec, problem, target).reason, "");
    const Launch launch = family().bind(spec, problem, target, ConvOperands{});
    ASSERT_EQ(launch.steps.size(), row.steps) << row.direction << " " << row.fields;
    EXPECT_EQ(launch.steps[0].copied_bytes, row.copied) << row.direction << " " << row.fields;
  }
}

constexpr MfmaText kUnservedMfma[] = {
    {"n=1 c=64 k=60 h=9 w=9 y=3 x=3", ""},
    {"n=2 c=64 k=64 h=9 w=9 y=15 x=1 pad_h=7 in_stride_n=0", ""},
    {"n=1 c=60 k=64 h=9 w=9",
     "compv4 needs multiples of 8 channels in a group, got c/g=60; use a direct kernel"},
    {"n=1 c=64 k=64 h=19 w=9 y=16",
     "compv4 takes filters of up to 15 taps a side, got 1x16x1; use a direct kernel"},
    {"n=1 c=64 k=64 h=9 w=9 in_stride_w=65 in_stride_h=1000 in_stride_n=10000",
     "compv4 loads dwords: in_stride_w must be a multiple of 2, got 65; use a direct kernel"},
    {"n=1 c=64 k=64 h=8000 w=8000 y=3 x=3",
     "compv4 counts bytes of the images that a block reads up to 2147482624, got 8201217280; use a "
     "direct kernel"},
};

TEST(ConvMfma, SaysWhichProblemsItServes) {
  const Target target = load_target("gfx942");
  KernelSpec spec =
      parse_name("conv_forward_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_gfx942");
  for (const auto& [words, text] : kUnservedMfma) {
    const Problem p = parse_problem(std::string("conv direction=forward dtype=fp16 ") + words);
    EXPECT_EQ(family().supports(spec, p, target).reason, text) << words;
  }
  spec = parse_name(
      "conv_backwarddata_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_gfx942");
  const Problem p = parse_problem(
      "conv direction=backward_data dtype=fp16 n=1 c=64 k=64 h=40 w=40 y=5 x=5 stride_h=5 "
      "stride_w=4");
  EXPECT_EQ(family().supports(spec, p, target).reason,
            "compv4 takes up to 16 residues of the strides, got 20 of 1x5x4; use a direct kernel");
}

// A block for each tile of the pixels of the largest residue.
TEST(ConvMfma, GradientsByXHaveBlocksForAllPixels) {
  const KernelSpec spec = parse_name(
      "conv_backwarddata_fp16_nhwgc_2d_compv4_128x64x64_2x2x1_32x32x16_intrawave_gfx942");
  const Target target = load_target("gfx942");
  for (const auto& [fields, blocks] :
       {std::pair{"h=14 w=30", 2 * 14 * 30}, {"h=14 w=30 stride_h=2 stride_w=2", 2 * 7 * 15}}) {
    const Problem problem = parse_problem(
        std::string(
            "conv direction=backward_data dtype=fp16 n=2 c=64 k=64 y=3 x=3 pad_h=1 pad_w=1 ") +
        fields);
    const Launch launch = family().bind(spec, problem, target, ConvOperands{});
    EXPECT_EQ(launch.steps[0].grid[0], static_cast<unsigned>((blocks + 127) / 128)) << fields;
  }
}

// The second entry is for steps of the depth, or tiles of columns, that lie in one tap.
TEST(ConvMfma, WholeTapsHaveAnEntry) {
  const Target target = load_target("gfx942");
  struct Row {
    const char *direction, *channels;
    unsigned entry;
  };
  for (const auto& [direction, channels, entry] : {Row{"forward", "c=128 k=40", 1},
                                                   {"forward", "c=96 k=64", 0},
                                                   {"backward_data", "c=40 k=64", 1},
                                                   {"backward_data", "c=64 k=72", 0},
                                                   {"backward_weight", "c=128 k=8", 1},
                                                   {"backward_weight", "c=64 k=64", 0},
                                                   {"forward", "c=128 k=128 g=2", 1},
                                                   {"forward", "c=64 k=128 g=2", 0}}) {
    const Problem problem = parse_problem(
        fmt::format("conv direction={} n=1 {} h=9 w=9 y=3 x=3 dtype=fp16", direction, channels));
    std::string word = direction;
    std::erase(word, '_');
    const KernelSpec spec = parse_name(fmt::format(
        "conv_{}_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_gfx942", word));
    EXPECT_EQ(family().emit(spec, target).entries.size(), 2U);
    EXPECT_EQ(family().bind(spec, problem, target, ConvOperands{}).steps[0].entry, entry)
        << direction << " " << channels;
  }
  const KernelSpec copied = parse_name(
      "conv_backwardweight_fp16_nhwgc_2d_async_128x128x64_2x2x1_32x32x16_intrawave_s2_gfx950");
  EXPECT_EQ(family().emit(copied, load_target("gfx950")).entries.size(), 1U);
}

TEST(ConvMfma, RefusesAddressesThatAreNoDwords) {
  const Target target = load_target("gfx942");
  const KernelSpec spec =
      parse_name("conv_forward_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_gfx942");
  const Problem p = parse_problem("conv direction=forward dtype=fp16 n=1 c=64 k=64 h=9 w=9");
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  ConvOperands operands{.in = at(4096), .weight = at(8194), .out = at(16386)};
  EXPECT_EQ(family().bind(spec, p, target, operands).steps.size(), 1U);
  operands.in = at(4098);
  EXPECT_ANY_THROW(family().bind(spec, p, target, operands));
}

}  // namespace
}  // namespace tessera::conv
