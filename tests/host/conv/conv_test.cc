// Convolutions without running any: validity, sizes, operands, kernels, launches.
#include "tessera/device/conv.h"
#include "tessera/base/error.h"
#include "tessera/families/conv/conv.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "host/families/asked.h"
#include "host/families/listed.h"
#include "tessera/families/operands.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

// ---- problems ----

struct BadProblem {
  const char* line;
  const char* sentence;
};
constexpr BadProblem kBadProblems[] = {
    {"conv direction=forward n=-1 c=8 k=8 w=5", "conv: n must be at least 0, got -1"},
    {"conv direction=forward n=1 c=0 k=8 w=5", "conv: c must be at least 1, got 0"},
    {"conv direction=forward n=1 c=8 k=8", "conv: w must be at least 1, got 0"},
    {"conv direction=forward n=1 c=8 k=8 w=5 g=3", "conv: g must divide c, got g=3 and c=8"},
    {"conv direction=forward n=1 c=9 k=8 w=5 g=3", "conv: g must divide k, got g=3 and k=8"},
    {"conv direction=forward n=1 c=8 k=8 w=5 stride_w=0",
     "conv: stride_w must be at least 1, got 0"},
    {"conv direction=forward n=1 c=8 k=8 w=5 dilation_w=0",
     "conv: dilation_w must be at least 1, got 0"},
    {"conv direction=forward n=1 c=8 k=8 w=5 x=0", "conv: x must be at least 1, got 0"},
    {"conv direction=forward n=1 c=8 k=8 h=9 w=9 pad_right_w=-2147483648",
     "conv: pad_right_w must be at least -2147483647, got -2147483648"},
    {"conv direction=forward n=1 c=8 k=8 h=9 w=9 y=3 x=3 pad_right_w=-7",
     "conv: the output is empty: the filter extends over 3 w, which has 2 with its padding"},
    {"conv direction=forward n=1 c=8 k=8 h=9 w=9 y=3 x=3 pad_w=-1",
     "conv: pad_w must be at least 0, got -1"},
    {"conv direction=forward n=1 c=8 k=8 h=2 w=9 y=3 x=3",
     "conv: the output is empty: the filter extends over 3 h, which has 2 with its padding"},
    {"conv direction=forward n=1 c=8 k=8 h=9 w=9 ndim=4", "conv: ndim must be 1, 2 or 3, got 4"},
    {"conv direction=forward n=1 c=8 k=8 h=9 w=9 ndim=1", "conv: h must be 1 with ndim=1, got 9"},
    {"conv direction=forward n=1 c=8 k=8 d=3 h=9 w=9", "conv: d must be 1 with ndim=2, got 3"},
    {"conv direction=forward n=1 c=8 k=8 w=9 z=3", "conv: z must be 1 with ndim=2, got 3"},
    {"conv direction=forward n=1 c=8 k=8 w=9 stride_d=2",
     "conv: stride_d must be 1 with ndim=2, got 2"},
    {"conv direction=forward n=1 c=8 k=8 w=9 pad_right_d=2",
     "conv: pad_right_d must be 0 with ndim=2, got 2"},
    {"conv direction=forward n=1 c=8 k=8 w=2147483648",
     "conv: w must be at most 2147483647, got 2147483648"},
    {"conv direction=forward n=2147483647 c=2147483647 k=8 w=1",
     "conv: bytes of x, n x c x d x h x w x 4, must be below 2^63, got 2147483647 x 2147483647 x 1 "
     "x 1 x 1 x 4"},
    {"conv direction=forward n=65536 c=65536 k=65536 h=65536 w=4096",
     "conv: operations, 2 x n x k x size of y x c / g x filter, must be below 2^63, got 2 x 65536 "
     "x 65536 x 1 x 65536 x 4096 x 65536 x 1 x 1 x 1"},
    {"conv direction=forward n=1 c=8 k=8 w=5 dtype=int32",
     "conv: in must be fp32, tf32, fp16, bf16, fp8, bf8 or int8, got int32"},
    {"conv direction=forward n=1 c=8 k=8 w=5 dtype=bf16,fp16",
     "conv: weight must be bf16 when in is bf16, got fp16; convert one of them"},
    {"conv direction=backward_data n=1 c=8 k=8 w=5 dtype=int8",
     "conv: backward_data takes fp32, tf32, fp16 and bf16, got int8"},
    {"conv direction=backward_weight n=1 c=8 k=8 w=5 dtype=fp8",
     "conv: backward_weight takes fp32, tf32, fp16 and bf16, got fp8"},
    {"conv direction=backward_weight n=1 c=8 k=8 w=5 epilogue=relu",
     "conv: backward_weight takes no epilogue, got relu"},
    {"conv direction=forward n=1 c=8 k=8 w=5 epilogue=row_scale",
     "conv: an image has no rows to scale, got row_scale; use col_scale for channels"},
    {"conv direction=forward n=1 c=8 k=8 w=5 dtype=int8 epilogue=relu",
     "conv: out=int32 is exact and takes no epilogue, got relu; use out=fp32"},
    {"conv direction=forward n=1 c=8 k=8 w=5 dtype=int8 alpha=0.5",
     "conv: alpha must be a whole number of at most 2^30 when out is int32, got 0.5; use out=fp32"},
    {"conv direction=forward n=1 c=8 k=8 w=5 alpha=inf", "conv: alpha must be finite, got inf"},
    {"conv direction=forward n=1 c=8 k=8 w=5 clamp_lo=1 clamp_hi=0 epilogue=clamp",
     "conv: clamp_lo must not be above clamp_hi, got 1 and 0"},
    {"conv direction=forward n=1 c=8 k=8 w=5 in_stride_c=2",
     "conv: the innermost stride of in must be 1 in layout nhwgc, got 2"},
    {"conv direction=forward n=1 c=8 k=8 w=5 layout=nchw in_stride_w=2",
     "conv: the innermost stride of in must be 1 in layout nchw, got 2"},
    {"conv direction=forward n=1 c=8 k=8 w=5 in_stride_w=-8",
     "conv: strides of in must be at least 0, got -8"},
    {"conv direction=forward n=2 c=8 k=8 w=5 out_stride_n=8",
     "conv: strides must not fold out onto itself: 8 is less than the 40 elements that smaller "
     "strides span"},
    {"conv direction=forward n=1 c=8 k=8 w=5 out_stride_w=7",
     "conv: strides must not fold out onto itself: 7 is less than the 8 elements that smaller "
     "strides span"},
    {"conv direction=backward_data n=1 c=8 k=8 w=5 in_stride_w=0",
     "conv: strides must not fold grad_in onto itself: 0 is less than the 1 elements that smaller "
     "strides span"},
    {"conv direction=forward n=3 c=8 k=8 w=5 in_stride_n=4611686018427387904",
     "conv: the last byte of in must be below 2^63, got strides of up to 4611686018427387904"},
};

