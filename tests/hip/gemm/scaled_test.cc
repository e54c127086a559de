// The general kernel on operands with scales of blocks, on random ragged problems with groups and
// without, against the fp64 reference: every pair of scales of both types may be drawn.
#include <gtest/gtest.h>

#include <vector>

#include "grouped.h"
#include "hip/gemm/emulated_gemm.h"

namespace tessera {
namespace {

class ScaledGemm : public EmulatedGemm {
 protected:
  KernelSpec random_spec() {
    constexpr GemmScale kScales[] = {GemmScale::none, GemmScale::by_1x32, GemmScale::by_1x128,
                                     GemmScale::by_128x128};
    GemmProblem p = gemm_problem(one_in(2) ? DType::fp8 : DType::bf8,
                                 one_in(2) ? GemmLayout::rcr : GemmLayout::crr, 64, 64, 64);
    p.b = one_in(2) ? DType::fp8 : DType::bf8;
    const auto pair = static_cast<std::size_t>(between(1, 15));
    p.scale_a = kScales[pair % 4], p.scale_b = kScales[pair / 4];
    if (one_in(2)) p.scale_type = GemmScaleType::e8m0;
    if (one_in(2)) p.grouping = static_cast<GemmGrouping>(between(1, 4));
    p.out = p.d = one_in(2) ? DType::fp32 : DType::bf16;
    return family_.general(p, target_);
  }

  GemmProblem problem_with_scales(const KernelSpec& spec) {
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), between(1, 140),
                                     between(1, 70), between(0, 300));
    if (p.grouping == GemmGrouping::none) p.batch = between(1, 2);
    if (p.grouping != GemmGrouping::none) p.groups = between(1, 5);
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && one_in(2);
    if (one_in(2)) add_gaps(p);
    if (one_in(2)) p.beta = -1.5F;
    const std::int64_t width = p.scale_quads ? 4 : 1;
    if (one_in(2) && p.scale_a != GemmScale::none) {  // neighbours along rows
      p.stride_scale_a_m = width;
      p.stride_scale_a_k = width * (scale_blocks(p.scale_a, p.m, p.k).rows + between(0, 3));
      p.batch_stride_scale_a = p.stride_scale_a_k * 11;
    }
    return p;
  }

  void check_some(int count) {
    std::vector<KernelSpec> specs;
    for (int i = 0; i < count; ++i) specs.push_back(random_spec());
    for_each_built(specs,
                   [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                     for (int n = 0; n < 3; ++n) check(spec, source, kernel);
                   });
  }

  void check(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const GemmProblem p = problem_with_scales(spec);
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(Problem(p)), seed));
    family_.validate(p);
    ASSERT_EQ(family_.supports(spec, p, target_).reason, "");
    measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    grouped::fill_numbers(p, owned.operands, random_);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = target_.fp8_encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    ASSERT_EQ(kernel.run(name_of(spec), source, family_.bind(spec, p, target_, owned.operands),
                         memory, 1),
              "");
    const Mismatch mismatch = family_.compare(p, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    count_problem(p, mismatch.checked);
  }
};

class LongScaledGemm : public ScaledGemm {};

INSTANTIATE_TEST_SUITE_P(Long, LongScaledGemm, testing::Values("gfx942", "gfx950", "gfx1201"),
                         [](const auto& row) { return row.param; });
INSTANTIATE_TEST_SUITE_P(Targets, ScaledGemm, testing::Values("gfx942", "gfx950", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(ScaledGemm, MultipliesEachElementByItsScale) { check_some(1); }
TEST_P(LongScaledGemm, MultipliesEachElementByItsScale) { check_some(20); }

}  // namespace
}  // namespace tessera
