// The rules of docs/attention.md, "What a kernel must satisfy", in its order: each refuses with its
// sentence, or the kernels do without it.
#include <gtest/gtest.h>

#include "host/spec/expect_error.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

std::string illegal(std::string_view name) {
  const KernelSpec spec = parse_name(name);
  return family().is_legal(spec, load_target(spec.target)).reason;
}

constexpr const char* kFlashGpu = "fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_s4_sm90a";

Problem problem_of(const std::string& fields) {
  const std::string type = fields.find("dtype=") == std::string::npos ? "dtype=bf16 " : "";
  return parse_problem("fmha heads=2 seqlen_q=3 seqlen_k=4 " + type + fields);
}
std::string unsupported(const std::string& kernel, const std::string& fields) {
  return family().supports(parse_name(kernel), problem_of(fields), load_target("sm90a")).reason;
}

// Some kernel of every target serves the problem.
void expect_served(const std::string& fields) {
  for (const char* name : {"avx512", "avx2", "generic", "sm90a"}) {
    const Target target = load_target(name);
    const KernelSpec spec = general(problem_of(fields), target);
    EXPECT_EQ(family().is_legal(spec, target).reason, "") << name << ": " << fields;
    EXPECT_EQ(family().supports(spec, problem_of(fields), target).reason, "")
        << name << ": " << fields;
  }
}

TEST(FmhaRules, TargetIsKnown) {
  const std::string sentence =
      "unknown target 'sm90b', did you mean 'sm90a'? (known: avx512, avx2, generic, sm90a, "
      "gfx1100, gfx1201, gfx90a, "
      "gfx942, gfx950; a row of your own is a file that ends in .json)";
  expect_error(ErrorCode::not_found, sentence,
               [] { illegal("fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_sm90b"); });
}

TEST(FmhaRules, KindIsKnown) {
  for (const std::string kind : {"sideways", "splitkv"}) {
    const std::string name = "fmha_" + kind + "_bf16_direct_16x32x64_4x1x1_1x1x1_sm90a";
    EXPECT_THROW(parse_name(name), Error) << kind;
  }
}

TEST(FmhaRules, TypesOfKernels) {
  const std::string more = "_flash_96x64x576_0x1x1_6x64x1_";
  EXPECT_EQ(illegal("fmha_forward_int8" + more + "avx512"),
            "in must be fp32, fp16, bf16, fp8 or bf8, got int8");
  EXPECT_EQ(illegal("fmha_forward_bf16" + more + "outfp8_avx512"),
            "out must be fp32, fp16 or bf16 with in=bf16, got fp8");
  EXPECT_EQ(illegal("fmha_append_fp8_direct_1x1x1_0x1x1_1x1x1_avx512"),
            "in must be fp32, fp16 or bf16, got fp8");
  EXPECT_EQ(illegal("fmha_forward_bf16" + more + "biaselementwise_byfp8_avx512"),
            "dtype_bias must be fp32, fp16 or bf16, got fp8");
  EXPECT_EQ(illegal("fmha_forward_fp32_tmaws_128x128x128_2x1x1_1x1x1_s4_sm90a"),
            "tmaws computes fp16 or bf16 with out of that type, fp8 or bf8, got in fp32, out fp32");
  EXPECT_EQ(illegal("fmha_forward_fp8_tmaws_128x128x128_2x1x1_1x1x1_padded_pagestable_"
                    "scaleskvblock_s4_sm90a"),
            "tmaws reads pages without factors of their own, got qscale kv_block");
  EXPECT_EQ(illegal("fmha_forward_fp8_tmaws_128x128x128_2x1x1_1x1x1_dropout_s4_sm90a"),
            "tmaws computes fp8 without dropout");
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_kvfp8_s4_sm90a"),
            "tmaws reads keys of the queries' type, with factors of tensors or of blocks, got kv "
            "fp8, qscale none");
  EXPECT_EQ(illegal("fmha_forward_fp8_tmaws_128x128x128_2x1x1_1x1x1_scalespertoken_s4_sm90a"),
            "tmaws reads keys of the queries' type, with factors of tensors or of blocks, got kv "
            "same, qscale per_token");
}

TEST(FmhaRules, PipelineOfTheTarget) {
  EXPECT_EQ(illegal("fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_avx512"),
            "avx512 has no pipeline direct");
  EXPECT_EQ(illegal("fmha_forward_bf16_flash_96x64x576_0x1x1_6x64x1_sm90a"),
            "sm90a has no pipeline flash");
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_s4_avx512"),
            "avx512 has no pipeline tmaws");
  EXPECT_EQ(illegal(kFlashGpu), "");
}

