// Pointwise convolutions on AMD GPUs by GEMM's kernels, run on the emulator on random problems.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hip/emulated_test.h"
#include "tessera/families/conv/conv.h"

namespace tessera {
namespace {

constexpr int kPointwiseProblems = 3;  // of each kernel

class PointwiseConv : public EmulatedTest {
 protected:
  PointwiseConv() : EmulatedTest(Op::conv) {}

  // Any sizes, groups and distances of pixels. Channels first have one group or one image.
  ConvProblem problem_for(const KernelSpec& spec) {
    const auto& s = std::get<ConvSignature>(spec.signature);
    const bool is_last = s.layout == ConvLayout::nhwgc;
    ConvProblem p;
    p.direction = s.direction, p.layout = s.layout, p.ndim = s.ndim, p.epilogue = s.epilogue;
    p.in = s.in, p.weight = s.weight, p.acc = s.acc, p.out = s.out, p.d = s.d;
    p.n = between(1, 3), p.g = one_in(3) ? between(2, 3) : 1;
    const bool sums_images = s.direction == ConvDirection::backward_weight;
    if (!is_last && (sums_images || p.g > 1)) p.n = 1;
    p.c = p.g * between(1, 150), p.k = p.g * between(1, 150);
    p.size[1] = between(1, 12), p.size[2] = between(1, 12);
    if (sums_images && spec.algorithm.slices > 1) p.size[2] += 40;
    if (is_last && one_in(2)) {
      p = with_strides(p);
      const auto widen = [&](ConvStrides& strides, std::int64_t pixel) {
        strides[5] = pixel, strides[4] = p.size[2] * pixel;
        strides[3] = p.size[1] * strides[4], strides[0] = strides[3];
      };
      widen(p.in_strides, p.c + between(0, 9));
      widen(p.out_strides, p.k + between(0, 9));
    }
    if (one_in(3)) p.alpha = 0.75F;
    if (one_in(3)) p.beta = -1.5F;
    return p;
  }
  ConvProblem served(const KernelSpec& spec) {
    for (;;) {
      const ConvProblem p = problem_for(spec);
      if (family_.supports(spec, p, target_)) return p;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, PointwiseConv, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

// Each direction in both layouts; of the preselected kernels some, other ones in each run.
TEST_P(PointwiseConv, EssentialKernelsAreCorrect) {
  const std::size_t kernels = is_usual_run(target_.name) ? 4 : 8;
  std::vector<KernelSpec> specs =
      essential([](const KernelSpec& spec) { return spec.algorithm.pointwise; });
  ASSERT_GE(specs.size(), 30U);
  std::shuffle(specs.begin(), specs.end(), random_);
  specs.resize(kernels);
  for_each_built(specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (int n = 0; n < kPointwiseProblems; ++n) check(spec, source, kernel, served(spec));
  });
}

}  // namespace
}  // namespace tessera
