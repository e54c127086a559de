// Contractions and operands with several sources on AMD's GPUs: fresh random ones on the emulator,
// against the fp64 reference. Every access outside of an operand is a finding.
#include "arranged.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "hip/emulated_test.h"

namespace tessera {
namespace {

class ArrangedGemm : public EmulatedTest {
 protected:
  ArrangedGemm() : EmulatedTest(Op::gemm) {}

  void check_arranged(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    const GemmProblem p = arranged::problem_of(random_, s, 40);
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(Problem(p)), seed));
    family_.validate(p);
    if (!family_.supports(spec, p, target_)) return;
    const measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = target_.fp8_encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(spec, p, target_, owned.operands);
    ASSERT_EQ(kernel.run(source.name, source, launch, memory, 3), "");
    EXPECT_EQ(measure::gaps_intact(owned), "");
    const Mismatch mismatch = family_.compare(p, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    count_problem(p, mismatch.checked);
  }
  void check_all(const std::vector<std::string>& names, int times) {
    for_each_kernel(names,
                    [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                      for (int n = 0; n < times; ++n) check_arranged(spec, source, kernel);
                    });
  }
  std::string direct() const {
    return fmt::format("direct_64x64x16_2x{}x1_4x4x1", 2 * 64 / target_.warp_size);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, ArrangedGemm,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(ArrangedGemm, RunByTheGeneralKernel) {
  check_all({fmt::format("gemm_fp32_rcr_{}_arranged", direct()),
             fmt::format("gemm_bf16_rrr_{}_arranged_add", direct()),
             fmt::format("gemm_fp16_ccr_{}_arranged_bias_gelu", direct()),
             fmt::format("gemm_int8_crr_{}_arranged", direct())},
            12);
}

}  // namespace
}  // namespace tessera