TEST(FmhaRules, HeadsOfAnyLength) {
  for (const char* fields : {"hdim=1", "hdim=33 hdim_v=7", "hdim=129", "hdim=256 hdim_v=257"}) {
    expect_served(fields);
  }
  EXPECT_EQ(unsupported(kFlashGpu, "hdim=60"), "hdim must be a multiple of 8 with tmaws, got 60");
  EXPECT_EQ(unsupported(kFlashGpu, "hdim=64 hdim_v=36"),
            "hdim_v must be a multiple of 8 with tmaws, got 36");
  EXPECT_EQ(unsupported(kFlashGpu, "hdim=64"), "");
}

TEST(FmhaRules, FactorsOfEightBits) {
  for (const char* fields : {"dtype=fp8", "dtype=bf8 out=fp8 qscale=per_block",
                             "dtype=fp8 out=fp32 qscale=kv_block pages=table page_size=16"}) {
    expect_served(std::string("hdim=64 ") + fields);
  }
  EXPECT_EQ(illegal("fmha_forward_bf16_flash_96x64x576_0x1x1_6x64x1_scalespertensor_avx512"),
            "qscale must be none with in=bf16, only fp8 and bf8 have factors, got per_tensor");
  EXPECT_EQ(unsupported("fmha_forward_fp8_direct_16x32x64_4x1x1_1x1x1_sm90a",
                        "hdim=64 dtype=fp8 qscale=per_tensor"),
            "the kernel has qscale=none, the problem qscale=per_tensor");
}

TEST(FmhaRules, EightBitsOfTensorCores) {
  const std::string small = "fmha_forward_fp8_tmaws_128x128x128_2x1x1_1x1x1_";
  const std::string long_heads = "fmha_forward_bf8_tmaws_128x64x256_2x1x1_1x1x1_";
  for (const char* more :
       {"s4_sm90a", "padded_masked_pagestable_scalespertensor_s4_sm90a",
        "outfp8_packed_masked_lse_scalesperblock_s4_sm90a", "outfp32_scaleskvblock_s4_sm90a"}) {
    EXPECT_EQ(illegal(small + more), "") << more;
  }
  EXPECT_EQ(illegal(long_heads + "scalesperblock_s4_sm90a"), "");
  EXPECT_EQ(illegal("fmha_forward_fp8_tmaws_128x128x64_2x1x1_1x1x1_biasalibi_softcap_s6_sm90a"),
            "");
  EXPECT_EQ(illegal("fmha_forward_fp8_tmaws_192x128x64_3x1x1_1x1x1_s6_sm90a"),
            "tmaws has 2 consumers (2x1x1) with in fp8, got 3");
  EXPECT_EQ(
      illegal(small + "packed_softcap_s4_sm90a"),
      "tmaws with in fp8 has registers for a soft cap or a bias only with lengths equal, no "
      "pages, out fp16 or bf16, no factors of blocks and k 64, got lengths packed, pages none, "
      "out fp16, qscale none, k 128");
  EXPECT_EQ(illegal(long_heads + "padded_scaleskvblock_s4_sm90a"),
            "tmaws with tile 128x64x256 has registers for factors of blocks only with lengths "
            "equal and no pages, got padded, pages none");
  const std::string reason = illegal("fmha_forward_fp8_tmaws_128x128x128_2x1x1_1x1x1_s9_sm90a");
  EXPECT_TRUE(reason.starts_with("needs ")) << reason;
}

TEST(FmhaRules, EightBitsThatTensorCoresServe) {
  const std::string any = "fmha_forward_fp8_tmaws_128x128x128_2x1x1_1x1x1_s4_sm90a";
  EXPECT_EQ(unsupported(any, "hdim=112 dtype=fp8"), "");
  EXPECT_EQ(unsupported(any, "hdim=128 dtype=fp8 scale=-1"), "");
  EXPECT_EQ(unsupported(any, "hdim=120 dtype=fp8"),
            "hdim must be a multiple of 16 with tmaws, got 120");
  EXPECT_EQ(unsupported(any, "hdim=64 dtype=fp8 k_stride_s=136"),
            "the strides of k must be multiples of 16 elements, above 0 and below 549755813888, "
            "with tmaws, got 136 from token to token");
  EXPECT_EQ(unsupported(any, "hdim=64 dtype=fp8 out_stride_s=136"), "");
  const std::string blocks =
      "fmha_forward_fp8_tmaws_128x128x128_2x1x1_1x1x1_scalesperblock_s4_sm90a";
  const auto with_blocks = [&](const std::string& more) {
    return family()
        .supports(parse_name(blocks),
                  parse_problem("fmha heads=2 seqlen_q=200 seqlen_k=300 hdim=64 dtype=fp8 "
                                "qscale=per_block " +
                                more),
                  load_target("sm90a"))
        .reason;
  };
  EXPECT_EQ(with_blocks(""), "");
  EXPECT_EQ(with_blocks("qscale_block_q=64 qscale_block_k=256"), "");
  EXPECT_EQ(with_blocks("qscale_block_q=200 qscale_block_k=301"), "");
  EXPECT_EQ(with_blocks("qscale_block_q=100"),
            "qscale_block_q must be a multiple of 64 with tmaws and tile 128x128x128, or at least "
            "seqlen_q 200, got 100");
  EXPECT_EQ(with_blocks("qscale_block_k=64"),
            "qscale_block_k must be a multiple of 128 with tmaws and tile 128x128x128, or at least "
            "seqlen_k 300, got 64");
}

