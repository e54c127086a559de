// Every attention kernel that ships for a GPU compiles, without spilling a register. No GPU is
// needed.
#include "nvrtc/no_spills.h"
#include "tessera/families/fmha/ways.h"

namespace tessera {
namespace {

using EssentialFmha = NvrtcTest;
using OtherFmha = NvrtcTest;  // kernels that are made when they are needed

TEST_F(EssentialFmha, CompileForHopperWithoutSpills) {
  const std::vector<Source> sources = essential_sources(Op::fmha);
  ASSERT_GE(sources.size(), 70U);
  expect_no_spills(sources);
}

TEST_F(OtherFmha, AppendingKernelsCompileWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words : {"dtype=bf16 lengths=packed rotary=interleaved rotate_q=1",
                            "dtype=fp32 lengths=padded rotary=interleaved",
                            "dtype=bf16 rotary=half rotate_q=1 pages=table page_size=16",
                            "dtype=fp32 lengths=packed rotary=interleaved pages=list page_size=8 "
                            "cache_layout=vectorized"}) {
    const Problem problem = parse_problem(
        std::string("fmha kind=append heads=2 seqlen_q=64 seqlen_k=64 hdim=64 ") + words);
    sources.push_back(family.emit(family.general(problem, target_), target_));
  }
  expect_no_spills(sources);
}

// For heads of every length, with and without a store of the random values.
TEST_F(OtherFmha, DropoutCompilesWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words : {"hdim=64 dtype=bf16 random=1", "hdim=128 dtype=fp32 mask=top_left",
                            "hdim=256 dtype=fp16 mask=top_left random=1 lse=1 lengths=packed",
                            "hdim=576 hdim_v=512 dtype=bf16 bias=alibi soft_cap=3"}) {
    const Problem problem =
        parse_problem(std::string("fmha heads=2 seqlen_q=64 seqlen_k=64 p_drop=0.5 ") + words);
    sources.push_back(family.emit(family.general(problem, target_), target_));
  }
  expect_no_spills(sources);
}

// Keys of 8 bits beside queries of 16, with every kernel that serves them, and appending to caches
// of 8 bits.
TEST_F(OtherFmha, KeysOfBytesCompileWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words :
       {"hdim=64 dtype=bf16 kv=fp8", "hdim=128 dtype=bf16 kv=fp8 pages=table page_size=16 lse=1",
        "hdim=128 dtype=fp16 kv=bf8 qscale=per_token pages=table page_size=1 mask=bottom_right",
        "hdim=128 dtype=fp8 qscale=per_tensor pages=list page_size=128 lengths=padded",
        "hdim=256 dtype=bf16 kv=fp8 qscale=per_head pages=table page_size=16 mask=bottom_right",
        "hdim=576 hdim_v=512 v_in_k=1 dtype=bf16 kv=fp8 pages=table page_size=64 lengths=padded",
        "hdim=576 hdim_v=512 v_in_k=1 dtype=fp16 kv=bf8 mask=bottom_right lse=1",
        "kind=append hdim=128 dtype=bf16 kv=fp8 qscale=per_token rotary=half rotate_q=1 "
        "pages=table page_size=16",
        "kind=append hdim=64 dtype=fp32 kv=bf8 qscale=per_head rotary=interleaved"}) {
    const Problem problem =
        parse_problem(std::string("fmha heads=2 heads_kv=1 seqlen_q=4 seqlen_k=64 ") + words);
    for (const KernelSpec& spec : family.candidates(problem, target_)) {
      if (!family.is_legal(spec, target_) || !family.supports(spec, problem, target_)) continue;
      sources.push_back(family.emit(spec, target_));
    }
  }
  EXPECT_GT(sources.size(), 20U);
  expect_no_spills(sources);
}

// Kernels of each kind of factors and each output, with pages, too.
TEST_F(OtherFmha, EightBitsCompileWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* words :
       {"hdim=64 dtype=bf8 out=fp8 qscale=per_block bias=alibi p_drop=0.5",
        "hdim=256 dtype=fp8 out=bf8 qscale=kv_block pages=table page_size=16 lengths=packed",
        "hdim=128 dtype=fp8 qscale=per_tensor mask=top_left lse=1"}) {
    const Problem problem =
        parse_problem(std::string("fmha heads=2 seqlen_q=64 seqlen_k=64 ") + words);
    sources.push_back(family.emit(family.general(problem, target_), target_));
  }
  expect_no_spills(sources);
}

