// Gates, rows by index and outputs of 8 bits on AMD's GPUs: fresh random kernels and problems on
// the emulator, with groups, scales of blocks and epilogues, against the fp64 reference. Rows of no
// index and of no group are left alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grouped.h"
#include "hip/emulated_test.h"
#include "outputs.h"

namespace tessera {
namespace {

constexpr GemmLayout kOutputLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                         GemmLayout::ccr};
constexpr const char* kChains[] = {"none",           "bias",     "row_scale+bias", "add",
                                   "col_scale+relu", "multiply", "clamp"};

class OutputsOfGemm : public EmulatedTest {
 protected:
  OutputsOfGemm() : EmulatedTest(Op::gemm) {}

  // What a kernel is asked for, beside its types; at least one of the three.
  void draw_asked(GemmProblem& p) {
    const bool is_exact = p.out == DType::int32, is_integer = p.a == DType::int8;
    do {
      p.gate = is_integer ? GemmGate::none : static_cast<GemmGate>(between(0, 3));
      p.indexing = static_cast<GemmIndexing>(between(0, 2));
      p.quant = is_exact ? NormQuant::none : static_cast<NormQuant>(between(0, 3));
    } while (p.gate == GemmGate::none && p.indexing == GemmIndexing::none &&
             p.quant == NormQuant::none);
    p.gate_interleaved = p.gate != GemmGate::none && one_in(2);
    const bool by_row = p.indexing != GemmIndexing::none;
    p.grouping = static_cast<GemmGrouping>(between(0, by_row ? 2 : 4));
    if (p.quant != NormQuant::none) p.out = one_in(2) ? DType::fp8 : DType::bf8;
    if (!is_exact) p.epilogue = parse_epilogue(kChains[between(0, std::size(kChains) - 1)]);
    if (p.out == DType::int32 || p.a == DType::tf32) p.epilogue = {};
  }

  std::vector<DType> types() const {
    std::vector<DType> all = {DType::fp32, DType::fp16, DType::bf16, DType::int8};
    if (target_.name == "gfx942") all.push_back(DType::tf32);
    if (target_.name != "gfx90a" && target_.name != "gfx1100") {
      all.insert(all.end(), {DType::fp8, DType::bf8});
    }
    return all;
  }
  GemmProblem signature(DType type) {
    GemmProblem p = gemm_problem(type, kOutputLayouts[between(0, 3)], 64, 64, 64);
    p.d = one_in(2) ? DType::fp32 : p.out;
    if (type == DType::int8) p.out = one_in(3) ? DType::int32 : DType::fp32;
    if (type == DType::int8) p.d = DType::fp32;
    draw_asked(p);
    if (p.quant != NormQuant::none) p.d = one_in(2) ? DType::fp32 : DType::bf16;
    return p;
  }
  void add_scales(GemmProblem& p) {
    constexpr GemmScale kScales[] = {GemmScale::none, GemmScale::by_1x32, GemmScale::by_1x128,
                                     GemmScale::by_128x128};
    const auto pair = static_cast<std::size_t>(between(1, 15));
    p.scale_a = kScales[pair % 4], p.scale_b = kScales[pair / 4];
    if (one_in(2)) p.scale_type = GemmScaleType::e8m0;
  }

  GemmProblem any_problem(const KernelSpec& spec) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    const bool is_wide = s.quant != NormQuant::none && one_in(3);
    GemmProblem p = outputs::problem_of(s, between(1, 90), between(1, is_wide ? 1200 : 90),
                                        one_in(10) ? 0 : between(1, is_wide ? 40 : 150), random_);
    p.check_groups = p.grouping != GemmGrouping::none && one_in(4);
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && one_in(2);
    if (one_in(2)) outputs::loosen(p, random_);
    return p;
  }