TEST(FmhaRules, UnequalHeadsWithABias) {
  expect_served("hdim=192 hdim_v=128 bias=elementwise");
  expect_served("hdim=192 hdim_v=128 bias=alibi");
}

TEST(FmhaRules, UnequalHeadsWithDropout) {
  expect_served("hdim=192 hdim_v=128 p_drop=0.5");
  expect_served("hdim=192 hdim_v=128 p_drop=0.5 random=1 mask=top_left");
}

TEST(FmhaRules, DropoutOfTensorCores) {
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_dropout_s4_sm90a"), "");
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_dropout_random_s4_sm90a"),
            "tmaws stores no random values of dropout, got random=1");
  const std::string reason =
      illegal("fmha_forward_bf16_tmaws_192x128x64_3x1x1_1x1x1_dropout_s6_sm90a");
  EXPECT_EQ(reason, "tile 192x128x64 needs 176 registers a thread, 3 consumers have 160");
}

TEST(FmhaRules, SoftCapWithABias) {
  expect_served("hdim=64 soft_cap=30 bias=elementwise");
  expect_served("hdim=64 soft_cap=30 bias=alibi");
}

TEST(FmhaRules, UnequalHeadsOfTensorCores) {
  const std::string wide = "fmha_forward_bf16_tmaws_128x128x192_2x1x1_1x1x1_s3_sm90a";
  EXPECT_EQ(unsupported(wide, "hdim=192 hdim_v=128"), "");
  EXPECT_EQ(unsupported(wide, "hdim=192"),
            "hdim_v must be 8 to 128 with tmaws and tile 128x128x192, got 192");
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_128x128x96_2x1x1_1x1x1_s4_sm90a"),
            "tile must be 128 x n x k with 2 consumers, n 64, 128, 192 or 256, k 64, 128, 192 or "
            "256, got 128x128x96");
}

TEST(FmhaRules, ShapesHaveThreeNumbers) {
  for (const char* tile : {"16x32", "16x32x64x128", "16x32x"}) {
    const std::string name = std::string("fmha_forward_bf16_direct_") + tile + "_4x1x1_1x1x1_sm90a";
    EXPECT_THROW(parse_name(name), Error) << tile;
  }
}

TEST(FmhaRules, ProductsFitIntoRegisters) {
  EXPECT_EQ(illegal("fmha_forward_bf16_flash_96x64x576_0x1x1_8x64x1_avx512"),
            "warp tile must be m x n x 1, n a multiple of 16 lanes, with less than 32 registers in "
            "use, got 8x64x1");
  const std::string reason = illegal("fmha_forward_bf16_tmaws_192x256x128_3x1x1_1x1x1_s3_sm90a");
  EXPECT_TRUE(reason.starts_with("tile 192x256x128 needs ")) << reason;
  EXPECT_TRUE(reason.ends_with(" registers a thread, 3 consumers have 160")) << reason;
}

TEST(FmhaRules, FieldsOfOtherPipelinesStayAtTheirDefaults) {
  EXPECT_EQ(illegal("fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_slices3_sm90a"),
            "slices must be 1 with direct, got 3");
  EXPECT_EQ(illegal("fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_persistent_sm90a"),
            "persistent must be false with direct, got true");
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_s4_persistent_sm90a"),
            "tmaws of fmha has nothing but tile, wave and stages");
}

TEST(FmhaRules, WarpsOfABlock) {
  EXPECT_EQ(illegal("fmha_forward_bf16_direct_16x32x64_0x1x1_1x1x1_sm90a"),
            "wave must be m x 1 x 1 warps of 32 threads, at most 1024 threads, got 0x1x1");
  EXPECT_EQ(illegal("fmha_forward_bf16_flash_96x64x576_4x1x1_6x64x1_avx512"),
            "wave must be 0x1x1, got 4x1x1");
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_64x128x128_1x1x1_1x1x1_s4_sm90a"),
            "tmaws has 2 or 3 consumers over m (2x1x1, 3x1x1), got 1x1x1");
}

