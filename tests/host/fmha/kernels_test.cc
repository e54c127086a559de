// Kernels of attention without running any: which there are, which are legal, what they serve.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "host/families/asked.h"
#include "host/families/listed.h"
#include "host/fmha/fmha_problems.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

TEST(FmhaNames, SayWhichFactorsThereAre) {
  for (const char* name :
       {"fmha_forward_fp8_direct_16x32x128_4x1x1_1x1x1_scalespertensor_sm90a",
        "fmha_forward_bf8_flash_96x64x576_0x1x1_6x16x1_outbf8_packed_pageslist_vectorized_"
        "scaleskvblock_avx2"}) {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(name_of(spec), name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, "") << name;
  }
}

TEST(FmhaNames, SayHowPagesAreRead) {
  for (const char* name : {"fmha_forward_bf16_direct_16x32x128_4x1x1_1x1x1_pagestable_sm90a",
                           "fmha_forward_fp32_flash_96x64x576_0x1x1_6x16x1_padded_masked_lse_"
                           "pageslist_vectorized_avx2"}) {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(name_of(spec), name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, "") << name;
  }
}

// One pipeline is a way of its own for each kind; attention's serves kernels that append first.
TEST(FmhaWays, AreToldApartByKind) {
  const Target gpu = load_target("sm90a");
  const auto found = [&](FmhaKind kind, Pipeline pipeline) {
    const FmhaSignature signature = {.kind = kind};
    const Algorithm algorithm = {.pipeline = pipeline, .tile = {}, .wave = {}, .warp_tile = {}};
    return tile::find_way<Types>({signature, algorithm, gpu});
  };
  EXPECT_EQ(found(FmhaKind::forward, Pipeline::direct), &kDirectGpu);
  EXPECT_EQ(found(FmhaKind::extend, Pipeline::direct), &kDirectGpu);
  EXPECT_EQ(found(FmhaKind::backward, Pipeline::direct), &kBackwardDirectGpu);
  EXPECT_EQ(found(FmhaKind::append, Pipeline::direct), &kAppendGpu);
  EXPECT_EQ(found(FmhaKind::backward, Pipeline::splitkv), nullptr);
}

struct Rejected {
  const char* name;
  const char* reason;
};
constexpr Rejected kRejected[] = {
    {"fmha_forward_fp32_rows_96x64x576_0x1x1_6x16x1_avx2", "avx2 has no pipeline rows"},
    {"fmha_forward_tf32_flash_96x64x576_0x1x1_6x16x1_avx2",
     "in must be fp32, fp16, bf16, fp8 or bf8, got tf32"},
    {"fmha_forward_fp32_flash_96x64x576_0x1x1_6x16x1_random_avx2",
     "random must be 0 without dropout (p_drop 0), which draws no random values, got 1"},
    {"fmha_forward_fp32_flash_96x64x576_0x1x1_6x16x1_slices3_avx2",
     "slices must be 1 with flash, got 3"},
    {"fmha_forward_fp32_flash_96x64x576_2x1x1_6x16x1_avx2", "wave must be 0x1x1, got 2x1x1"},
    {"fmha_forward_fp32_flash_96x64x576_0x1x1_6x12x1_avx2",
     "warp tile must be m x n x 1, n a multiple of 8 lanes, with less than 16 registers in use, "
     "got 6x12x1"},
    {"fmha_forward_fp32_flash_96x64x576_0x1x1_8x16x1_avx2",
     "warp tile must be m x n x 1, n a multiple of 8 lanes, with less than 16 registers in use, "
     "got 8x16x1"},
    {"fmha_forward_fp32_flash_95x64x576_0x1x1_6x16x1_avx2",
     "tile must be m x n x 576, at most 4096, m and n multiples of warp tile 6x16x1, got "
     "95x64x576"},
    {"fmha_forward_fp32_flash_96x64x512_0x1x1_6x16x1_avx2",
     "tile must be m x n x 576, at most 4096, m and n multiples of warp tile 6x16x1, got "
     "96x64x512"},
    {"fmha_forward_fp32_flash_96x64x576_0x1x1_6x16x1_vectorized_avx2",
     "cache_layout must be linear with pages=none, got vectorized"},
    {"fmha_forward_fp32_direct_16x32x64_33x1x1_1x1x1_sm90a",
     "wave must be m x 1 x 1 warps of 32 threads, at most 1024 threads, got 33x1x1"},
    {"fmha_forward_fp32_direct_16x32x64_4x1x1_1x8x1_sm90a", "warp tile must be 1x1x1, got 1x8x1"},
    {"fmha_forward_fp32_direct_16x64x64_4x1x1_1x1x1_sm90a",
     "tile must be m x 32 x k, m a multiple of 4 warps, k 64, 128, 256 or 576, got 16x64x64"},
    {"fmha_forward_fp32_direct_14x32x64_4x1x1_1x1x1_sm90a",
     "tile must be m x 32 x k, m a multiple of 4 warps, k 64, 128, 256 or 576, got 14x32x64"},
    {"fmha_forward_fp32_direct_16x32x96_4x1x1_1x1x1_sm90a",
     "tile must be m x 32 x k, m a multiple of 4 warps, k 64, 128, 256 or 576, got 16x32x96"},
    {"fmha_forward_fp32_direct_64x32x576_4x1x1_1x1x1_sm90a",
     "needs 295424 bytes of shared memory, sm90a has 232448"},
};

