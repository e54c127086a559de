// Pointwise layers as products of matrices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/families/conv/conv.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

std::vector<KernelSpec> pointwise_kernels(const Problem& problem, const Target& target) {
  std::vector<KernelSpec> specs;
  for (const KernelSpec& spec : family().candidates(problem, target)) {
    if (spec.algorithm.pointwise && family().is_legal(spec, target)) specs.push_back(spec);
  }
  return specs;
}

std::string refusal(const std::string& line) {
  const Target target = load_target("avx512");
  const Problem problem = parse_problem(line);
  const Problem plain = parse_problem("conv direction=forward n=1 c=8 k=8 w=5");
  ConvProblem any = conv_of(plain);
  any.direction = conv_of(problem).direction, any.layout = conv_of(problem).layout;
  any.ndim = conv_of(problem).ndim;
  const std::vector<KernelSpec> specs = pointwise_kernels(any, target);
  return specs.empty() ? "" : family().supports(specs.front(), problem, target).reason;
}

void expect_kernels_of_gemm(const Problem& problem, const Target& target) {
  const Family& gemm = family_of(Op::gemm);
  const auto specs = pointwise_kernels(problem, target);
  ASSERT_FALSE(specs.empty()) << target.name;
  for (const KernelSpec& spec : specs) {
    const KernelSpec product = product_kernel(spec);
    EXPECT_EQ(family().source_name(spec), name_of(product));
    EXPECT_EQ(family().emit(spec, target).text, gemm.emit(product, target).text);
    EXPECT_TRUE(gemm.is_legal(product, target)) << name_of(product);
  }
}

TEST(ConvPointwise, KernelsAreThoseOfGemm) {
  for (const char* name : {"sm90a", "gfx90a", "gfx942", "gfx950"}) {
    const Target target = load_target(name);
    for (const char* layout : {"nhwgc", "nchw"}) {
      for (const char* direction : {"forward", "backward_data", "backward_weight"}) {
        expect_kernels_of_gemm(
            parse_problem(fmt::format("conv direction={} n=1 c=64 k=256 h=14 w=14 dtype=bf16 "
                                      "layout={}",
                                      direction, layout)),
            target);
      }
    }
  }
}

// A model of convolutions knows a pointwise kernel as far as GEMM's features describe its product.
TEST(ConvPointwise, FeaturesDescribeWhatTheyDescribeOfTheProduct) {
  int described = 0, others = 0;
  for (const char* name : {"avx512", "sm90a"}) {
    const Problem problem = parse_problem("conv direction=forward n=1 c=640 k=256 w=2");
    for (const KernelSpec& spec : pointwise_kernels(problem, load_target(name))) {
      const bool known = family_of(Op::gemm).is_described(product_kernel(spec));
      EXPECT_EQ(family().is_described(spec), known) << name_of(spec);
      (known ? described : others) += 1;
    }
  }
  EXPECT_GT(described, 0);
  EXPECT_GT(others, 0);
}

TEST(ConvPointwise, LaunchesAreThoseOfTheProduct) {
  const Target target = load_target("avx512");
  const Problem layer = parse_problem(
      "conv direction=backward_data n=3 c=24 k=40 h=5 w=7 g=2 in_stride_w=30 in_stride_h=210 "
      "in_stride_n=1050 alpha=2");
  const Problem product = parse_problem(
      "gemm m=105 n=12 k=20 batch=2 layout=rrr ld_a=40 batch_stride_a=20 ld_b=12 ld_out=30 ld_c=30 "
      "batch_stride_out=12 batch_stride_c=12 alpha=2");
  float w[1] = {}, dy[1] = {}, dx[1] = {};
  int served = 0;
  for (const KernelSpec& spec : pointwise_kernels(layer, target)) {
    ASSERT_EQ(family().supports(spec, layer, target).reason,
              family_of(Op::gemm).supports(product_kernel(spec), product, target).reason);
    if (!family().supports(spec, layer, target)) continue;
    ++served;
    const Launch launch = family().bind(
        spec, layer, target, ConvOperands{.weight = w, .grad_out = dy, .d = {}, .grad_in = dx});
    const Launch wanted = family_of(Op::gemm).bind(
        product_kernel(spec), product, target, GemmOperands{.a = dy, .b = w, .d = {}, .out = dx});
    ASSERT_EQ(launch.arguments.size(), wanted.arguments.size());
    EXPECT_EQ(
        std::memcmp(launch.arguments.data(), wanted.arguments.data(), wanted.arguments.size()), 0)
        << name_of(spec);
    EXPECT_EQ(launch.pointers.size(), 3U);
  }
  EXPECT_GE(served, 4);
}

