// The rules of attention by matrix instructions on AMD GPUs, whole and with keys in parts: each
// refuses with its sentence.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/families/fmha/fmha.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

std::string illegal_mfma(const std::string& name) {
  const KernelSpec spec = parse_name("fmha_" + name);
  return family().is_legal(spec, load_target(spec.target)).reason;
}
std::string unserved(const std::string& name, const std::string& fields) {
  const KernelSpec spec = parse_name("fmha_" + name);
  EXPECT_EQ(illegal_mfma(name), "");
  const Problem problem = parse_problem("fmha heads=4 heads_kv=2 dtype=bf16 " + fields);
  return family().supports(spec, problem, load_target(spec.target)).reason;
}

constexpr const char* kPaged = "forward_bf16_qr_128x64x128_4x1x1_32x32x16_pagestable_gfx942";
constexpr const char* kParts = "forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_slices304_gfx942";

TEST(MfmaRules, KernelsThatThereAre) {
  for (const std::string& name :
       {std::string(kPaged), std::string(kParts),
        std::string("extend_bf16_qr_128x64x192_4x1x1_32x32x16_pageslist_gfx90a"),
        std::string("forward_fp16_splitkv_64x64x256_2x2x1_32x32x16_slices9_s2_gfx950"),
        std::string("extend_bf16_splitkv_64x64x192_2x2x1_32x32x16_pagestable_gfx942")}) {
    EXPECT_EQ(illegal_mfma(name), "") << name;
  }
}

TEST(MfmaRules, SentencesOfKernels) {
  const auto whole = [](const std::string& shape, const std::string& more) {
    return illegal_mfma(fmt::format("forward_bf16_qr_{}_32x32x16_{}gfx942", shape, more));
  };
  EXPECT_EQ(whole("128x64x128_4x1x1", "pagestable_vectorized_"),
            "qr does not compute cache_layout vectorized");
  EXPECT_EQ(whole("128x64x128_4x1x1", "kvfp8_"), "");
  EXPECT_EQ(whole("128x64x128_4x1x1", "kvfp8_scalespertoken_"),
            "qr does not compute qscale per_token");
  EXPECT_EQ(illegal_mfma("forward_bf16_qr_128x64x128_4x1x1_32x32x16_kvfp8_gfx90a"),
            "gfx90a has no mfma for fp8");
  EXPECT_EQ(illegal_mfma("forward_bf8_qr_128x64x128_4x1x1_32x32x16_gfx90a"),
            "gfx90a has no mfma for bf8");
  EXPECT_EQ(illegal_mfma("forward_fp8_qr_128x128x32_4x1x1_32x32x16_gfx942"),
            "256 lanes do not move whole tiles of 128 keys and heads of 32 with qr");
  EXPECT_EQ(illegal_mfma("forward_fp8_qr_256x64x64_4x1x1_32x32x16_gfx942"),
            "waves with two blocks of 32 rows have no registers for numbers of 8 bits, got tile "
            "256x64x64");
  EXPECT_EQ(illegal_mfma("extend_bf16_qr_256x64x128_8x1x1_32x32x16_gfx942"),
            "blocks that append have 4 waves, got wave 8x1x1 with kind extend");
  EXPECT_EQ(whole("128x64x96_4x1x1", ""),
            "tile must be m x n x k with 4 waves, m 128 or 256, n 32, 64 or 128, k 32, 64, 128, "
            "192 or 256, got 128x64x96");
}

TEST(MfmaRules, SentencesOfKernelsWithParts) {
  const auto parts = [](const std::string& shape, const std::string& more) {
    return illegal_mfma(fmt::format("forward_bf16_splitkv_{}_{}gfx942", shape, more));
  };
  EXPECT_EQ(parts("32x128x128_1x4x1_32x32x16", "dropout_"), "splitkv does not compute dropout 1");
  EXPECT_EQ(parts("32x128x128_1x4x1_1x1x1", ""),
            "the warp tile of attention on AMD GPUs is 32x32x16, got 1x1x1");
  EXPECT_EQ(parts("32x128x128_1x8x1_32x32x16", ""),
            "wave must be m x n x 1, m waves over rows and n over keys, 4 in all, got 1x8x1");
  EXPECT_EQ(parts("32x64x128_1x4x1_32x32x16", ""),
            "tile must be 32 x n x k with 1 waves over rows, n 32, 64 or 128 and at least 32 for "
            "each of 4 waves over keys, k 64, 128, 192 or 256, got 32x64x128");
  EXPECT_EQ(parts("32x128x128_1x4x1_32x32x16", "s2_"),
            "stages must be 1 (by registers) where tiles are not copied to LDS, got 2");
  EXPECT_EQ(illegal_mfma("forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_s3_gfx950"),
            "stages must be 1 (by registers) or 2 (copied to LDS), got 3");
  EXPECT_EQ(parts("32x128x128_1x4x1_32x32x16", "slices4097_"),
            "slices must be between 1 and 4096, got 4097");
  EXPECT_EQ(parts("32x128x256_1x4x1_32x32x16", ""),
            "256 lanes do not move whole tiles of 128 keys and heads of 256 with splitkv");
}

