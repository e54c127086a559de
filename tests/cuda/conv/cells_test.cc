// Convolutions of few channels on a GPU against the fp64 reference, where a row of a product holds
// several pixels' results or a tile holds several taps: each line with some of the kernels with
// repack, or with slices, that serve it.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/gpu_test.h"
#include "tessera/base/processors.h"

namespace tessera {
namespace {

constexpr const char* kLines[] = {
    // few channels of x, by x
    "backward_data n=2 c=3 k=64 h=33 w=45 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 pad_w=3",
    "backward_data n=3 c=1 k=40 h=31 w=29 y=3 x=3 pad_h=1 pad_w=1",
    "backward_data n=2 c=4 k=20 h=19 w=37 y=5 x=3 stride_h=3 dilation_w=2 pad_w=2",
    "backward_data n=2 c=3 k=96 h=65 w=66 y=4 x=4 stride_h=4 stride_w=4 beta=0.5",
    "backward_data n=2 c=2 k=72 h=30 w=30 y=2 x=2 stride_h=2 stride_w=2 layout=nchw",
    "backward_data n=2 c=24 k=200 h=33 w=45 y=3 x=3 pad_h=1 pad_w=1",
    "backward_data n=2 c=1 k=48 ndim=1 w=1000 x=10 stride_w=5 pad_w=4",
    "backward_data n=1 c=2 k=32 ndim=3 d=9 h=10 w=11 z=3 y=3 x=3 pad_d=1 pad_h=1 pad_w=1",
    // few channels of y, forward
    "forward n=2 c=64 k=1 h=33 w=45 y=3 x=3 pad_h=1 pad_w=1",
    "forward n=2 c=72 k=3 h=33 w=45 y=3 x=3 pad_h=1 pad_w=1 epilogue=bias+relu",
    "forward n=2 c=20 k=12 h=33 w=45 y=5 x=3 stride_h=2 dilation_w=2 beta=0.5",
    "forward n=2 c=72 k=16 h=33 w=45 y=3 x=3 pad_h=1 pad_w=1 epilogue=bias+add+relu",
    "forward n=2 c=72 k=3 h=33 w=45 y=3 x=3 pad_h=1 pad_w=1 layout=nchw",
    "forward n=1 c=64 k=32 ndim=3 d=9 h=10 w=11 z=3 y=3 x=3 pad_d=1 pad_h=1 pad_w=1",
    // results of a stem's line together
    "forward n=2 c=3 k=24 h=33 w=48 y=3 x=3 stride_h=2 stride_w=2 pad_h=1 pad_w=1 beta=0.5",
    "forward n=2 c=1 k=40 h=33 w=42 y=3 x=3 dilation_w=2 pad_h=1 pad_w=2 epilogue=relu",
    "forward n=2 c=3 k=64 h=64 w=64 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 pad_w=3",
    "forward n=2 c=3 k=64 h=64 w=64 y=7 x=7 stride_h=2 stride_w=2 pad_h=3 pad_w=3 epilogue=bias",
    // taps of few channels in one tile, by w
    "backward_weight n=4 c=24 k=96 h=29 w=31 y=3 x=3 pad_h=1 pad_w=1",
    "backward_weight n=4 c=40 k=72 h=29 w=31 y=3 x=2 stride_w=2 pad_h=1",
    "backward_weight n=4 c=200 k=48 h=19 w=21 y=3 x=3 pad_h=1 pad_w=1 beta=1",
    "backward_weight n=4 c=1 k=48 h=19 w=61 y=3 x=3 pad_h=1 pad_w=1",
    "backward_weight n=4 c=20 k=37 h=19 w=61 y=3 x=3 pad_h=1 pad_w=1",
};

class GpuConvCells : public GpuTest {
 protected:
  std::vector<KernelSpec> some_kernels(const Problem& problem, std::size_t most) {
    std::vector<KernelSpec> all;
    for (const KernelSpec& spec : family_.legal_candidates(problem, target_)) {
      const Algorithm& a = spec.algorithm;
      if (a.pipeline != Pipeline::tmaws || a.pointwise || (!a.repack && a.slices == 1)) continue;
      if (family_.supports(spec, problem, target_)) all.push_back(spec);
    }
    std::shuffle(all.begin(), all.end(), random_);
    if (all.size() > most) all.resize(most);
    return all;
  }

  const Family& family_ = family_of(Op::conv);
};

TEST_F(GpuConvCells, FewChannelsAreCorrect) {
  constexpr std::size_t kKernels = 4;
  std::vector<std::pair<KernelSpec, Problem>> cases;
  std::vector<KernelSpec> specs;
  for (const char* line : kLines) {
    const char* const dtype = std::uniform_int_distribution(0, 2)(random_) == 0 ? "fp16" : "bf16";
    const Problem problem =
        parse_problem(std::string("conv dtype=") + dtype + " direction=" + line);
    const std::vector<KernelSpec> kernels = some_kernels(problem, kKernels);
    EXPECT_FALSE(kernels.empty()) << line;
    for (const KernelSpec& spec : kernels) {
      cases.emplace_back(spec, problem);
      specs.push_back(spec);
    }
  }
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const auto& [spec, problem] : cases) {
    check_twice(name_of(spec), problem, [&](const Problem& p, const measure::OwnedOperands& owned) {
      const ReferenceLimits limits = {
          .multiplications = 0x1p23, .seed = random_(), .threads = usable_processors()};
      const Mismatch mismatch =
          family_.compare(p, owned.operands, family_.reference(p, owned.operands, limits));
      EXPECT_TRUE(mismatch.ok) << mismatch.message;
    });
  }
}

}  // namespace
}  // namespace tessera
