// Convolutions on a GPU against the fp64 reference: every essential kernel on random problems, all
// dimensions and types, any padding, strides of 0, gaps between lines, long sums in slices, and
// what the dispatcher chooses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "cuda/gpu_test.h"
#include "host/conv/conv_problems.h"
#include "tessera/base/processors.h"

namespace tessera {
namespace {

class GpuConv : public GpuTest {
 protected:
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool coin() { return draw(0, 1) == 1; }

  // One channel of x in each group; kernels for one filter have vectors of up to 4 channels.
  void draw_depthwise_channels(const Algorithm& a, ConvProblem& p) {
    const bool any_filter = a.warp_tile.k == 0;
    p.c = p.g = any_filter ? draw(1, 80) : 4 * draw(1, 40);
    p.k = any_filter ? p.g * draw(1, 3) : p.g;
  }

  // Shapes of grouped kernels are for a number of channels, filled up to a multiple of 8.
  void draw_grouped_channels(const Algorithm& a, ConvProblem& p) {
    const bool by_data = p.direction == ConvDirection::backward_data;
    const std::int64_t depth = a.tile.k - (coin() ? 0 : draw(0, 3));
    const std::int64_t columns = a.tile.n + (coin() ? 0 : draw(-7, 30));
    p.g = draw(2, 12);
    p.c = p.g * (by_data ? columns : depth), p.k = p.g * (by_data ? depth : columns);
  }

  // Few channels of many groups too, which a tile has several of.
  void draw_channels(const Algorithm& a, ConvProblem& p) {
    if (a.pipeline == Pipeline::depthwise) return draw_depthwise_channels(a, p);
    if (a.pipeline == Pipeline::grouped) return draw_grouped_channels(a, p);
    if (a.pointwise && a.slices > 1) {  // each slice needs a depth of its own
      p.g = 1, p.c = draw(1, 400), p.k = draw(1, 400);
      return;
    }
    const bool by_copy = a.pipeline == Pipeline::tmaws && !a.repack && !a.pointwise;
    if (!by_copy && draw(0, 2) == 0) {
      p.g = draw(2, 40);
      p.c = p.g * draw(1, 9);
      p.k = p.g * draw(1, 9);
      return;
    }
    p.g = coin() ? 1 : draw(1, 4);
    if (!by_copy && draw(0, 3) == 0) p.g = 32;
    const std::int64_t unit = !by_copy ? 1 : p.g == 1 ? 8 : 64;
    const std::int64_t most = unit == 64 ? 2 : p.g == 32 ? 12 : 160 / unit;
    p.c = p.g * unit * draw(1, most);
    p.k = p.g * unit * draw(1, most);
    if (!by_copy && p.g == 1 && draw(0, 3) == 0) p.c = draw(1, 4);  // a stem
  }

  void draw_dimension(const Algorithm& a, std::size_t dim, std::int64_t most, ConvProblem& p) {
    if (a.pointwise) {
      p.size[dim] = draw(1, most);
      return;
    }
    const bool one_filter = a.pipeline == Pipeline::depthwise && a.warp_tile.k > 0;
    do {
      p.size[dim] = draw(1, most);
      p.filter[dim] = one_filter ? a.warp_tile.k : draw(1, 4);
      p.stride[dim] = one_filter ? a.tile.k : draw(1, 3);
      p.dilation[dim] = one_filter ? 1 : draw(1, 2);
      convs_.draw_padding(dim, p);
    } while (out_size(p)[dim] < 1);
  }

  ConvProblem any_problem(const KernelSpec& spec) {
    const auto& s = std::get<ConvSignature>(spec.signature);
    constexpr std::int64_t kMostSizes[] = {0, 200, 30, 9};
    ConvProblem p;
    p.direction = s.direction, p.layout = s.layout, p.ndim = s.ndim;
    p.in = s.in, p.weight = s.weight, p.acc = s.acc, p.out = s.out, p.d = s.d;
    p.epilogue = s.epilogue;
    p.n = draw(1, 4) * (spec.algorithm.slices > 4 ? 16 : 1);
    p.size = {1, 1, 1};
    draw_channels(spec.algorithm, p);
    if (spec.algorithm.pointwise && s.layout == ConvLayout::nchw) p.n = p.g = 1;
    for (std::size_t dim = 3 - static_cast<std::size_t>(s.ndim); dim < 3; ++dim) {
      draw_dimension(spec.algorithm, dim, kMostSizes[s.ndim], p);
    }
    if (p.out != DType::int32 && draw(0, 2) == 0) p.alpha = 0.75F;
    if (draw(0, 2) == 0) p.beta = 2.0F;
    return p;
  }