// A gradient by w of no images is a product whose sums have no elements.
TEST(ConvPointwise, NoImages) {
  struct Case {
    std::string_view layer, product;
  };
  constexpr Case kCases[] = {
      {"direction=backward_weight g=1", "m=40 n=24 k=0 layout=rcr ld_a=35 ld_b=35"},
      {"direction=backward_weight g=2",
       "m=20 n=12 k=0 batch=2 layout=rcr ld_a=35 ld_b=35 batch_stride_a=700 batch_stride_b=420"}};
  const Target target = load_target("avx512");
  float memory[1] = {};
  for (const auto& [words, matrices] : kCases) {
    const Problem layer =
        parse_problem(fmt::format("conv n=0 c=24 k=40 h=5 w=7 layout=nchw {}", words));
    const Problem product = parse_problem(fmt::format("gemm {}", matrices));
    int served = 0;
    for (const KernelSpec& spec : pointwise_kernels(layer, target)) {
      if (!family().supports(spec, layer, target)) continue;
      ++served;
      const Launch launch = family().bind(
          spec, layer, target,
          ConvOperands{.in = memory, .grad_out = memory, .d = {}, .grad_weight = memory});
      const Launch wanted =
          family_of(Op::gemm).bind(product_kernel(spec), product, target,
                                   GemmOperands{.a = memory, .b = memory, .d = {}, .out = memory});
      ASSERT_EQ(launch.arguments.size(), wanted.arguments.size());
      EXPECT_EQ(
          std::memcmp(launch.arguments.data(), wanted.arguments.data(), wanted.arguments.size()), 0)
          << name_of(spec) << " on " << words;
    }
    EXPECT_GE(served, 1) << words;
  }
}

TEST(ConvPointwise, SaysWhyALayerIsNoProduct) {
  EXPECT_EQ(refusal("conv direction=forward n=1 c=8 k=8 w=5 x=3"),
            "pointwise kernels need a filter of 1, strides of 1 and no padding");
  EXPECT_EQ(refusal("conv direction=forward n=1 c=8 k=8 h=4 w=5 in_stride_h=99 in_stride_n=400"),
            "pointwise kernels need pixels at equal distances");
  EXPECT_EQ(refusal("conv direction=forward n=2 c=8 k=8 g=2 h=4 w=5 layout=nchw"),
            "pointwise kernels take one group or one image in nchw, got g=2 n=2");
  EXPECT_EQ(refusal("conv direction=backward_weight n=2 c=8 k=8 h=4 w=5 layout=nchw"),
            "pointwise kernels sum up the pixels of one image in nchw, got n=2");
  EXPECT_EQ(refusal("conv direction=forward n=1 c=8 k=8 w=5 layout=nchw weight_stride_c=2 "
                    "weight_stride_k=16"),
            "pointwise kernels need weight_stride_c=1, got 2");
}

// An image whose pixels repeat along the width has no two neighbours at the distance of its lines.
TEST(ConvPointwise, RepeatedPixels) {
  for (const auto& [direction, image] : {std::pair("forward", "in"),
                                         {"backward_weight", "in"},
                                         {"backward_weight", "out"},
                                         {"backward_data", "out"}}) {
    for (const auto& [strides, reason] :
         {std::pair("w=0 {0}_stride_h=8 {0}_stride_n=32", "pixels at equal distances"),
          {"h=0", "pixels at equal distances"},
          {"w=0", "rows apart, got a stride of 0 for 8 elements"}}) {
      const std::string line =
          fmt::format("conv direction={} n=2 c=8 k=8 h=4 w=5 {}_stride_{}", direction, image,
                      fmt::format(fmt::runtime(strides), image));
      EXPECT_EQ(refusal(line), std::string("pointwise kernels need ") + reason) << line;
    }
  }
}

TEST(ConvPointwise, NoVectorAlongRows) {
  const Target target = load_target("avx512");
  const Problem problem =
      parse_problem("conv direction=forward n=1 c=8 k=8 w=5 layout=nchw epilogue=bias");
  EXPECT_TRUE(pointwise_kernels(problem, target).empty());
}

}  // namespace
}  // namespace tessera::conv
