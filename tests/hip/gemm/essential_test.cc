// Every kernel that ships for an AMD GPU: compiled here, counted, and run instruction by
// instruction on the emulator on random ragged problems, against the fp64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hip/gemm/emulated_gemm.h"

namespace tessera {
namespace {

constexpr int kLeastProblems = 200;  // of each target

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedGemm, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(EmulatedGemm, EveryEssentialKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> all = essential([](const KernelSpec&) { return true; });
  ASSERT_GE(all.size(), 60U);
  const std::vector<KernelSpec> specs = sampled(all);
  const auto each = static_cast<int>((kLeastProblems + specs.size() - 1) / specs.size());
  for_each_built(specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    expect_counted(spec, source, kernel);
    for (int n = 0; n < each; ++n) check_one(spec, source, kernel);
    expect_few_lds_cycles(kernel);
  });
  EXPECT_GE(problems_, kLeastProblems);
}

// Some of all kernels for few rows; other ones in each run.
TEST_P(EmulatedGemm, OtherKernelsOfFewRowsAreLeanAndCorrect) {
  const std::size_t others = is_usual_run(target_.name) ? 3 : 8;
  std::vector<KernelSpec> specs = family_.enumerate(target_, {});
  std::erase_if(specs,
                [](const KernelSpec& spec) { return spec.algorithm.pipeline != Pipeline::stream; });
  ASSERT_GE(specs.size(), 100U);
  std::shuffle(specs.begin(), specs.end(), random_);
  specs.resize(others);
  for_each_built(specs, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (int n = 0; n < 3; ++n) check_one(spec, source, kernel);
  });
}

// The check can fail: operands and a reference in the encoding that the target does not have.
TEST_P(EmulatedGemm, TheOtherEncodingOfFp8IsWrong) {
  const std::vector<KernelSpec> specs = essential([](const KernelSpec&) { return true; });
  const auto found = std::find_if(specs.begin(), specs.end(), [](const KernelSpec& spec) {
    return std::get<GemmSignature>(spec.signature).a == DType::fp8;
  });
  if (found == specs.end()) GTEST_SKIP() << target_.name << " multiplies no fp8";
  const Source source = family_.emit(*found, target_);
  EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
  const GemmProblem p = gemm::problem_of(std::get<GemmSignature>(found->signature), 40, 24, 56);
  const bool is_ocp = target_.fp8_encoding == Fp8Encoding::ocp;
  for (const Fp8Encoding encoding : {Fp8Encoding::ocp, Fp8Encoding::fnuz}) {
    const measure::OwnedOperands owned = measure::random_operands(p, random_(), 1, encoding);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(*found, p, target_, owned.operands);
    ASSERT_EQ(kernel.run(name_of(*found), source, launch, memory, 1), "");
    EXPECT_EQ(family_.compare(p, owned.operands, wanted).ok,
              is_ocp == (encoding == Fp8Encoding::ocp));
  }
}

}  // namespace
}  // namespace tessera