TEST(ConvValidate, SaysWhatIsWrong) {
  for (const BadProblem& row : kBadProblems) {
    EXPECT_EQ(refusal(parse_problem(row.line)), row.sentence) << row.line;
  }
  ConvProblem damaged;
  damaged.direction = static_cast<ConvDirection>(9);
  EXPECT_EQ(refusal(damaged), "conv: direction must be a number from 0 to 2, got 9");
}

TEST(ConvValidate, AcceptsWhatIsAllowed) {
  for (const char* line : {
           "conv direction=forward n=0 c=1 k=1 w=1",
           "conv direction=forward n=2 c=6 k=9 g=3 h=5 w=4 y=3 x=2 pad_h=2 pad_right_h=0 "
           "dtype=int8",
           "conv direction=forward n=2 c=6 k=9 w=4 dtype=fp8,bf8 out=bf16 epilogue=bias+add+gelu",
           "conv direction=forward n=2 c=6 k=9 w=4 dtype=int8 out=int8 epilogue=col_scale+clamp",
           "conv direction=backward_weight n=2 c=6 k=9 w=4 dtype=bf16,fp32",
           "conv direction=backward_data n=2 c=6 k=9 w=4 dtype=fp32 out=fp32 beta=1",
           "conv direction=forward n=2 c=1 k=1 h=3 w=4 in_stride_c=17 in_stride_n=0",
           "conv direction=forward ndim=3 n=2 c=4 k=4 d=3 h=3 w=4 z=2 y=2 x=2 layout=ncdhw",
       }) {
    EXPECT_EQ(refusal(parse_problem(line)), "") << line;
  }
}