// The texts of legal kernels of the problems: of the i-th problem the kernels i, i + problems, ...,
// because all of all would take a minute. Kernels whose products have 8 bits have tests of their
// own.
std::vector<Source> some_sources(std::initializer_list<const char*> problems, const Target& target,
                                 const std::string& sizes) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  std::size_t turn = 0;
  for (const char* words : problems) {
    const Problem problem = parse_problem("fmha heads=2 " + sizes + " " + words);
    family.validate(problem);
    std::vector<KernelSpec> legal = family.candidates(problem, target);
    std::erase_if(legal, [&](const KernelSpec& spec) {
      return spec.algorithm.warp_tile.k == fmha::kBytesOfProduct || !family.is_legal(spec, target);
    });
    for (std::size_t i = turn++; i < legal.size(); i += problems.size()) {
      sources.push_back(family.emit(legal[i], target));
    }
  }
  return sources;
}

TEST_F(OtherFmha, PagedKernelsCompileWithoutSpills) {
  const std::vector<Source> sources = some_sources(
      {"dtype=fp32 pages=table", "dtype=bf16 pages=list cache_layout=vectorized lengths=packed",
       "dtype=fp32 pages=list cache_layout=vectorized lengths=padded mask=bottom_right lse=1",
       "dtype=fp16 pages=table lengths=padded mask=bottom_right lse=1"},
      target_, "seqlen_q=64 seqlen_k=64 hdim=64 page_size=16");
  ASSERT_EQ(sources.size(), 7U);
  expect_no_spills(sources);
}

TEST_F(OtherFmha, FlashKernelsCompileWithoutSpills) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::tmaws};
  const std::vector<Source> sources =
      some_sources({"dtype=bf16 lengths=packed bias=alibi soft_cap=30 mask=bottom_right lse=1",
                    "dtype=fp16 lengths=padded bias=elementwise soft_cap=30 mask=top_left lse=1"},
                   target_, "seqlen_q=64 seqlen_k=64 hdim=64");
  ASSERT_EQ(sources.size(), 4U);
  expect_no_spills(sources);
}

TEST_F(OtherFmha, FlashKernelsOfGradientsCompileWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* name : {"fp16_tmaws_128x128x64_2x1x1_1x1x1_packed_masked_splitordered1_s3",
                           "bf16_tmaws_128x64x128_2x1x1_1x1x1_packed_masked_splitordered1_s3",
                           "fp16_tmaws_128x64x128_2x1x1_1x1x1_padded_masked_splitatomic1_s3",
                           "bf16_tmaws_128x128x64_2x1x1_1x1x1_padded_splitatomic1_s3"}) {
    const KernelSpec spec = parse_name(std::string("fmha_backward_") + name + "_sm90a");
    ASSERT_TRUE(family.is_legal(spec, target_)) << name;
    sources.push_back(family.emit(spec, target_));
  }
  expect_no_spills(sources);
}

// Each kind of factors, each output, each length of heads. Values are converted.
TEST_F(OtherFmha, FlashKernelsOfEightBitsCompileWithoutSpills) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::tmaws};
  const std::vector<Source> sources =
      some_sources({"dtype=fp8 lengths=packed qscale=per_tensor mask=bottom_right lse=1",
                    "dtype=fp8 out=fp8 lengths=packed qscale=per_block mask=bottom_right lse=1",
                    "dtype=bf8 out=fp32 lengths=padded qscale=kv_block mask=top_left",
                    "dtype=fp8 out=bf16 qscale=kv_block mask=top_left lse=1"},
                   target_, "seqlen_q=64 seqlen_k=64 hdim=64");
  ASSERT_EQ(sources.size(), 4U);
  expect_no_spills(sources);
}

// The sources of legal kernels of attention, by what stands between the kind and the target.
std::vector<Source> named_sources(std::initializer_list<const char*> names, const Target& target) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* name : names) {
    const KernelSpec spec = parse_name(std::string("fmha_forward_") + name + "_sm90a");
    EXPECT_EQ(family.is_legal(spec, target).reason, "") << name;
    sources.push_back(family.emit(spec, target));
  }
  return sources;
}

TEST_F(OtherFmha, ByteProductsCompileWithoutSpills) {
  expect_no_spills(named_sources(
      {"fp8_tmaws_128x128x64_2x1x1_64x128x32_packed_masked_lse_scaleskvblock_splitordered8_s4",
       "bf8_tmaws_128x128x128_2x1x1_64x128x32_outfp32_padded_masked_lse_scaleskvblock_"
       "splitordered8_s3",
       "fp8_tmaws_128x128x128_2x1x1_64x128x32_outfp8_packed_masked_lse_scalesperblock_"
       "splitordered8_s3",
       "fp8_tmaws_128x128x128_2x1x1_64x128x32_outbf16_masked_s3",
       "fp8_tmaws_128x128x192_2x1x1_64x128x32_outfp32_padded_masked_scalesperblock_"
       "splitordered8_s3",
       "fp8_tmaws_128x96x256_2x1x1_64x96x32_outbf16_masked_lse_splitordered10_s2"},
      target_));
}