TEST(MfmaRules, SentencesOfProblems) {
  const std::string pages = "seqlen_q=3 seqlen_k=400 hdim=128 pages=table page_size=16 ";
  EXPECT_EQ(unserved(kPaged, pages), "");
  EXPECT_EQ(unserved(kPaged, pages + "num_pages=1000000"),
            "qr reads a head's pages of at most 2147481600 elements, got about 4095999872 of k");
  EXPECT_EQ(unserved(kPaged, "seqlen_q=3 seqlen_k=400 hdim=128 pages=table page_size=300000000"),
            "page_size must be at most 268435456 with qr, got 300000000");
  EXPECT_EQ(unserved(kPaged, pages + "num_splits=3"),
            "qr does not cut keys, num_splits must be 0 or 1, got 3");
  EXPECT_EQ(unserved(kParts, "seqlen_q=3 seqlen_k=400 hdim=128 num_splits=3"), "");
  EXPECT_EQ(unserved(kParts, "seqlen_q=3 seqlen_k=400 hdim=132"),
            "tile 32x128x128 serves heads of 128 elements, got 132 (hdim)");
  EXPECT_EQ(unserved(kParts, "seqlen_q=200000000 seqlen_k=400 hdim=128"),
            "seqlen_q must be at most 134217728 with splitkv and 2 heads a key-value head, got "
            "200000000");
}

// A wave has one factor of the keys that it multiplies, and lanes move 16 elements of 8 bits.
TEST(MfmaRules, SentencesOfProblemsOfBytes) {
  const std::string name = "forward_bf16_qr_128x64x128_4x1x1_32x32x16_kvfp8_scaleskvblock_gfx942";
  const auto of_bytes = [&](const std::string& fields) {
    return unserved(name, "seqlen_q=3 seqlen_k=400 kv=fp8 qscale=kv_block " + fields);
  };
  EXPECT_EQ(of_bytes("hdim=128"), "");
  EXPECT_EQ(of_bytes("hdim=128 qscale_block_k=400"), "");
  EXPECT_EQ(of_bytes("hdim=128 qscale_block_k=100"),
            "qscale_block_k must be a multiple of 64 with qr and tile 128x64x128, got 100");
  EXPECT_EQ(of_bytes("hdim=104"), "hdim must be a multiple of 16 with qr, got 104");
  const std::string paged =
      "forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_kvfp8_pagestable_scaleskvblock_gfx942";
  EXPECT_EQ(unserved(paged,
                     "seqlen_q=3 seqlen_k=400 hdim=128 kv=fp8 qscale=kv_block pages=table "
                     "page_size=16"),
            "the page_size of factors must be a multiple of 32 with splitkv and tile 32x128x128, "
            "got 16");
}

TEST(MfmaRules, SentencesOfLatentAttention) {
  const auto latent = [](const std::string& words, const std::string& target = "gfx942") {
    return illegal_mfma(fmt::format("forward_bf16_{}_{}", words, target));
  };
  EXPECT_EQ(latent("qr_64x32x576_2x2x1_32x32x16"), "");
  EXPECT_EQ(latent("splitkv_32x32x576_1x4x1_32x32x16_pagestable_slices30_s2", "gfx950"), "");
  EXPECT_EQ(latent("qr_128x32x576_4x1x1_32x32x16"),
            "wave must be 2x2x1 or 1x4x1 with k 576, waves over rows and over the elements of "
            "heads, got 4x1x1");
  EXPECT_EQ(latent("qr_64x64x576_2x2x1_32x32x16"),
            "the tile of latent attention is 64x32x576 with 2 waves over rows, got 64x64x576");
  EXPECT_EQ(latent("qr_64x32x576_2x2x1_32x32x16_dropout"),
            "qr with k 576 does not compute dropout 1");
  EXPECT_EQ(latent("splitkv_64x32x576_2x2x1_32x32x16_s2"),
            "stages must be 1 (by registers) where tiles are not copied to LDS, got 2");
  EXPECT_EQ(illegal_mfma("forward_fp8_qr_64x32x576_2x2x1_32x32x16_gfx942"),
            "qr with k 576 computes fp16 or bf16 with out of that type, got in fp8, out fp16");
  const std::string name = "forward_bf16_qr_64x32x576_2x2x1_32x32x16_gfx942";
  EXPECT_EQ(unserved(name, "seqlen_q=3 seqlen_k=40 hdim=576 hdim_v=512 v_in_k=1"), "");
  EXPECT_EQ(unserved(name, "seqlen_q=3 seqlen_k=40 hdim=576 hdim_v=512"),
            "tile 64x32x576 takes values that are the first elements of their keys (v_in_k=1), "
            "got v_in_k=0");
  EXPECT_EQ(unserved(name, "seqlen_q=3 seqlen_k=40 hdim=192 hdim_v=128 v_in_k=1"),
            "tile 64x32x576 serves heads of more than 256 elements, got 192 (hdim)");
}

TEST(MfmaRules, FewQueriesHaveTheirKeysInParts) {
  for (const char* target : {"gfx90a", "gfx942", "gfx950"}) {
    const KernelSpec spec = parse_name(
        fmt::format("fmha_forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_slices100_{}", target));
    const auto parts = [&](const char* fields) {
      const Problem p = parse_problem(fmt::format(
          "fmha heads=32 heads_kv=8 hdim=128 dtype=bf16 seqlen_k=16384 seqlen_q=1 {}", fields));
      return family().bind(spec, p, load_target(target), FmhaOperands{}).parts;
    };
    EXPECT_GE(parts("batch=1"), 8);
    EXPECT_LE(parts("batch=1"), 12);
    EXPECT_EQ(parts("batch=100"), 1);
    EXPECT_EQ(parts("batch=1 num_splits=5"), 5);
    EXPECT_EQ(parts("batch=1 num_splits=-1"), parts("batch=7 num_splits=-1"));
  }
}

}  // namespace
}  // namespace tessera::fmha