TEST(ConvProblem, IsBuiltFromSizes) {
  ConvProblem built =
      conv_problem(DType::int8, ConvDirection::forward, 2, 6, 9, {4, 11, 20}, {1, 3, 5});
  built.stride = {1, 2, 2};
  EXPECT_EQ(Problem(built),
            parse_problem("conv direction=forward ndim=3 n=2 c=6 k=9 d=4 h=11 w=20 y=3 x=5 "
                          "stride_h=2 stride_w=2 dtype=int8"));
  EXPECT_EQ(Problem(conv_problem(DType::bf16, ConvDirection::backward_weight, 1, 8, 8, {7}, {3})),
            parse_problem("conv direction=backward_weight ndim=1 n=1 c=8 k=8 w=7 x=3 dtype=bf16"));
  EXPECT_EQ(error_of(
                [] {
                  conv_problem(DType::bf16, ConvDirection::forward, 1, 8, 8, {7, 7}, {3});
                },
                ErrorCode::invalid_argument),
            "conv: images and filters have the same 1 to 3 dimensions, got 2 and 1");
}

TEST(ConvSizes, FollowFromTheProblem) {
  const auto p = conv_of(parse_problem(
      "conv direction=forward n=2 c=6 k=9 g=3 h=11 w=20 y=3 x=4 stride_h=2 dilation_w=3 pad_h=1 "
      "pad_right_h=2 pad_w=5"));
  EXPECT_EQ(out_size(p), (Spatial{1, 6, 21}));  // (11 + 3 - 2 - 1) / 2 + 1, 20 + 10 - 9 - 1 + 1
  EXPECT_EQ(flops(p), 2.0 * 2 * 6 * 21 * 9 * 2 * 3 * 4);
  EXPECT_EQ(view_of(p).rows, 2 * 6 * 21);
  EXPECT_EQ(view_of(p).columns, 3);
  EXPECT_EQ(view_of(p).depth, 2 * 3 * 4);
  EXPECT_FALSE(is_pointwise(p));
  EXPECT_FALSE(is_depthwise(p));
}

TEST(ConvSizes, ViewsOfGradients) {
  ConvProblem p = conv_of(
      parse_problem("conv direction=backward_data n=2 c=6 k=9 g=3 h=5 w=7 y=3 x=3 stride_w=2"));
  EXPECT_EQ(view_of(p).rows, 2 * 5 * 7);
  EXPECT_EQ(view_of(p).columns, 2);
  EXPECT_EQ(view_of(p).depth, 3 * 3 * 3);
  p.direction = ConvDirection::backward_weight;
  EXPECT_EQ(view_of(p).rows, 3);
  EXPECT_EQ(view_of(p).columns, 3 * 3 * 2);
  EXPECT_EQ(view_of(p).depth, 2 * 3 * 3);
}

TEST(ConvSizes, KindsOfLayers) {
  EXPECT_TRUE(is_depthwise(
      conv_of(parse_problem("conv direction=forward n=1 c=8 k=16 g=8 h=5 w=5 y=3 x=3"))));
  EXPECT_TRUE(is_pointwise(conv_of(parse_problem("conv direction=forward n=1 c=8 k=16 h=5 w=5"))));
  EXPECT_FALSE(is_pointwise(
      conv_of(parse_problem("conv direction=forward n=1 c=8 k=16 h=5 w=5 stride_h=2"))));
}

// ---- operands ----

std::string listed(const char* line) {
  std::string text;
  for (const Tensor& tensor : tensors(parse_problem(line))) {
    text += std::string(tensor.name) + (tensor.is_written() ? "! " : " ") +
            std::to_string(tensor.elements()) + ", ";
  }
  return text;
}

TEST(ConvTensors, OfEachDirection) {
  EXPECT_EQ(listed("conv direction=forward n=2 c=4 k=8 g=2 h=5 w=5 y=3 x=3 beta=1 "
                   "epilogue=bias+add"),
            "in 200, weight 144, c 144, d0 8, d1 144, out! 144, ");
  EXPECT_EQ(listed("conv direction=backward_data n=2 c=4 k=8 g=2 h=5 w=5 y=3 x=3"),
            "weight 144, grad_out 144, grad_in! 200, ");
  EXPECT_EQ(listed("conv direction=backward_weight n=2 c=4 k=8 g=2 h=5 w=5 y=3 x=3 beta=1"),
            "in 200, grad_out 144, c 144, grad_weight! 144, ");
}

