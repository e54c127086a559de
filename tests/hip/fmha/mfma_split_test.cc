// Attention by matrix instructions with the keys in parts: few queries of many heads.
#include "hip/fmha/emulated_mfma.h"

namespace tessera {
namespace {

class MfmaSplit : public EmulatedMfma {
 protected:
  std::vector<KernelSpec> kernels() {
    std::vector<KernelSpec> specs = essential(
        [](const KernelSpec& spec) { return spec.algorithm.pipeline == Pipeline::splitkv; });
    for (const KernelSpec& spec : some(named(kOthers), kUsualOthers)) {
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
    }
    return specs;
  }
  // Few slices, so that there are several rounds, and many.
  static constexpr const char* kOthers[] = {
      "forward_fp16_splitkv_32x128x64_1x4x1_32x32x16_padded_masked_lse_slices64",
      "forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_masked_lse_slices20",
      "forward_bf16_splitkv_64x64x128_2x2x1_32x32x16_packed_masked_biasalibi_softcap_lse_slices8",
      "forward_fp16_splitkv_64x64x192_2x2x1_32x32x16_padded_masked_pagestable_slices30",
      "forward_bf16_splitkv_64x64x256_2x2x1_32x32x16_padded_masked_lse_pagestable_slices99",
      "forward_fp16_splitkv_64x64x64_2x2x1_32x32x16_masked_biaselementwise_lse_slices50",
      "forward_fp16_splitkv_128x64x128_4x1x1_32x32x16_pageslist_slices40",
      "extend_bf16_splitkv_32x128x128_1x4x1_32x32x16_padded_masked_pagestable_rotaryhalf_rotateq_"
      "slices60",
      "forward_fp16_splitkv_32x128x64_1x4x1_32x32x16_padded_lse_slices64_s2",
      "forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_masked_pagestable_slices20_s2",
      "forward_fp16_splitkv_64x64x256_2x2x1_32x32x16_packed_masked_pageslist_slices40_s2",
      "forward_bf16_splitkv_64x64x192_2x2x1_32x32x16_masked_biaselementwise_lse_slices50_s2"};
};
INSTANTIATE_TEST_SUITE_P(Targets, MfmaSplit, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

constexpr int kProblemsOfParts = 1;  // of a kernel

TEST_P(MfmaSplit, EveryKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> specs = kernels();
  ASSERT_GE(specs.size(), 5U);
  check_kernels(specs, kProblemsOfParts);
}

// With num_splits=-1 the bits of a sequence follow from its own operands, whatever the others are.
TEST_P(MfmaSplit, BitsOfASequenceDoNotFollowTheBatch) {
  const KernelSpec spec =
      named(std::array{"forward_bf16_splitkv_32x128x64_1x4x1_32x32x16_padded_masked_slices64"})
          .at(0);
  const Source source = family_.emit(spec, target_);
  EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
  const auto problem = [](int batch, int keys) {
    return parse_problem(
        fmt::format("fmha batch={} heads=4 heads_kv=1 seqlen_q=2 seqlen_k={} hdim=64 dtype=bf16 "
                    "lengths=padded mask=bottom_right num_splits=-1",
                    batch, keys));
  };
  const auto run = [&](const Problem& p, measure::OwnedOperands& owned) {
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(spec, p, target_, owned.operands);
    ASSERT_EQ(kernel.run(name_of(spec), source, launch, memory, 1), "");
  };
  const int keys = static_cast<int>(between(1100, 1500)), more = keys + 1100;
  const Problem one = problem(1, keys), two = problem(2, more);
  measure::OwnedOperands alone = measure::random_operands(one, random_());
  measure::OwnedOperands beside = measure::random_operands(two, random_());
  auto& a = std::get<FmhaOperands>(alone.operands);
  auto& b = std::get<FmhaOperands>(beside.operands);
  const auto put = [](const void* from, const void* to, std::size_t bytes) {
    std::memcpy(const_cast<void*>(to), from, bytes);
  };
  put(a.q, b.q, 2 * 4 * 64 * 2);
  put(a.k, b.k, static_cast<std::size_t>(keys) * 64 * 2);
  put(a.v, b.v, static_cast<std::size_t>(keys) * 64 * 2);
  const std::int32_t lengths[] = {2, 2, keys, more};
  put(lengths, a.seqlens_q, 4), put(lengths + 2, a.seqlens_k, 4);
  put(lengths, b.seqlens_q, 8), put(lengths + 2, b.seqlens_k, 8);
  run(one, alone), run(two, beside);
  EXPECT_EQ(std::memcmp(a.out, b.out, 2 * 4 * 64 * 2), 0);
  EXPECT_EQ(family_.verify(two, beside.operands).message, "");
}

}  // namespace
}  // namespace tessera