TEST(FmhaLegality, SaysWhichRuleIsBroken) {
  for (const Rejected& row : kRejected) {
    const KernelSpec spec = parse_name(row.name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, row.reason) << row.name;
  }
  expect_strangers_refused(family(), "fmha_forward_fp32_flash_96x64x576_0x1x1_6x16x1_avx2");
}

class FmhaOn : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, FmhaOn, testing::Values("avx512", "avx2", "generic", "sm90a"),
                         [](const auto& row) { return row.param; });

TEST_P(FmhaOn, ListedKernelsAreLegalSortedAndNamed) {
  expect_listed(family(), target_,
                {Wish{"lengths", "packed"}, Wish{"bias", "alibi"}, Wish{"dtype", "bf16"},
                 Wish{"masked", "true"}, Wish{"lse", "false"}, Wish{"dropout", "true"}});
}

TEST_P(FmhaOn, EssentialKernelsAreLegalAndOfTheirSet) {
  std::size_t found = 0;
  for (const std::string& set : family().preselected_names()) {
    const std::vector<KernelSpec> specs = family().preselected(set, target_);
    EXPECT_GE(specs.size(), 1U) << set;
    for (const KernelSpec& spec : specs) {
      const auto& s = std::get<FmhaSignature>(spec.signature);
      EXPECT_EQ(set, fmt::format("{}_{}_essential", to_string(s.kind), to_string(s.in)));
      EXPECT_TRUE(family().is_essential(spec, target_));
      EXPECT_EQ(family().is_legal(spec, target_).reason, "") << name_of(spec);
      ++found;
    }
  }
  EXPECT_GE(found, 3U);
}

TEST_P(FmhaOn, GeneralServesEveryValidProblem) {
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  for (int i = 0; i < 300; ++i) {
    FmhaProblem p = random.problem(5000, 512);
    if (random.integer(0, 9) == 0) p = fmha_problem(p.in, 2, 3, 1, p.seqlen_q, p.seqlen_k, 576);
    if (p.hdim == 576) p.hdim_v = 512;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << to_string(Problem(p)));
    const KernelSpec spec = family().general(p, target_);
    EXPECT_EQ(family().is_legal(spec, target_).reason, "");
    EXPECT_EQ(family().supports(spec, p, target_).reason, "");
    EXPECT_EQ(parse_name(name_of(spec)), spec);
    const double seconds = estimate(spec, p, target_, 2).seconds;
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 1e9);
  }
}