// Images by (n, g, c, d, h, w), filters by (g, k, c, z, y, x).
TEST(ConvTensors, StridesOfLayouts) {
  ConvProblem p =
      conv_of(parse_problem("conv direction=forward n=2 c=6 k=8 g=2 h=5 w=7 y=3 x=2 layout=nhwgc"));
  EXPECT_EQ(with_strides(p).in_strides, (ConvStrides{210, 3, 1, 210, 42, 6}));
  EXPECT_EQ(with_strides(p).weight_strides, (ConvStrides{72, 18, 1, 18, 6, 3}));
  EXPECT_EQ(with_strides(p).out_strides, (ConvStrides{144, 4, 1, 144, 48, 8}));
  p.layout = ConvLayout::nchw;
  EXPECT_EQ(with_strides(p).in_strides, (ConvStrides{210, 105, 35, 35, 7, 1}));
  EXPECT_EQ(with_strides(p).weight_strides, (ConvStrides{72, 18, 6, 6, 2, 1}));
}

TEST(ConvOperandsTest, OutputsMustNotOverlap) {
  alignas(64) static std::byte memory[1 << 14];
  const Problem problem =
      parse_problem("conv direction=backward_data n=1 c=4 k=4 h=5 w=5 y=3 x=3 pad_h=1 pad_w=1");
  ConvOperands o;
  o.weight = memory;
  o.grad_out = memory + 1024;
  o.grad_in = memory + 1028;
  EXPECT_EQ(error_of([&] { validate_operands(family(), problem, o); }, ErrorCode::invalid_argument),
            "conv: grad_in must not overlap grad_out, got grad_in 4 bytes after the start of "
            "grad_out, which spans 400 bytes");
  o.grad_in = nullptr;
  EXPECT_EQ(error_of([&] { validate_operands(family(), problem, o); }, ErrorCode::invalid_argument)
                .substr(0, 31),
            "conv: grad_in must not be null:");
}

// ---- words ----

TEST(ConvWords, ForeignRowsAreReadByTheirKeys) {
  const ProblemWords words = {{"n", "2"},        {"c", "8"},     {"k", "4"},  {"g", "2"},
                              {"hi", "9"},       {"wi", "7"},    {"y", "3"},  {"x", "1"},
                              {"stride_h", "2"}, {"pad_h", "1"}, {"m", "12"}, {"variant", "bwdd"}};
  EXPECT_EQ(family().from_words(words),
            parse_problem("conv direction=backward_data n=2 c=8 k=4 g=2 h=9 w=7 y=3 x=1 "
                          "stride_h=2 pad_h=1"));
}

TEST(ConvWords, RetypedKeepsTheRest) {
  const Problem problem =
      parse_problem("conv direction=backward_data n=2 c=8 k=4 g=2 h=9 w=7 y=3 x=1");
  EXPECT_EQ(to_string(family().retyped(problem, {.dtype = "bf16", .layout = "nchw"})),
            "conv direction=backward_data n=2 c=8 k=4 g=2 h=9 w=7 y=3 dtype=bf16 layout=nchw");
}

// ---- kernels ----

struct Rejected {
  const char* name;
  const char* reason;
};
constexpr Rejected kRejected[] = {
    {"conv_forward_fp32_nhwgc_2d_rows_1x1x1_0x1x1_1x1x1_avx2", "avx2 has no pipeline rows"},
    {"conv_forward_fp32_nhwgc_4d_direct_1x1x1_0x1x1_1x1x1_avx2", "ndim must be 1, 2 or 3, got 4"},
    {"conv_backwarddata_fp8_nhwgc_2d_direct_1x1x1_0x1x1_1x1x1_avx2",
     "backward_data takes fp32, tf32, fp16 and bf16, got fp8"},
    {"conv_forward_fp32_nhwgc_2d_direct_1x1x1_0x1x1_1x1x1_s3_avx2",
     "stages must be 1 with direct, got 3"},
    {"conv_forward_fp32_nhwgc_2d_direct_1x2x1_0x1x1_1x1x1_avx2",
     "direct has tile 1x1x1, wave 0x1x1 and warp tile 1x1x1, got 1x2x1, 0x1x1 and 1x1x1"},
};

TEST(ConvLegality, SaysWhichRuleIsBroken) {
  for (const Rejected& row : kRejected) {
    const KernelSpec spec = parse_name(row.name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, row.reason) << row.name;
  }
}

