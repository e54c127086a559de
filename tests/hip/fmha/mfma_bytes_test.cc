// Attention by matrix instructions over numbers of 8 bits: queries, keys and values of them, and
// keys and values of them beside queries of 16 bits.
#include "hip/fmha/emulated_mfma.h"

namespace tessera {
namespace {

using MfmaBytes = EmulatedMfma;
INSTANTIATE_TEST_SUITE_P(Targets, MfmaBytes, testing::Values("gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

constexpr int kProblemsOfBytes = 1;  // of a kernel

// Both products of 8 bits.
constexpr const char* kPlain[] = {
    "forward_fp8_qr_128x64x128_4x1x1_32x32x16_outbf16_masked",
    "forward_fp8_qr_128x128x64_4x1x1_32x32x16_padded_masked_lse",
    "forward_bf8_qr_128x64x128_4x1x1_32x32x16_outfp32_packed_masked_lse_scalesperblock",
    "forward_fp8_qr_128x32x256_4x1x1_32x32x16_outbf16_scaleskvblock",
    "forward_fp8_qr_128x64x192_4x1x1_32x32x16_outbf16_masked_scalesperhead",
    "forward_bf8_qrasync_128x64x64_4x1x1_32x32x16_masked_lse",
    "forward_fp8_qrasync_128x64x128_4x1x1_32x32x16_outbf16_padded_masked_scalesperblock",
    "forward_fp8_qrasync_128x64x256_4x1x1_32x32x16_outfp8_packed_masked_scalesperhead",
    "forward_fp8_splitkv_32x128x128_1x4x1_32x32x16_outbf16_masked_lse_slices64",
    "forward_fp8_splitkv_64x64x64_2x2x1_32x32x16_outfp8_padded_masked_scaleskvblock_slices30",
    "forward_bf8_splitkv_32x128x128_1x4x1_32x32x16_padded_masked_scalespertensor_slices64_"
    "s2"};

// Weights of 16 bits beside values that are widened: scores that are bent, dropout, pages.
constexpr const char* kWidened[] = {
    "forward_fp8_qr_128x64x128_4x1x1_32x32x16_outbf16_masked_softcap_lse",
    "forward_bf8_qr_128x64x64_4x1x1_32x32x16_padded_biasalibi_lse_dropout_scalespertensor",
    "forward_fp8_qr_128x64x64_4x1x1_32x32x16_masked_biaselementwise_lse_scalesperblock",
    "forward_fp8_qr_128x64x128_4x1x1_32x32x16_outbf16_padded_masked_lse_pagestable_scaleskvblock",
    "forward_fp8_qr_128x32x256_4x1x1_32x32x16_packed_masked_pageslist_scalesperhead",
    "forward_fp8_qrasync_128x64x128_4x1x1_32x32x16_outbf16_padded_masked_pagestable",
    "forward_fp8_qrasync_128x64x64_4x1x1_32x32x16_outfp8_masked_softcap_scaleskvblock",
    "forward_fp8_splitkv_32x128x128_1x4x1_32x32x16_padded_masked_lse_pagestable_scaleskvblock_"
    "slices64",
    "forward_fp8_splitkv_32x128x128_1x4x1_32x32x16_outbf16_padded_masked_pagestable_"
    "scalespertensor_slices99_s2",
    "forward_bf8_splitkv_64x64x192_2x2x1_32x32x16_masked_biasalibi_softcap_slices40"};

// Keys and values of 8 bits beside queries of 16.
constexpr const char* kMixed[] = {
    "forward_bf16_qr_128x64x128_4x1x1_32x32x16_masked_kvfp8_lse",
    "forward_fp16_qr_128x64x64_4x1x1_32x32x16_packed_masked_kvbf8_scalespertensor",
    "forward_fp16_qr_128x64x128_4x1x1_32x32x16_padded_masked_kvfp8_pagestable_scaleskvblock",
    "forward_bf16_qrasync_128x64x128_4x1x1_32x32x16_padded_masked_kvfp8_pagestable_scalesperhead",
    "forward_fp16_qrasync_128x64x64_4x1x1_32x32x16_kvbf8_softcap",
    "forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_padded_masked_kvfp8_pagestable_scalespertensor_"
    "slices64",
    "extend_bf16_qr_128x64x128_4x1x1_32x32x16_padded_masked_kvfp8_pagestable_scalespertensor_"
    "rotaryhalf_rotateq",
    "extend_fp16_splitkv_32x128x128_1x4x1_32x32x16_padded_masked_kvfp8_pagestable_slices64",
    "forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_padded_masked_kvfp8_lse_scaleskvblock_slices64_"
    "s2"};

TEST_P(MfmaBytes, MultipliesWeightsOfBytes) {
  const std::vector<KernelSpec> specs = named(kPlain);
  ASSERT_GE(specs.size(), 7U);
  check_kernels(specs, kProblemsOfBytes);
}

TEST_P(MfmaBytes, WidensValues) {
  const std::vector<KernelSpec> specs = named(kWidened);
  ASSERT_GE(specs.size(), 6U);
  check_kernels(specs, kProblemsOfBytes);
}

TEST_P(MfmaBytes, WidensKeysAndValues) {
  const std::vector<KernelSpec> specs = named(kMixed);
  ASSERT_GE(specs.size(), 4U);
  check_kernels(specs, kProblemsOfBytes);
}

// Every tile of the target, which takes minutes.
using MfmaTiles = EmulatedMfma;
INSTANTIATE_TEST_SUITE_P(Targets, MfmaTiles, testing::Values("gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(MfmaTiles, AreLeanAndCorrect) {
  std::vector<KernelSpec> specs;
  for (const char* words :
       {"hdim=64 dtype=fp8 mask=bottom_right lse=1 qscale=kv_block qscale_block_k=128",
        "hdim=64 dtype=bf8 lengths=packed mask=bottom_right soft_cap=3 bias=alibi lse=1",
        "hdim=64 dtype=fp8 out=fp32 lengths=padded mask=bottom_right lse=1 pages=table "
        "page_size=128 qscale=kv_block",
        "hdim=64 dtype=fp8 lengths=padded mask=bottom_right lse=1 bias=elementwise "
        "dtype_bias=fp32 qscale=per_block qscale_block_k=128",
        "hdim=64 dtype=bf16 kv=fp8 lengths=padded mask=bottom_right lse=1 pages=table "
        "page_size=128 qscale=kv_block",
        "hdim=576 hdim_v=512 v_in_k=1 dtype=bf16 lengths=padded mask=bottom_right soft_cap=9 "
        "bias=elementwise lse=1 pages=table page_size=16"}) {
    const Problem problem =
        parse_problem(fmt::format("fmha batch=2 heads=4 seqlen_q=99 seqlen_k=300 {}", words));
    for (const KernelSpec& spec : kernels_for(problem, target_)) {
      if (is_mfma(spec)) specs.push_back(spec);
    }
  }
  ASSERT_GE(specs.size(), 40U);
  check_kernels(specs, 1);
}

}  // namespace
}  // namespace tessera
