// Depthwise convolutions on the ordinary lanes of AMD GPUs: compiled, counted, and run instruction
// by instruction on the emulator on random problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hip/emulated_test.h"
#include "tessera/families/conv/conv.h"

namespace tessera {
namespace {

constexpr int kDepthwiseProblems = 2;  // of each kernel
constexpr double kMostDepthwiseProducts = 1e6;

class DepthwiseHip : public EmulatedTest {
 protected:
  DepthwiseHip() : EmulatedTest(Op::conv) {}

  // Filters, strides and dilations that the kernel's window takes more often than not.
  void draw_filter(ConvProblem& p, const Algorithm& a) {
    const int taps = a.warp_tile.k;
    for (std::size_t i = 3 - static_cast<std::size_t>(p.ndim); i < 3; ++i) {
      p.size[i] = between(1, p.ndim == 3 ? 6 : 13);
      p.filter[i] = taps == 0 ? between(1, 5) : between(1, taps);
      p.stride[i] = one_in(2) ? 1 : between(1, 3), p.dilation[i] = one_in(3) ? between(1, 3) : 1;
      p.pad[i] = between(0, 3), p.pad_right[i] = one_in(4) ? between(-1, 3) : p.pad[i];
    }
    if (taps == 0) return;
    if (p.direction != ConvDirection::backward_data) p.stride[2] = a.tile.k;
    if (one_in(2)) p.filter[2] = taps, p.dilation[2] = 1;
  }
  void add_gaps(ConvProblem& p) {
    p = with_strides(p);
    const int unit = 4 / std::min(size_of(p.in), size_of(p.out));
    const auto widen = [&](ConvStrides& s, const Spatial& size, std::int64_t channels) {
      s[5] = channels + unit * between(0, 5);
      s[4] = size[2] * s[5] + unit * between(0, 2);
      s[3] = size[1] * s[4], s[0] = size[0] * s[3] + unit * between(0, 2);
    };
    widen(p.in_strides, p.size, p.c), widen(p.out_strides, out_size(p), p.k);
    ConvStrides& w = p.weight_strides;
    w[1] += between(0, 5), w[0] = w[1] * (p.k / p.g);
  }
  ConvProblem problem_for(const KernelSpec& spec) {
    const auto& s = std::get<ConvSignature>(spec.signature);
    for (;;) {
      ConvProblem p;
      p.direction = s.direction, p.layout = s.layout, p.ndim = s.ndim, p.epilogue = s.epilogue;
      p.in = s.in, p.weight = s.weight, p.acc = s.acc, p.out = s.out, p.d = s.d;
      p.n = between(1, 3);
      p.c = p.g = one_in(3) ? between(2, 150) : 8 * between(1, 12);
      p.k = p.c * spec.algorithm.warp_tile.m;
      draw_filter(p, spec.algorithm);
      const Spatial out = out_size(p);
      if (*std::min_element(out.begin(), out.end()) < 1) continue;
      if (family_.flops(p) / 2 > kMostDepthwiseProducts) continue;
      if (one_in(2)) add_gaps(p);
      if (one_in(3)) p.alpha = 0.75F;
      if (one_in(3)) p.beta = -1.5F;
      if (family_.supports(spec, p, target_)) return p;
    }
  }
  void check_all(const std::vector<KernelSpec>& specs, int problems) {
    for_each_built(specs,
                   [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                     for (int n = 0; n < problems; ++n) {
                       const ConvProblem p = problem_for(spec);
                       family_.validate(p);
                       check(spec, source, kernel, p);
                     }
                     expect_few_lds_cycles(kernel);
                   });
  }
  static bool is_depthwise_kernel(const KernelSpec& spec) {
    return spec.algorithm.pipeline == Pipeline::depthwise;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, DepthwiseHip, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(DepthwiseHip, EssentialKernelsAreLeanAndCorrect) {
  const std::vector<KernelSpec> specs = essential(is_depthwise_kernel);
  ASSERT_GE(specs.size(), 20U);
  check_all(sampled(specs), kDepthwiseProblems);
}

// Other numbers of channels and of dimensions, epilogues; other ones in each run.
TEST_P(DepthwiseHip, OtherLegalKernelsAreLeanAndCorrect) {
  const std::size_t others = is_usual_run(target_.name) ? 2 : 5;
  std::vector<KernelSpec> specs = family_.enumerate(target_, {});
  std::erase_if(specs, [](const KernelSpec& spec) { return !is_depthwise_kernel(spec); });
  std::shuffle(specs.begin(), specs.end(), random_);
  ASSERT_GE(specs.size(), others);
  specs.resize(others);
  check_all(specs, 2);
}

// A few images fill the lanes once; many make each lane go on from run to run.
TEST_P(DepthwiseHip, LanesGoOnFromRunToRun) {
  target_.units = 1;
  for_each_kernel({"conv_forward_fp32_nhwgc_2d_depthwise_128x32x1_4x1x1_1x4x3",
                   "conv_backwarddata_fp16_nhwgc_2d_depthwise_128x64x0_4x1x1_1x4x0",
                   "conv_backwardweight_bf16_nhwgc_2d_depthwise_128x64x1_4x1x1_1x4x3"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    const auto& s = std::get<ConvSignature>(spec.signature);
                    check(spec, source, kernel,
                          parse_problem(fmt::format("conv direction={} n=7 c=72 k=72 g=72 h=19 "
                                                    "w=23 y=3 x=3 pad_h=1 pad_w=1 dtype={}",
                                                    to_string(s.direction), to_string(s.in))));
                  });
}

}  // namespace
}  // namespace tessera