class ConvOn : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, ConvOn, testing::Values("avx512", "avx2", "generic", "sm90a"),
                         [](const auto& row) { return row.param; });

TEST_P(ConvOn, ListedKernelsAreLegalSortedAndNamed) {
  expect_listed(family(), target_,
                {Wish{"variant", "backward_data"}, Wish{"ndim", "3"}, Wish{"dtype", "bf16"}});
}

TEST_P(ConvOn, EssentialKernelsAreLegalAndOfTheirSet) {
  std::size_t sets = 0;
  for (const std::string& set : family().preselected_names()) {
    std::vector<KernelSpec> specs;
    try {
      specs = family().preselected(set, target_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
      continue;  // a set of other targets
    }
    ++sets;
    EXPECT_GE(specs.size(), 1U) << set;
    for (const KernelSpec& spec : specs) {
      const auto& s = std::get<ConvSignature>(spec.signature);
      EXPECT_EQ(set, std::string(to_string(s.direction)) + "_" + std::string(to_string(s.in)) +
                         "_" + std::string(to_string(s.layout)) + "_essential");
      EXPECT_TRUE(family().is_essential(spec, target_));
      EXPECT_FALSE(family().samples(spec, target_).empty()) << name_of(spec) << " has no sample";
    }
  }
  EXPECT_GE(sets, 20U);
}

TEST_P(ConvOn, GeneralServesEverySignature) {
  for (const char* line : {
           "conv direction=forward n=1 c=3 k=5 w=7 dtype=fp8,bf8 epilogue=bias+silu out=fp32",
           "conv direction=backward_data ndim=3 n=1 c=4 k=4 d=5 h=5 w=5 z=3 y=3 x=3 stride_d=3",
           "conv direction=backward_weight n=1 c=3 k=3 g=3 h=9 w=9 y=3 x=3 layout=nchw beta=2",
       }) {
    const Problem problem = parse_problem(line);
    const KernelSpec spec = family().general(problem, target_);
    EXPECT_EQ(family().is_legal(spec, target_).reason, "") << line;
    EXPECT_EQ(family().supports(spec, problem, target_).reason, "") << line;
    const Source source = family().emit(spec, target_);
    EXPECT_EQ(source.name, name_of(spec));
    EXPECT_EQ(source.abi, kAbi);
  }
}

TEST_P(ConvOn, LaunchesHoldTheProblem) {
  const Problem problem = parse_problem(
      "conv direction=backward_data n=3 c=8 k=6 g=2 h=9 w=7 y=3 x=2 stride_h=2 pad_w=1 beta=1");
  ConvOperands o;
  std::byte memory[8] = {};
  o.weight = memory, o.grad_out = memory + 1, o.c = memory + 2, o.grad_in = memory + 3;
  const KernelSpec spec = family().general(problem, target_);
  const Launch launch = conv::family().bind(spec, problem, load_target(spec.target), o);
  device::ConvArguments g{};
  ASSERT_EQ(launch.arguments.size(), sizeof(g));
  std::memcpy(&g, launch.arguments.data(), sizeof(g));
  EXPECT_EQ(g.groups, 2);
  EXPECT_EQ(g.c, 4);
  EXPECT_EQ(g.k, 3);
  EXPECT_EQ(g.out_size[device::kHeight], 4);
  EXPECT_EQ(g.out_size[device::kWidth], 8);
  EXPECT_EQ(g.x, nullptr);
  EXPECT_EQ(g.w, memory);
  EXPECT_EQ(g.y, memory + 1);
  EXPECT_EQ(g.before, memory + 2);
  EXPECT_EQ(g.out, memory + 3);
  EXPECT_EQ(launch.pointers.size(), 4U);
  EXPECT_EQ(launch.steps.size(), 1U);
}

TEST_P(ConvOn, NothingIsLaunchedForNoImages) {
  const Problem problem = parse_problem("conv direction=forward n=0 c=3 k=5 w=7");
  EXPECT_EQ(conv::family()
                .bind(family().general(problem, target_), problem, target_, ConvOperands{})
                .steps.size(),
            0U);
  const Problem gradient = parse_problem("conv direction=backward_weight n=0 c=3 k=5 w=7");
  EXPECT_EQ(conv::family()
                .bind(family().general(gradient, target_), gradient, target_, ConvOperands{})
                .steps.size(),
            1U);
}

}  // namespace
}  // namespace tessera::conv