TEST(FmhaRules, WarpsShareTheRows) {
  EXPECT_EQ(illegal("fmha_forward_bf16_direct_18x32x64_4x1x1_1x1x1_sm90a"),
            "tile must be m x 32 x k, m a multiple of 4 warps, k 64, 128, 256 or 576, got "
            "18x32x64");
  EXPECT_EQ(illegal("fmha_forward_bf16_flash_100x64x576_0x1x1_6x64x1_avx512"),
            "tile must be m x n x 576, at most 4096, m and n multiples of warp tile 6x64x1, got "
            "100x64x576");
}

TEST(FmhaRules, LengthsAreTheKernels) {
  for (const char* lengths : {"equal", "packed", "padded"}) {
    expect_served(std::string("hdim=64 lengths=") + lengths);
  }
  EXPECT_EQ(
      unsupported("fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_sm90a", "hdim=64 lengths=packed"),
      "the kernel has lengths=equal, the problem lengths=packed");
}

TEST(FmhaRules, PagesOfTensorCores) {
  const std::string paged =
      "fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_padded_pagestable_s4_sm90a";
  EXPECT_EQ(illegal(paged), "");
  EXPECT_EQ(
      illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_pageslist_vectorized_s4_sm90a"),
      "tmaws reads pages whose layout is linear, got vectorized");
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_192x128x64_3x1x1_1x1x1_pageslist_s6_sm90a"),
            "tmaws reads pages with 2 consumers, got 3");
  const std::string fields = "hdim=64 lengths=padded pages=table page_size=";
  for (const char* size : {"8", "16", "24", "64", "1024"}) {
    EXPECT_EQ(unsupported(paged, fields + size), "") << size;
  }
  EXPECT_EQ(unsupported(paged, fields + "4"),
            "page_size must be a multiple of 8 with tmaws, got 4");
  EXPECT_EQ(unsupported(paged, fields + "16 k_stride_s=68"),
            "the strides of k must be multiples of 8 elements, above 0 and below 549755813888, "
            "with tmaws, got 68 from token to token");
  EXPECT_EQ(unsupported(paged, fields + "16 num_pages=5 v_stride_b=12"),
            "the strides of v must be multiples of 8 elements, above 0 and below 549755813888, "
            "with tmaws, got 12 from page to page");
  EXPECT_EQ(unsupported(paged, fields + "16 batch=3 table_stride=1000000000"),
            "tmaws counts the entries of page_table up to 2147483647, got about 3000000001");
  EXPECT_EQ(unsupported(paged, fields + "16 num_pages=100 k_stride_b=400000000"),
            "tmaws reads a cache of keys of at most 34359738368 elements, got about 40000002176");
  expect_served(fields + "4");
}

TEST(FmhaRules, TilesFitIntoSharedMemory) {
  EXPECT_EQ(illegal("fmha_forward_fp32_direct_64x32x576_4x1x1_1x1x1_sm90a"),
            "needs 295424 bytes of shared memory, sm90a has 232448");
  const std::string reason = illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_s9_sm90a");
  EXPECT_TRUE(reason.starts_with("needs ")) << reason;
  EXPECT_TRUE(reason.ends_with(" bytes of shared memory, sm90a has 232448")) << reason;
  EXPECT_EQ(illegal("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_s2_sm90a"),
            "stages must be at least 3, got 2");
}

TEST(FmhaRules, TilesHoldTheHead) {
  const std::string small = "fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_sm90a";
  EXPECT_EQ(unsupported(small, "hdim=65"),
            "tile 16x32x64 serves heads of 64 elements, got 65 (hdim)");
  EXPECT_EQ(unsupported(small, "hdim=64 hdim_v=65"),
            "tile 16x32x64 serves values of 64 elements, got 65 (hdim_v)");
  EXPECT_EQ(unsupported(small, "hdim=64"), "");
}

TEST(FmhaRules, CopiesAreAligned) {
  EXPECT_EQ(unsupported(kFlashGpu, "hdim=64 q_stride_s=132"),
            "the strides of q must be multiples of 8 elements, above 0 and below 549755813888, "
            "with tmaws, got 132 from token to token");
  EXPECT_EQ(unsupported(kFlashGpu, "hdim=64 v_stride_d=2"),
            "tmaws reads elements of v that are neighbours, got a stride of 2");
  expect_served("hdim=64 q_stride_s=132 v_stride_d=2");
}

TEST(FmhaRules, WindowsOfTensorCores) {
  EXPECT_EQ(unsupported("fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_masked_s4_sm90a",
                        "hdim=64 mask=top_left window_left=5 sink=2"),
            "tmaws keeps no keys outside of a window, got a sink of 2 with a window_left of 5");
  expect_served("hdim=64 mask=top_left window_left=5 sink=2");
}

}  // namespace
}  // namespace tessera::fmha
