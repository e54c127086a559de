// Kernels of attention whose products both have 8 bits: which there are, what they serve, how they
// serve, and where they are chosen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/families/fmha/ways.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

constexpr const char* kKernel =
    "fmha_forward_fp8_tmaws_128x128x128_2x1x1_64x128x32_splitordered8_s3_sm90a";

class FmhaByteProducts : public testing::Test {
 protected:
  std::string illegal(const std::string& name) const {
    return family().is_legal(parse_name("fmha_forward_" + name + "_sm90a"), gpu_).reason;
  }
  std::string unserved(const std::string& kernel, const FmhaProblem& p) const {
    return family().supports(parse_name(kernel), p, gpu_).reason;
  }
  static FmhaProblem problem_of(const std::string& fields) {
    return std::get<FmhaProblem>(parse_problem("fmha heads=2 seqlen_q=300 seqlen_k=400 " + fields));
  }

  const Target gpu_ = load_target("sm90a");
};

TEST_F(FmhaByteProducts, AreToldApartByTheirInstruction) {
  const FmhaSignature signature = {.in = DType::fp8, .out = DType::fp16, .dtype_bias = DType::fp8};
  Algorithm algorithm = parse_name(kKernel).algorithm;
  EXPECT_EQ(tile::find_way<Types>({signature, algorithm, gpu_}), &kFlash8Gpu);
  algorithm.warp_tile = {};
  EXPECT_EQ(tile::find_way<Types>({signature, algorithm, gpu_}), &kFlashGpu);
}

struct Broken {
  const char* name;
  const char* sentence;
};
constexpr Broken kBroken[] = {
    {"bf16_tmaws_128x128x128_2x1x1_64x128x32_s3",
     "tmaws multiplies 8 bits with a warp tile of k 32, got in bf16"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32_biasalibi_softcap_s3",
     "tmaws with products of 8 bits has no soft cap, bias, dropout and pages, got bias alibi, "
     "pages "
     "none, a soft cap"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32_padded_pagestable_s3",
     "tmaws with products of 8 bits has no soft cap, bias, dropout and pages, got bias none, pages "
     "table"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32_dropout_s3",
     "tmaws with products of 8 bits has no soft cap, bias, dropout and pages, got bias none, pages "
     "none, dropout"},
    {"fp8_tmaws_192x128x128_3x1x1_64x128x32_s3",
     "tmaws with products of 8 bits has 2 consumers over m (2x1x1), or 3 with k 64, got 3x1x1 with "
     "k 128"},
    {"fp8_tmaws_128x100x128_2x1x1_64x100x32_s3",
     "tile must be 128 x n x k with 2 consumers, n a multiple of 32 from 64 to 256, k 64, 128, 192 "
     "or 256, got 128x100x128"},
    {"fp8_tmaws_128x128x128_2x1x1_64x96x32_s3",
     "warp tile must be 64x128x32, one instruction for scores, got 64x96x32"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32", "stages must be at least 2, got 1"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32_splitatomic8_s3",
     "split_k must be none, or ordered with 1 to 64 blocks of keys between two sums, got atomic "
     "with 8"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32_splitordered65_s3",
     "split_k must be none, or ordered with 1 to 64 blocks of keys between two sums, got ordered "
     "with 65"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32_slices2_s3",
     "tmaws of fmha with products of 8 bits has nothing but tile, wave, warp tile, stages and a "
     "split of K"},
    {"fp8_tmaws_128x64x256_2x1x1_64x64x32_packed_scaleskvblock_splitordered10_s2",
     "tmaws with products of 8 bits and k 256 has registers for factors of blocks only with "
     "lengths "
     "equal and n 64, got lengths packed, n 64"},
    {"fp8_tmaws_128x96x256_2x1x1_64x96x32_packed_splitordered10_s2",
     "tmaws with products of 8 bits and k 256 has registers for lengths of sequences only with n "
     "64, got lengths packed, n 96"},
    {"fp8_tmaws_128x256x128_2x1x1_64x256x32_s2",
     "tile 128x256x128 needs 256 registers a thread, 2 consumers have 224"},
    {"fp8_tmaws_128x128x128_2x1x1_64x128x32_splitordered8_s9",
     "needs 278960 bytes of shared memory, sm90a has 232448"},
};