  // One that the kernel serves, where it can with elements of what is read in one place.
  ConvProblem problem_for(const KernelSpec& spec) {
    for (;;) {
      const ConvProblem p = any_problem(spec);
      ConvProblem shared = p;
      convs_.share_places(shared);
      if (family_.supports(spec, shared, target_)) return shared;
      if (family_.supports(spec, p, target_)) return p;
    }
  }

  // Gaps behind the lines of x; channels of all groups stay side by side where they are.
  static void add_gaps(ConvProblem& p) {
    p.in_strides = with_strides(p).in_strides;
    const bool by_line = p.layout == ConvLayout::nhwgc;
    for (const std::size_t i : {0U, 1U, 2U, 3U, 4U}) {
      if (!by_line || (i != 1 && i != 2)) p.in_strides[i] *= 2;
    }
  }

  // Compares a fresh sample: whole problems would take the reference longer than the kernels.
  void expect_sample_correct(const Problem& problem, const measure::OwnedOperands& owned) {
    const ReferenceLimits limits = {
        .multiplications = 0x1p23, .seed = random_(), .threads = usable_processors()};
    const Mismatch mismatch = family_.compare(problem, owned.operands,
                                              family_.reference(problem, owned.operands, limits));
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }

  void check(const std::string& kernel, const Problem& problem) {
    check_twice(kernel, problem, [this](const Problem& p, const measure::OwnedOperands& owned) {
      expect_sample_correct(p, owned);
    });
  }

  void check_names(std::initializer_list<const char*> names) {
    std::vector<KernelSpec> specs;
    for (const char* name : names) {
      specs.push_back(parse_name(name));
      ASSERT_EQ(family_.is_legal(specs.back(), target_).reason, "") << name;
    }
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      for (int i = 0; i < 6; ++i) check(name_of(spec), problem_for(spec));
    }
  }

