// Latent attention by matrix instructions of AMD's GPUs: values are the first elements of long
// keys.
#include "hip/fmha/emulated_mfma.h"

namespace tessera {
namespace {

using MfmaLatent = EmulatedMfma;
INSTANTIATE_TEST_SUITE_P(Targets, MfmaLatent, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

constexpr int kLatentProblems = 1;  // of a kernel
constexpr const char* kLatentKernels[] = {
    "forward_bf16_qr_64x32x576_2x2x1_32x32x16_masked_lse",
    "forward_fp16_qr_32x32x576_1x4x1_32x32x16_packed_masked_softcap",
    "forward_bf16_qr_64x32x576_2x2x1_32x32x16_padded_masked_biaselementwise_lse_pagestable",
    "forward_fp16_qrasync_64x32x576_2x2x1_32x32x16_padded_masked_lse",
    "forward_bf16_qrasync_32x32x576_1x4x1_32x32x16_biasalibi_lse_pageslist",
    "forward_bf16_splitkv_64x32x576_2x2x1_32x32x16_padded_masked_lse_slices64",
    "forward_fp16_splitkv_32x32x576_1x4x1_32x32x16_masked_pagestable_slices99",
    "forward_bf16_splitkv_64x32x576_2x2x1_32x32x16_padded_masked_lse_pagestable_slices64_s2",
    "forward_fp16_splitkv_32x32x576_1x4x1_32x32x16_padded_masked_slices64_s2"};

TEST_P(MfmaLatent, EveryKernelIsLeanAndCorrect) {
  const std::vector<KernelSpec> specs = named(kLatentKernels);
  ASSERT_GE(specs.size(), 5U);
  check_kernels(specs, kLatentProblems);
}

}  // namespace
}  // namespace tessera