  void check_outputs(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const GemmProblem p = any_problem(spec);
    family_.validate(p);
    ASSERT_EQ(family_.supports(spec, p, target_).reason, "") << to_string(Problem(p));
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(Problem(p)), seed));
    const measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    const auto& o = std::get<GemmOperands>(owned.operands);
    grouped::fill_numbers(p, owned.operands, random_);
    outputs::fill_index(p, o, random_);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = target_.fp8_encoding});
    const auto before = outputs::bytes_of_outputs(owned);
    emulator::Memory memory;
    add_operands(owned, memory);
    const auto resident = static_cast<unsigned>(between(1, 5));
    ASSERT_EQ(kernel.run(source.name, source, family_.bind(spec, p, target_, owned.operands),
                         memory, resident),
              "");
    const Mismatch mismatch = family_.compare(p, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    outputs::expect_left_alone(p, owned, before);
    count_problem(p, mismatch.checked);
  }
  void check_all(const std::vector<KernelSpec>& specs) {
    for_each_built(specs,
                   [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                     for (int n = 0; n < 4; ++n) check_outputs(spec, source, kernel);
                   });
  }

  void check_general(int each) {
    std::vector<KernelSpec> specs;
    for (const DType type : types()) {
      for (int i = 0; i < each; ++i) specs.push_back(family_.general(signature(type), target_));
    }
    check_all(each == 1 ? few(specs) : some(specs, 3));
  }
  std::vector<KernelSpec> few(std::vector<KernelSpec> specs) {
    std::shuffle(specs.begin(), specs.end(), random_);
    specs.resize(std::min<std::size_t>(specs.size(), 2));
    return specs;
  }
  // Kernels by matrix instructions that the target has, each asked for something else.
  void check_matrix(int each) {
    constexpr std::pair<DType, const char*> kShapes[] = {
        {DType::bf16, "compv3_64x64x32_2x2x1_16x16x32"},
        {DType::fp16, "compv4_64x64x32_2x2x1_32x32x16"},
        {DType::bf16, "mem_64x64x32_2x2x1_16x16x32"},
        {DType::fp16, "compv4_64x64x32_2x4x1_16x16x16"},
        {DType::int8, "compv3_64x64x64_2x2x1_32x32x32"},
        {DType::fp8, "compv3_64x64x64_2x2x1_32x32x32"},
        {DType::bf16, "async_64x64x64_2x2x1_16x16x32"}};
    std::vector<KernelSpec> specs;
    for (const auto& [type, words] : kShapes) {
      const bool copies = std::string_view(words).starts_with("async");
      KernelSpec spec = parse_name(fmt::format("gemm_{}_rcr_{}_intrawave{}_{}", to_string(type),
                                               words, copies ? "_s2" : "", target_.name));
      for (int i = 0; i < each; ++i) {
        GemmProblem p = signature(type);
        if (p.grouping != GemmGrouping::none && one_in(2)) p.grouping = GemmGrouping::contiguous;
        spec.signature = signature_of(p);
        if (family_.is_legal(spec, target_)) specs.push_back(spec);
      }
    }
    ASSERT_GE(specs.size(), static_cast<std::size_t>(each));
    check_all(each == 1 ? few(specs) : some(specs, 3));
  }
  void check_scaled(int count) {
    if (target_.name == "gfx90a" || target_.name == "gfx1100") GTEST_SKIP() << "no 8-bit floats";
    std::vector<KernelSpec> specs;
    for (int i = 0; i < count; ++i) {
      GemmProblem p = signature(one_in(2) ? DType::fp8 : DType::bf8);
      p.b = one_in(2) ? DType::fp8 : DType::bf8;
      add_scales(p);
      specs.push_back(family_.general(p, target_));
    }
    check_all(specs);
  }
  // The same by MFMA; of what is asked, what the kernel takes.
  void check_scaled_mfma(int each) {
    std::vector<std::string> words = {"compv3_64x64x128_2x2x1_16x16x64",
                                      "compv4_64x64x128_2x2x1_32x32x32"};
    if (target_.name == "gfx950") words.push_back("compv3_64x64x128_2x2x1_16x16x128");
    std::vector<KernelSpec> specs;
    for (const std::string& shape : words) {
      for (int i = 0; i < each; ++i) {
        KernelSpec spec =
            parse_name(fmt::format("gemm_fp8_rcr_{}_intrawave_{}", shape, target_.name));
        do {
          GemmProblem p = signature(one_in(2) ? DType::fp8 : DType::bf8);
          add_scales(p);
          if (one_in(2)) {
            p.scale_a = p.scale_b = GemmScale::by_1x32, p.scale_type = GemmScaleType::e8m0;
          }
          spec.signature = signature_of(p);
        } while (!family_.is_legal(spec, target_));
        specs.push_back(spec);
      }
    }
    check_all(each == 1 ? few(specs) : specs);
  }
};

class ScaledOutputsByMfma : public OutputsOfGemm {};
class LongScaledOutputsByMfma : public OutputsOfGemm {};
INSTANTIATE_TEST_SUITE_P(Targets, ScaledOutputsByMfma, testing::Values("gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });
INSTANTIATE_TEST_SUITE_P(Long, LongScaledOutputsByMfma, testing::Values("gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });
TEST_P(ScaledOutputsByMfma, AreFinishedRowByRow) { check_scaled_mfma(1); }
TEST_P(LongScaledOutputsByMfma, AreFinishedRowByRow) { check_scaled_mfma(5); }

class LongOutputsOfGemm : public OutputsOfGemm {};

std::vector<std::string> output_targets() {
  return {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"};
}
INSTANTIATE_TEST_SUITE_P(Targets, OutputsOfGemm, testing::ValuesIn(output_targets()),
                         [](const auto& row) { return row.param; });
INSTANTIATE_TEST_SUITE_P(Long, LongOutputsOfGemm, testing::ValuesIn(output_targets()),
                         [](const auto& row) { return row.param; });

TEST_P(OutputsOfGemm, RunByTheGeneralKernel) { check_general(1); }
TEST_P(LongOutputsOfGemm, RunByTheGeneralKernel) { check_general(6); }
TEST_P(OutputsOfGemm, RunByMatrixInstructions) { check_matrix(1); }
TEST_P(LongOutputsOfGemm, RunByMatrixInstructions) { check_matrix(6); }
TEST_P(OutputsOfGemm, RunWithScalesOfBlocks) { check_scaled(1); }
TEST_P(LongOutputsOfGemm, RunWithScalesOfBlocks) { check_scaled(12); }

}  // namespace
}  // namespace tessera
