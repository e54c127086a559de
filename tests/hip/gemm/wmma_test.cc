// Kernels by WMMA of RDNA 3 and RDNA 4: the essential ones, and some of all others, on random
// ragged problems, against the fp64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hip/gemm/emulated_gemm.h"

namespace tessera {
namespace {

class WmmaGemm : public EmulatedGemm {};
INSTANTIATE_TEST_SUITE_P(Targets, WmmaGemm, testing::Values("gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(WmmaGemm, EveryEssentialKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> specs = essential([](const KernelSpec&) { return true; });
  ASSERT_GE(specs.size(), 8U);
  for_each_built(specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    expect_counted(spec, source, kernel);
    for (int n = 0; n < 3; ++n) check_one(spec, source, kernel);
  });
}

// Other kernels in each run: every type, layout, pipeline, epilogue and way to cut K may be drawn.
class AnyWmmaGemm : public EmulatedGemm {
 protected:
  void check_some(std::size_t count, int problems) {
    std::vector<KernelSpec> specs = family_.enumerate(target_, {});
    ASSERT_GE(specs.size(), 1000U);
    std::shuffle(specs.begin(), specs.end(), random_);
    specs.resize(count);
    for_each_built(specs,
                   [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                     expect_counted(spec, source, kernel);
                     for (int n = 0; n < problems; ++n) check_one(spec, source, kernel);
                   });
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, AnyWmmaGemm, testing::Values("gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(AnyWmmaGemm, IsLeanAndCorrect) { check_some(2, 2); }

class LongWmmaGemm : public AnyWmmaGemm {};
INSTANTIATE_TEST_SUITE_P(Long, LongWmmaGemm, testing::Values("gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });
TEST_P(LongWmmaGemm, SomeOfAllKernelsAreLeanAndCorrect) { check_some(100, 5); }

}  // namespace
}  // namespace tessera