  const Family& family_ = family_of(Op::conv);
  conv::RandomConvs convs_{random_()};
};

TEST_F(GpuConv, EveryEssentialKernelIsCorrectOnRandomProblems) {
  const std::vector<KernelSpec> specs = essential(family_);
  ASSERT_EQ(specs.size(), 334U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    const std::string name = name_of(spec);
    for (const Problem& problem : family_.samples(spec, target_)) check(name, problem);
    for (int i = 0; i < 3; ++i) check(name, problem_for(spec));
  }
}

TEST_F(GpuConv, EveryTypeIsCorrectOnOrdinaryCores) {
  check_names({
      "conv_forward_tf32_nhwgc_2d_direct_64x64x16_2x2x1_4x8x1_sm90a",
      "conv_forward_fp8_nhwgc_2d_direct_64x64x16_2x2x1_4x8x1_sm90a",
      "conv_forward_bf8_nchw_3d_direct_64x64x16_2x2x1_4x8x1_sm90a",
      "conv_forward_int8_nhwgc_1d_direct_64x64x16_2x2x1_4x8x1_sm90a",
      "conv_forward_fp16_nchw_3d_direct_64x64x16_2x2x1_4x8x1_bias_add_relu_sm90a",
      "conv_backwarddata_tf32_nchw_2d_direct_64x64x16_2x2x1_4x8x1_sm90a",
      "conv_backwarddata_bf16_nhwgc_3d_direct_64x64x16_2x2x1_4x8x1_sm90a",
      "conv_backwardweight_fp16_nhwgc_1d_direct_64x64x16_2x2x1_4x8x1_sm90a",
      "conv_backwardweight_fp32_nchw_3d_direct_64x64x16_2x2x1_4x8x1_sm90a",
  });
}

TEST_F(GpuConv, EveryDimensionIsCorrectByCopies) {
  check_names({
      "conv_forward_fp16_nhwgc_1d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_s8_sm90a",
      "conv_forward_bf16_nhwgc_3d_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_sm90a",
      "conv_forward_bf16_nhwgc_2d_tmaws_128x160x64_2x1x1_64x160x16_bias_add_relu_pingpong_s5_sm90a",
      "conv_forward_fp16_nhwgc_3d_tmaws_64x64x64_1x1x1_64x64x16_bias_cooperative_splitordered1_"
      "slices3_s6_sm90a",
      "conv_backwarddata_bf16_nhwgc_1d_tmaws_192x64x64_3x1x1_64x64x16_cooperative_s6_sm90a",
      "conv_backwarddata_fp16_nhwgc_3d_tmaws_128x80x64_2x1x1_64x80x16_pingpong_s6_sm90a",
      "conv_backwardweight_bf16_nhwgc_1d_tmaws_64x128x64_1x1x1_64x128x16_cooperative_s8_sm90a",
      "conv_backwardweight_fp16_nhwgc_3d_tmaws_128x128x64_2x1x1_64x128x16_cooperative_"
      "splitordered1_slices6_s6_sm90a",
  });
}

TEST_F(GpuConv, EveryDimensionIsCorrectDepthwise) {
  check_names({
      "conv_forward_bf16_nhwgc_1d_depthwise_64x128x2_2x2x1_4x4x3_sm90a",
      "conv_forward_fp16_nhwgc_3d_depthwise_32x128x1_2x2x1_2x4x3_bias_add_relu_sm90a",
      "conv_forward_fp32_nhwgc_3d_depthwise_112x64x1_2x2x1_4x7x5_bias_sm90a",
      "conv_backwarddata_fp16_nhwgc_1d_depthwise_64x64x2_2x2x1_4x4x5_sm90a",
      "conv_backwarddata_bf16_nhwgc_3d_depthwise_64x128x2_2x2x1_4x4x3_sm90a",
      "conv_backwardweight_fp32_nhwgc_1d_depthwise_32x64x2_2x2x1_2x4x5_splitordered1_slices4_sm90a",
      "conv_backwardweight_bf16_nhwgc_3d_depthwise_32x128x1_2x2x1_2x4x3_sm90a",
  });
}

TEST_F(GpuConv, EveryTypeAndDimensionIsCorrectByGathering) {
  check_names({
      "conv_forward_bf16_nhwgc_1d_cpasync_128x64x64_2x2x1_16x8x16_bias_add_relu_s3_sm90a",
      "conv_forward_fp16_nhwgc_3d_cpasync_64x128x32_2x2x1_16x8x16_s4_sm90a",
      "conv_forward_fp16_nchw_3d_cpasync_256x32x32_4x1x1_16x8x16_s4_sm90a",
      "conv_forward_tf32_nchw_1d_cpasync_64x64x16_2x2x1_16x8x8_s4_sm90a",
      "conv_forward_int8_nchw_2d_cpasync_128x64x64_2x2x1_16x8x32_s4_sm90a",
      "conv_forward_fp8_nchw_2d_cpasync_64x64x64_2x2x1_16x8x16_s3_sm90a",
      "conv_forward_bf8_nhwgc_3d_cpasync_128x64x64_2x2x1_16x8x16_s3_sm90a",
      "conv_backwarddata_fp16_nhwgc_3d_cpasync_64x64x32_2x2x1_16x8x16_s4_sm90a",
      "conv_backwarddata_bf16_nchw_1d_cpasync_64x128x32_2x2x1_16x8x16_s4_sm90a",
      "conv_backwarddata_tf32_nchw_3d_cpasync_64x64x16_2x2x1_16x8x8_s4_sm90a",
      "conv_backwardweight_bf16_nhwgc_1d_cpasync_256x32x32_4x1x1_16x8x16_s4_sm90a",
      "conv_backwardweight_fp16_nhwgc_3d_cpasync_64x128x32_2x2x1_16x8x16_s4_sm90a",
      "conv_backwardweight_fp16_nchw_3d_cpasync_64x64x32_2x2x1_16x8x16_splitordered1_slices2_s4_"
      "sm90a",
      "conv_backwardweight_tf32_nchw_2d_cpasync_64x64x16_2x2x1_16x8x8_splitordered1_slices4_s4_"
      "sm90a",
  });
}

// Several groups share a tile, and padding is multiplied: what does not exist must not turn a
// neighbour's sums into NaN.
TEST_F(GpuConv, NotANumberStaysInItsGroup) {
  constexpr const char* kLine =
      "conv direction={} n=2 c=32 k=32 g=8 h=9 w=9 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16";
  const std::pair<const char*, const char*> cases[] = {
      {"forward", "conv_forward_bf16_nhwgc_2d_cpasync_128x64x32_2x2x1_16x8x16_s4_sm90a"},
      {"backward_data", "conv_backwarddata_bf16_nhwgc_2d_cpasync_128x64x32_2x2x1_16x8x16_s4_sm90a"},
      {"backward_weight",
       "conv_backwardweight_bf16_nhwgc_2d_cpasync_64x64x32_2x2x1_16x8x16_s4_sm90a"}};
  for (const auto& [direction, kernel] : cases) {
    const Problem problem = parse_problem(fmt::format(fmt::runtime(kLine), direction));
    measure::OwnedOperands owned = measure::random_operands(problem, random_());
    constexpr std::uint16_t kInfinity = 0x7f80;
    for (const std::size_t operand : {0U, 1U, 2U}) {
      const void* const data = family_.pointer(owned.operands, operand);
      if (data == nullptr) continue;
      auto* const elements = static_cast<std::uint16_t*>(const_cast<void*>(data));
      elements[draw(0, 1000)] = kInfinity;
    }
    measure::PlacedOperands placed = place(owned);
    run(problem, owned, placed, placed.operands, kernel);
    SCOPED_TRACE(kernel);
    expect_correct(problem, owned);
  }
}

TEST_F(GpuConv, EveryDimensionIsCorrectWithCopiedOperands) {
  check_names({
      "conv_forward_bf16_nchw_2d_tmaws_128x80x64_2x1x1_64x80x16_bias_add_relu_cooperative_s6_"
      "repack_sm90a",
      "conv_forward_fp16_nchw_1d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_s8_repack_sm90a",
      "conv_forward_bf16_nhwgc_3d_tmaws_128x128x64_2x1x1_64x128x16_bias_relu_pingpong_s6_repack_"
      "sm90a",
      "conv_backwarddata_bf16_nchw_3d_tmaws_192x128x64_3x1x1_64x128x16_cooperative_s5_repack_sm90a",
      "conv_backwarddata_fp16_nhwgc_1d_tmaws_128x160x64_2x1x1_64x160x16_pingpong_s5_repack_sm90a",
      "conv_backwardweight_bf16_nchw_1d_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_repack_"
      "sm90a",
      "conv_backwardweight_fp16_nhwgc_3d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_"
      "slices4_s9_repack_sm90a",
  });
}

// Tiles whose slices all run at the same time, in one round of blocks and in several, and tiles
// whose slices run in two rounds.
TEST_F(GpuConv, SlicesHaveEqualBitsInEveryRun) {
  constexpr const char* kWeight =
      "conv direction=backward_weight n=16 c={} k={} h=14 w=14 beta={} dtype=bf16";
  constexpr const char* k128x128 =
      "conv_backwardweight_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_cooperative_"
      "splitordered1_slices3_s6_sm90a";
  constexpr const char* k64x64 =
      "conv_backwardweight_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_"
      "slices48_s9_sm90a";
  for (const char* kernel : {k128x128, k64x64}) {
    for (const int channels : {64, 208, 1024}) {
      for (const int beta : {0, 1}) {
        const Problem problem =
            parse_problem(fmt::format(fmt::runtime(kWeight), channels, channels / 2, beta));
        SCOPED_TRACE(fmt::format("{} on '{}', seed {}", kernel, to_string(problem), seed_));
        measure::OwnedOperands owned = measure::random_operands(problem, random_());
        measure::PlacedOperands placed = place(owned);
        const auto bits = run(problem, owned, placed, placed.operands, kernel);
        expect_correct(problem, owned);
        for (int i = 0; i < 20; ++i) {
          EXPECT_TRUE(run(problem, owned, placed, placed.operands, kernel) == bits) << i;
        }
      }
    }
  }
}

TEST_F(GpuConv, GapsBetweenLinesAreLeftAlone) {
  for (const char* name :
       {"conv_forward_bf16_nhwgc_2d_depthwise_112x64x1_2x2x1_4x7x7_sm90a",
        "conv_backwarddata_bf16_nhwgc_2d_depthwise_64x128x2_2x2x1_4x4x3_sm90a",
        "conv_forward_bf16_nchw_2d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_s8_repack_sm90a",
        "conv_backwarddata_bf16_nhwgc_2d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_s8_repack_sm90a",
        "conv_backwardweight_bf16_nhwgc_2d_tmaws_64x64x64_1x1x1_64x64x16_cooperative_s9_repack_"
        "sm90a",
        "conv_backwarddata_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a",
        "conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a",
        "conv_backwarddata_bf16_nchw_2d_direct_64x64x16_2x2x1_4x8x1_sm90a"}) {
    const KernelSpec spec = parse_name(name);
    for (int i = 0; i < 6; ++i) {
      ConvProblem p = problem_for(spec);
      add_gaps(p);
      check(name, p);
    }
  }
}

TEST_F(GpuConv, KernelsThatTheDispatcherChoosesAreCorrect) {
  constexpr const char* kLayer =
      "conv direction={} n=8 c=128 k=256 h=28 w=28 y=3 x=3 stride_h={} stride_w={} pad_h=1 pad_w=1 "
      "dtype=bf16";
  for (const char* direction : {"forward", "backward_data", "backward_weight"}) {
    for (const int stride : {1, 2}) {
      const Problem problem =
          parse_problem(fmt::format(fmt::runtime(kLayer), direction, stride, stride));
      check(name_of(dispatcher_->kernel_for(problem).spec), problem);
    }
  }
}

TEST_F(GpuConv, RunVerifiesOnTheDevice) {
  run_and_verify(parse_problem(
      "conv direction=forward n=4 c=64 k=64 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16 "
      "epilogue=bias+relu"));
}

}  // namespace
}  // namespace tessera