TEST_P(FmhaOn, TextNamesKernelAndTypes) {
  const Problem p = parse_problem(
      "fmha heads=2 seqlen_q=3 seqlen_k=4 hdim=8 dtype=bf16,fp32 out=fp16 bias=elementwise "
      "mask=top_left lengths=packed lse=1 p_drop=0.5");
  const KernelSpec spec = family().general(p, target_);
  const Source source = family().emit(spec, target_);
  EXPECT_EQ(source.name, name_of(spec));
  EXPECT_EQ(source.abi, kAbi);
  EXPECT_FALSE(source.entries.empty());
  for (const char* part :
       {"using In = bf16;", "using Out = fp16;", "using Bias = float;",
        "kLengths = FmhaLengths::packed;", "kBias = FmhaBias::elementwise;",
        "kMasked = true, kSoftCap = false, kLse = true;", "kDropout = true, kRandom = false;"}) {
    EXPECT_NE(source.text.find(part), std::string::npos) << part;
  }
}

// An operand without elements may lie anywhere, also one past the end of an allocation.
TEST(FmhaBind, EmptyOperandsAreNotChecked) {
  const Problem p = parse_problem("fmha heads=2 seqlen_q=5 seqlen_k=0 hdim=64 dtype=bf16 lse=1");
  alignas(64) static std::byte memory[64];
  const FmhaOperands o = {
      .q = memory, .k = memory + 1, .v = memory + 2, .out = memory + 16, .lse = nullptr};
  const Launch launch = family().bind(family().general(p, load_target("sm90a")), p,
                                      load_target("sm90a"), Operands(o));
  const auto has = [&](const void* pointer) {
    return std::find(launch.pointers.begin(), launch.pointers.end(), pointer) !=
           launch.pointers.end();
  };
  EXPECT_TRUE(has(o.q) && has(o.out));
  EXPECT_FALSE(has(o.k) || has(o.v));
}

TEST(FmhaSupports, SaysWhatDiffers) {
  const Target target = load_target("sm90a");
  const Problem own = parse_problem("fmha heads=2 seqlen_q=3 seqlen_k=4 hdim=64 dtype=bf16");
  KernelSpec spec = family().general(own, target);
  spec.algorithm.tile.k = 128;
  const auto reason = [&](const std::string& more) {
    return family()
        .supports(spec, parse_problem("fmha heads=2 seqlen_q=3 seqlen_k=4 hdim=64 " + more), target)
        .reason;
  };
  EXPECT_EQ(reason("dtype=bf16"), "");
  EXPECT_EQ(reason("dtype=bf16 hdim_v=128"), "");
  EXPECT_EQ(reason("dtype=bf16 mask=top_left"), "the kernel has masked=0, the problem masked=1");
  EXPECT_EQ(reason("dtype=bf16 lse=1"), "the kernel has lse=0, the problem lse=1");
  EXPECT_EQ(reason("dtype=bf16 p_drop=0.5"), "the kernel has dropout=0, the problem dropout=1");
  EXPECT_EQ(reason("dtype=bf16 soft_cap=3"), "the kernel has soft_cap=0, the problem soft_cap=1");
  EXPECT_EQ(reason("dtype=bf16 lengths=padded"),
            "the kernel has lengths=equal, the problem lengths=padded");
  EXPECT_EQ(reason("dtype=fp16"), "the kernel has in=bf16, the problem in=fp16");
  const std::string tile = to_string(spec.algorithm.tile);
  EXPECT_EQ(reason("dtype=bf16 hdim_v=129"),
            "tile " + tile + " serves values of 128 elements, got 129 (hdim_v)");
  spec.algorithm.tile.k = 63;
  EXPECT_EQ(reason("dtype=bf16"), "tile " + to_string(spec.algorithm.tile) +
                                      " serves heads of 63 elements, got 64 (hdim)");
  EXPECT_EQ(family().supports(spec, parse_problem("gemm m=1 n=1 k=1"), target).reason,
            "the kernel is for fmha, the problem for gemm");
}

}  // namespace
}  // namespace tessera::fmha
