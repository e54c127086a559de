// The general convolutions for AMD GPUs: compiled, counted, and run instruction by instruction on
// the emulator on random problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "hip/emulated_test.h"
#include "host/conv/conv_problems.h"
#include "tessera/device/hip/conv/direct_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/spec/numeric.h"

namespace tessera {
namespace {

constexpr int kProblems = 4;  // of each kernel

// Every direction in both layouts, with few waves and many; every type and dimension; epilogues.
constexpr const char* kNames[] = {
    "conv_forward_fp32_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1",
    "conv_forward_fp16_nchw_2d_direct_64x1x1_1x1x16_1x1x1",
    "conv_forward_tf32_nhwgc_1d_direct_64x1x1_1x1x4_1x1x1",
    "conv_forward_bf16_nhwgc_3d_direct_64x1x1_1x1x4_1x1x1_bias_add_relu",
    "conv_forward_fp16_nchw_1d_direct_64x1x1_1x1x4_1x1x1_outfp32_bias_gelu_clamp",
    "conv_forward_int8_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1",
    "conv_forward_int8_nchw_3d_direct_64x1x1_1x1x16_1x1x1_outint8_colscale_silu",
    "conv_backwarddata_fp32_nchw_2d_direct_64x1x1_1x1x4_1x1x1",
    "conv_backwarddata_bf16_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1",
    "conv_backwarddata_fp16_nhwgc_3d_direct_64x1x1_1x1x16_1x1x1",
    "conv_backwarddata_fp16_nchw_1d_direct_64x1x1_1x1x4_1x1x1",
    "conv_backwardweight_fp16_nhwgc_2d_direct_64x1x1_1x1x16_1x1x1",
    "conv_backwardweight_fp32_nchw_2d_direct_64x1x1_1x1x4_1x1x1",
    "conv_backwardweight_bf16_nchw_3d_direct_64x1x1_1x1x16_1x1x1",
    "conv_backwardweight_bf16_nhwgc_1d_direct_64x1x1_1x1x4_1x1x1",
};
constexpr const char* kEightBits[] = {
    // which gfx90a and gfx1100 lack
    "conv_forward_fp8_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1",
    "conv_forward_bf8_nchw_2d_direct_64x1x1_1x1x4_1x1x1_bias_relu",
};

class EmulatedConv : public EmulatedTest {
 protected:
  EmulatedConv() : EmulatedTest(Op::conv) {}

  // Any sizes, strides, padding, dilation, groups and gaps, elements that share a place, or more
  // channels.
  ConvProblem problem_for(const KernelSpec& spec) {
    const auto& s = std::get<ConvSignature>(spec.signature);
    ConvProblem p;
    do {
      p = convs_.problem();
    } while (p.ndim != s.ndim || p.layout != s.layout);
    p.direction = s.direction, p.epilogue = s.epilogue;
    p.in = s.in, p.weight = s.weight, p.acc = s.acc, p.out = s.out, p.d = s.d;
    convs_.share_places(p);
    if (between(0, 2) == 0) {
      p.in_strides = p.weight_strides = p.out_strides = kPackedStrides;
      p.n = 1;
      p.c = p.g * between(1, 40);
      p.k = p.g * between(1, 20);
    }
    const bool is_exact = p.out == DType::int32;
    p.alpha = between(0, 1) == 0 ? 1.0F : is_exact ? -3.0F : 0.75F;
    p.beta = between(0, 1) == 0 ? 0.0F : is_exact ? 2.0F : -1.5F;
    if (num_ops(p.epilogue) > 0) p.clamp_lo = -0.25F, p.clamp_hi = 1;
    return p;
  }

  // The names of kernels whose workgroups have as many results as the target's waves have lanes.
  std::vector<std::string> on_target(std::vector<std::string> names) const {
    const std::string tile = "_64x1x1_";
    for (std::string& name : names) {
      name.replace(name.find(tile), tile.size(), fmt::format("_{}x1x1_", target_.warp_size));
    }
    return names;
  }

  conv::RandomConvs convs_{random_()};
};
INSTANTIATE_TEST_SUITE_P(Targets, EmulatedConv,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(EmulatedConv, DirectIsLeanAndCorrect) {
  std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  if (target_.name != "gfx90a" && target_.name != "gfx1100") {
    names.insert(names.end(), std::begin(kEightBits), std::end(kEightBits));
  }
  for_each_kernel(on_target(names),
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    for (int n = 0; n < kProblems; ++n)
                      check(spec, source, kernel, problem_for(spec));
                  });
}

// A workgroup takes several runs of results where there are more than a grid has lanes.
TEST_P(EmulatedConv, WorkgroupsTakeTurns) {
  adjust_ = [](Launch& launch) {
    constexpr std::int64_t kBlocks = 2;
    std::memcpy(launch.arguments.data() + offsetof(device::HipDirectConvArguments, blocks),
                &kBlocks, sizeof kBlocks);
    launch.steps[0].grid[0] = kBlocks;
  };
  for_each_kernel(on_target({"conv_forward_fp32_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1"}),
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    check(spec, source, kernel,
                          parse_problem("conv direction=forward n=3 c=5 k=9 h=7 w=8 y=3 x=3 "
                                        "pad_h=1 pad_w=1"));
                  });
}

// What lies outside of the image is not multiplied: infinities there make no NaN.
TEST_P(EmulatedConv, DirectLeavesOutWhatIsOutside) {
  const std::vector<std::string> names = {
      "conv_forward_fp32_nhwgc_2d_direct_64x1x1_1x1x4_1x1x1",
      "conv_backwarddata_fp32_nchw_2d_direct_64x1x1_1x1x4_1x1x1",
      "conv_backwardweight_fp32_nchw_2d_direct_64x1x1_1x1x4_1x1x1"};
  for_each_kernel(
      on_target(names), [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
        const auto& s = std::get<ConvSignature>(spec.signature);
        const Problem problem = parse_problem(fmt::format(
            "conv direction={} layout={} n=2 c=6 k=8 g=2 h=7 w=8 y=3 x=3 pad_h=2 pad_w=2 "
            "stride_h=2 stride_w=2 dtype=fp32",
            to_string(s.direction), to_string(s.layout)));
        check(spec, source, kernel, problem, [&](const Operands& operands) {
          for (const Tensor& tensor : family_.tensors(problem)) {
            if (tensor.access == Access::write) continue;
            void* const data = const_cast<void*>(family_.pointer(operands, tensor.operand));
            for (int i = 0; i < 3; ++i) {
              store_element(DType::fp32, data, between(0, 100),
                            std::numeric_limits<double>::infinity());
            }
          }
        });
      });
}

}  // namespace
}  // namespace tessera
