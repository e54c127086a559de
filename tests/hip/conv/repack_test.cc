// Convolutions by MFMA that copy their operands first: any layout, any channels, small groups as
// one; run on the emulator on random problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hip/emulated_test.h"
#include "host/conv/conv_problems.h"
#include "tessera/families/conv/conv.h"

namespace tessera {
namespace {

constexpr int kRepackProblems = 3;  // of each kernel
constexpr double kMostRepackProducts = 2e6;

class RepackConv : public EmulatedTest {
 protected:
  RepackConv() : EmulatedTest(Op::conv) {}

  // Stems, groups of few channels, and channels that are no whole chunks.
  ConvProblem layer(const ConvSignature& s) {
    constexpr std::int64_t kChannels[] = {1, 3, 4, 7, 8, 12, 16, 20, 32, 40};
    ConvProblem p;
    p.ndim = s.ndim, p.layout = s.layout, p.direction = s.direction;
    p.n = between(1, 2), p.g = one_in(2) ? 1 : between(2, 18);
    p.c = p.g * kChannels[between(0, 9)], p.k = p.g * kChannels[between(0, 9)];
    for (std::size_t i = 3 - static_cast<std::size_t>(p.ndim); i < 3; ++i) {
      p.size[i] = between(1, p.ndim == 3 ? 6 : 12), p.filter[i] = between(1, 4);
      p.stride[i] = between(1, 2), p.dilation[i] = one_in(3) ? 2 : 1, p.pad[i] = between(0, 2);
    }
    return p;
  }
  ConvProblem problem_for(const KernelSpec& spec) {
    const auto& s = std::get<ConvSignature>(spec.signature);
    for (;;) {
      ConvProblem p = one_in(2) ? layer(s) : convs_.problem();
      if (p.ndim != s.ndim || p.layout != s.layout) continue;
      p.direction = s.direction, p.epilogue = s.epilogue;
      p.in = s.in, p.weight = s.weight, p.acc = s.acc, p.out = s.out, p.d = s.d;
      const Spatial out = out_size(p);
      if (*std::min_element(out.begin(), out.end()) < 1) continue;
      if (family_.flops(p) / 2 > kMostRepackProducts) continue;
      convs_.share_places(p);
      const bool is_exact = p.out == DType::int32;
      if (one_in(3)) p.alpha = is_exact ? -3.0F : 0.75F;
      if (one_in(3)) p.beta = is_exact ? 2.0F : -1.5F;
      if (family_.supports(spec, p, target_)) return p;
    }
  }
  // Some of the preselected kernels, other ones in each run; names without the target.
  std::vector<std::string> some_essential(std::size_t count) {
    std::vector<std::string> names;
    for (const KernelSpec& spec : essential([](const KernelSpec& one) {
           return one.algorithm.repack && !one.algorithm.pointwise;
         })) {
      const std::string name = name_of(spec);
      names.push_back(name.substr(0, name.size() - target_.name.size() - 1));
    }
    EXPECT_GE(names.size(), 15U);
    std::shuffle(names.begin(), names.end(), random_);
    names.resize(std::min(names.size(), count));
    return names;
  }
  void check_all(const std::vector<std::string>& names) {
    for_each_kernel(names,
                    [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                      for (int n = 0; n < kRepackProblems; ++n) {
                        check(spec, source, kernel, problem_for(spec));
                      }
                      expect_few_lds_cycles(kernel);
                    });
  }

  conv::RandomConvs convs_{random_()};
};
INSTANTIATE_TEST_SUITE_P(Targets, RepackConv, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(RepackConv, EssentialKernelsAreLeanAndCorrect) {
  check_all(some_essential(is_usual_run(target_.name) ? 3 : 5));
}

TEST_P(RepackConv, OtherKernelsAreLeanAndCorrect) {
  const std::vector<std::string> names = {
      "conv_forward_fp16_nchw_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_repack",
      "conv_forward_bf16_nhwgc_2d_compv3_64x64x64_2x2x1_32x32x16_bias_relu_intrawave_repack",
      "conv_forward_fp32_nchw_3d_compv4_128x128x32_2x2x1_32x32x8_bias_add_relu_intrawave_repack",
      "conv_forward_int8_nchw_1d_compv4_128x128x128_2x2x1_32x32x32_intrawave_repack",
      "conv_backwarddata_fp16_nchw_2d_compv4_128x64x64_2x2x1_32x32x16_intrawave_repack",
      "conv_backwarddata_fp32_nhwgc_1d_compv4_128x128x32_2x2x1_32x32x8_intrawave_repack",
      "conv_backwarddata_bf16_nchw_3d_mem_64x64x64_2x2x1_16x16x32_intrawave_repack",
      "conv_backwardweight_fp16_nchw_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_repack",
      "conv_backwardweight_bf16_nhwgc_2d_compv4_128x128x32_2x2x1_32x32x16_intrawave_splitordered1_"
      "slices4_repack",
      "conv_backwardweight_fp32_nchw_3d_compv4_128x64x32_2x2x1_32x32x8_intrawave_repack",
  };
  check_all(some(names, 4));
}

}  // namespace
}  // namespace tessera
