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

  // The same by matrix instructions; of the layouts and scales, those that the kernel takes.
  KernelSpec random_mfma(const std::string& words) {
    KernelSpec spec = parse_name(fmt::format("gemm_fp8_rcr_{}_{}", words, target_.name));
    do {
      spec.signature = random_spec().signature;
      auto& s = std::get<GemmSignature>(spec.signature);
      if (one_in(2)) s.scale_a = s.scale_b = GemmScale::by_1x32, s.scale_type = GemmScaleType::e8m0;
    } while (!family_.is_legal(spec, target_));
    return spec;
  }
  void check_mfma(int each) {
    std::vector<std::string> words = {
        "compv3_64x64x128_2x2x1_16x16x64", "compv4_64x64x128_2x2x1_32x32x32",
        "compv3_128x64x256_2x2x1_16x16x64", "compv3_128x128x128_2x2x1_32x32x32"};
    if (target_.name == "gfx950") {
      for (const char* const mx :
           {"compv3_64x64x128_2x2x1_16x16x128", "compv4_64x64x128_2x2x1_32x32x64",
            "compv3_64x64x256_2x2x1_16x16x128", "compv3_128x128x128_2x2x1_32x32x64"}) {
        words.push_back(mx);
      }
    }
    std::vector<KernelSpec> specs;
    for (const std::string& shape : words) {
      for (int i = 0; i < each; ++i) specs.push_back(random_mfma(shape + "_intrawave"));
    }
    for (int i = 1; i < each; ++i) {
      for (const char* const tail : {"splitordered1_slices2", "splitatomic1_slices2"}) {
        specs.push_back(random_mfma(fmt::format("{}_intrawave_{}", words[words.size() - 3], tail)));
      }
    }
    check_specs(some(specs, 2));
  }

  // Kernels by MFMA that a problem is offered.
  void check_offered(int count) {
    std::vector<KernelSpec> specs;
    for (int i = 0; i < count; ++i) {
      const auto s = std::get<GemmSignature>(random_mfma(kUsualMfma).signature);
      std::vector<KernelSpec> all =
          family_.legal_candidates(gemm::problem_of(s, 512, 512, 512), target_);
      std::erase_if(all, [](const KernelSpec& spec) {
        return spec.algorithm.pipeline == Pipeline::direct || spec.algorithm.slices > 1;
      });
      specs.push_back(all[static_cast<std::size_t>(between(0, std::ssize(all) - 1))]);
    }
    check_specs(specs);
  }
  static constexpr const char* kUsualMfma = "compv4_64x64x128_2x2x1_32x32x32_intrawave";

  GemmProblem problem_with_scales(const KernelSpec& spec) {
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), between(1, 140),
                                     between(1, 70), between(0, 300));
    const Algorithm& a = spec.algorithm;
    if (a.slices > 1) p.k = between((a.slices - 1) * a.tile.k + 1, a.slices * a.tile.k + 100);
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
    check_specs(specs);
  }
  void check_specs(const std::vector<KernelSpec>& specs) {
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

// The kernels of matrix instructions, which RDNA has none of with scales.
class ScaledMfma : public ScaledGemm {};
class LongScaledMfma : public ScaledGemm {};

class LongScaledGemm : public ScaledGemm {};

INSTANTIATE_TEST_SUITE_P(Long, LongScaledGemm, testing::Values("gfx942", "gfx950", "gfx1201"),
                         [](const auto& row) { return row.param; });
INSTANTIATE_TEST_SUITE_P(Targets, ScaledGemm, testing::Values("gfx942", "gfx950", "gfx1201"),
                         [](const auto& row) { return row.param; });

INSTANTIATE_TEST_SUITE_P(Targets, ScaledMfma, testing::Values("gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });
INSTANTIATE_TEST_SUITE_P(Long, LongScaledMfma, testing::Values("gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(ScaledGemm, MultipliesEachElementByItsScale) { check_some(1); }
TEST_P(LongScaledGemm, MultipliesEachElementByItsScale) { check_some(20); }

TEST_P(ScaledMfma, ScalesSumsOfBlocks) { check_mfma(1); }
TEST_P(LongScaledMfma, ScalesSumsOfBlocks) { check_mfma(4); }
TEST_P(LongScaledMfma, OffersLeanKernels) { check_offered(24); }

}  // namespace
}  // namespace tessera