TEST_F(FmhaByteProducts, SayWhichRuleIsBroken) {
  for (const Broken& row : kBroken) EXPECT_EQ(illegal(row.name), row.sentence) << row.name;
}

TEST_F(FmhaByteProducts, AreLegalForEveryFactorOutputAndLength) {
  for (const char* tile : {"128x128x64_2x1x1_64x128x32", "128x128x128_2x1x1_64x128x32",
                           "128x128x192_2x1x1_64x128x32"}) {
    for (const char* more :
         {"outfp8_packed_masked_lse_scalesperblock", "outfp32_padded_scaleskvblock",
          "outbf16_masked_scalespertensor", "lse"}) {
      for (const char* sums : {"", "splitordered8_"}) {
        EXPECT_EQ(illegal(fmt::format("fp8_tmaws_{}_{}_{}s2", tile, more, sums)), "");
      }
    }
  }
  EXPECT_EQ(illegal("fp8_tmaws_128x64x256_2x1x1_64x64x32_packed_masked_lse_s2"), "");
  EXPECT_EQ(illegal("fp8_tmaws_128x64x256_2x1x1_64x64x32_outfp8_lse_scalesperblock_s3"), "");
  EXPECT_EQ(illegal("bf8_tmaws_128x96x256_2x1x1_64x96x32_outbf16_masked_splitordered10_s2"), "");
  EXPECT_EQ(illegal("fp8_tmaws_192x128x64_3x1x1_64x128x32_masked_splitordered8_s3"), "");
}

TEST_F(FmhaByteProducts, SayWhichProblemsTheyDoNotServe) {
  EXPECT_EQ(unserved(kKernel, problem_of("hdim=144 dtype=fp8")),
            "hdim must be 16 to 128 with tmaws and tile 128x128x128, got 144");
  EXPECT_EQ(unserved(kKernel, problem_of("hdim=72 dtype=fp8")),
            "hdim must be a multiple of 16 with tmaws, got 72");
  EXPECT_EQ(unserved(kKernel, problem_of("hdim=128 dtype=fp8 num_splits=2")),
            "tmaws does not cut keys, num_splits must be 0 or 1, got 2");
  EXPECT_EQ(unserved(kKernel, problem_of("hdim=128 dtype=fp8 k_stride_b=1 k_stride_h=120 "
                                         "k_stride_s=300 k_stride_d=1")),
            "the strides of k must be multiples of 16 elements, above 0 and below 549755813888, "
            "with tmaws, got 300 from token to token");
}

// Prompts of 8 bits, where scores are products; what bends them keeps the kernels that convert.
TEST_F(FmhaByteProducts, AreChosenForPlainPrompts) {
  const auto chosen = [&](const std::string& fields) {
    const Problem p =
        parse_problem("fmha heads=16 seqlen_q=8192 seqlen_k=8192 dtype=fp8 " + fields);
    double least = 1e9;
    int k = 0;
    for (const KernelSpec& spec : family().candidates(p, gpu_)) {
      if (!family().is_legal(spec, gpu_) || !family().supports(spec, p, gpu_)) continue;
      const double seconds = family().estimate(spec, p, gpu_, 1).seconds;
      if (seconds < least) k = spec.algorithm.warp_tile.k;
      least = std::min(least, seconds);
    }
    return k;
  };
  for (const char* fields : {"hdim=128", "hdim=128 mask=bottom_right out=bf16 qscale=per_tensor",
                             "hdim=192 hdim_v=128", "hdim=256", "hdim=128 lengths=packed"}) {
    EXPECT_EQ(chosen(fields), kBytesOfProduct) << fields;
  }
  EXPECT_EQ(chosen("hdim=64 soft_cap=5"), 1);
}

}  // namespace
}  // namespace tessera::fmha