TEST_F(OtherFmha, BentScoresOfEightBitsCompileWithoutSpills) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::tmaws};
  const std::vector<Source> sources =
      some_sources({"dtype=bf8 qscale=per_tensor mask=top_left bias=alibi soft_cap=30 lse=1"},
                   target_, "seqlen_q=64 seqlen_k=64 hdim=64");
  ASSERT_EQ(sources.size(), 1U);
  expect_no_spills(sources);
}

// Kernels that use all registers of a thread and are not shipped: a few may wait in memory.
constexpr int kFewRegisters = 4;

// What a tile keeps waits there while its blocks go by.
TEST_F(OtherFmha, ByteProductsOfLongHeadsAndThreeConsumersSpillFewRegisters) {
  const std::vector<Source> sources = named_sources(
      {"fp8_tmaws_192x128x64_3x1x1_64x128x32_masked_lse_splitordered8_s3",
       "fp8_tmaws_128x64x256_2x1x1_64x64x32_packed_masked_lse_splitordered16_s2",
       "bf8_tmaws_128x64x256_2x1x1_64x64x32_outfp32_masked_lse_scalesperblock_splitordered16_s2"},
      target_);
  expect_spills(sources, 4 * kFewRegisters);
}

TEST_F(OtherFmha, FlashKernelsWithDropoutSpillFewRegisters) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::tmaws};
  const std::vector<Source> sources =
      some_sources({"dtype=bf16 mask=top_left lse=1", "dtype=fp16 lengths=packed lse=1"}, target_,
                   "seqlen_q=64 seqlen_k=64 hdim=64 p_drop=0.1");
  ASSERT_EQ(sources.size(), 4U);
  expect_spills(sources, 4 * kFewRegisters);
}

TEST_F(OtherFmha, FlashKernelsOfPagesSpillFewRegisters) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::tmaws};
  const std::vector<Source> sources =
      some_sources({"dtype=bf16 lengths=packed mask=bottom_right pages=table lse=1",
                    "dtype=fp16 pages=list lse=1 check_pages=1"},
                   target_, "seqlen_q=64 seqlen_k=64 hdim=64 page_size=16");
  ASSERT_EQ(sources.size(), 4U);
  expect_spills(sources, 4 * kFewRegisters);
}

// The warp that fetches pages leaves consumers 232 registers of 240. Where scores bend, what a tile
// keeps waits in memory: a few words are loaded for each block of keys.
TEST_F(OtherFmha, BentScoresOfPagesSpillWhatATileKeeps) {
  constexpr int kTileRegisters = 28;
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::tmaws};
  const std::vector<Source> sources = some_sources(
      {"dtype=fp16 lengths=padded soft_cap=30 mask=bottom_right pages=list check_pages=1"}, target_,
      "seqlen_q=64 seqlen_k=64 hdim=64 page_size=16");
  ASSERT_EQ(sources.size(), 4U);
  expect_spills(sources, 4 * kTileRegisters);
}

TEST_F(OtherFmha, SplitKernelsCompileWithoutSpills) {
  target_.spaces.at(Op::fmha).pipelines = {Pipeline::splitkv};
  const std::vector<Source> sources = some_sources(
      {"dtype=bf16 pages=list page_size=16", "dtype=fp16 mask=bottom_right lse=1 lengths=padded",
       "dtype=bf16 lengths=packed bias=elementwise soft_cap=30",
       "dtype=fp16 bias=alibi mask=top_left pages=table page_size=16 check_pages=1"},
      target_, "seqlen_q=1 seqlen_k=64 hdim=64");
  ASSERT_EQ(sources.size(), 8U);
  expect_no_spills(sources);
}

// Its sums leave few registers for what features need.
TEST_F(OtherFmha, LatentKernelsCompileWithoutSpills) {
  const Family& family = family_of(Op::fmha);
  std::vector<Source> sources;
  for (const char* options :
       {"masked_lse", "padded_lse_pageslist", "packed_masked_biaselementwise_softcap_lse",
        "packed_masked_biasalibi", "padded_masked_pagestable"}) {
    const KernelSpec spec = parse_name(std::string("fmha_forward_bf16_splitkv_64x32x576_4x1x1_") +
                                       "1x1x1_" + options + "_slices132_s4_sm90a");
    ASSERT_EQ(family.is_legal(spec, target_).reason, "") << options;
    sources.push_back(family.emit(spec, target_));
  }
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
