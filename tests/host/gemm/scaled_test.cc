// Kernels of CUDA targets for operands with scales of blocks: their rules, names and text, what is
// listed and chosen, and the launches they are bound to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <set>

#include "tessera/device/cuda/gemm/scaled_output_arguments.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

// ---- rules ----

struct ScaledRefusal {
  const char* name;
  const char* reason;  // empty: legal
};
void PrintTo(const ScaledRefusal& row, std::ostream* out) { *out << row.name; }

class ScaledLegality : public testing::TestWithParam<ScaledRefusal> {};

TEST_P(ScaledLegality, GivesTheReason) {
  const KernelSpec spec = parse_name(GetParam().name);
  EXPECT_EQ(name_of(spec), GetParam().name);
  EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, GetParam().reason);
}

const ScaledRefusal kScaledRefusals[] = {
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_scalea1x128_scaleb128x128_cooperative_s5_"
     "sm90a",
     ""},
    {"gemm_bf8_fp8_rcr_tmaws_64x16x128_1x1x1_64x16x32_scalea1x128_scaleb1x128_cooperative_"
     "splitordered1_slices4_s8_swap_sm90a",
     ""},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_scalea1x128_scaleb128x128_bias_gelu_"
     "cooperative_s4_c2x1_sm90a",
     ""},
    {"gemm_fp8_ccr_cpasync_64x64x64_2x2x1_16x8x16_scalea1x32_scaleb1x32_bye8m0_s3_sm90a", ""},
    {"gemm_fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_scaleb128x128_s3_sm90a", ""},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_scalea1x128_scaleb128x128_bye8m0_cooperative_"
     "s4_sm90a",
     "tmaws takes scale_a=1x128, scale_b=1x128 or 128x128 and scale_type=fp32, got 1x128, 128x128 "
     "and e8m0; use a cpasync kernel"},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_scaleb128x128_cooperative_s4_sm90a",
     "tmaws takes scale_a=1x128, scale_b=1x128 or 128x128 and scale_type=fp32, got none, 128x128 "
     "and fp32; use a cpasync kernel"},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_presh_scalea1x128_scaleb128x128_cooperative_"
     "s4_sm90a",
     "preshuffle must be 0 with scale_a=1x128 and scale_b=128x128, got 1"},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_scalea1x128_scaleb128x128_pingpong_s4_sm90a",
     "block scales go with the cooperative scheduler, 1 or 2 consumers and ordered slices of K "
     "with "
     "tmaws, got pingpong, 2, split_k=none splits=1 streamk=0 repack=0"},
    {"gemm_fp8_rcr_tmaws_64x64x128_1x1x1_64x64x32_scalea1x128_scaleb128x128_cooperative_"
     "splitordered2_s4_sm90a",
     "block scales go with the cooperative scheduler, 1 or 2 consumers and ordered slices of K "
     "with "
     "tmaws, got cooperative, 1, split_k=ordered splits=2 streamk=0 repack=0"},
    {"gemm_fp8_rcr_tmaws_128x128x256_2x1x1_64x128x32_scalea1x128_scaleb128x128_cooperative_s3_"
     "sm90a",
     "block scales need tile_k = 128, the block's, with tmaws, got 256"},
    {"gemm_fp8_rcr_tmaws_128x256x128_2x1x1_64x256x32_scalea1x128_scaleb128x128_cooperative_s3_"
     "sm90a",
     "needs 288 registers a thread for sums, those of a stage and scales, at most 200 fit"},
    {"gemm_fp8_rcr_cpasync_128x128x64_2x2x1_16x8x16_scalea1x128_scaleb128x128_s3_sm90a",
     "needs 128 accumulators a thread (128x128 over 128 threads), at most 64 fit"},
    {"gemm_fp8_rrr_cpasync_128x128x64_2x4x1_16x8x16_scalea1x128_scaleb128x128_s3_sm90a",
     "needs 64 accumulators a thread (128x128 over 256 threads), at most 32 fit"},
    {"gemm_fp8_ccr_cpasync_64x64x64_2x2x1_16x8x16_groupsalongk_scalea1x32_scaleb1x32_bye8m0_s3_"
     "sm90a",
     ""},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groupsindexed_scalea1x128_scaleb128x128_"
     "cooperative_s4_sm90a",
     ""},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groupsalongk_scalea1x128_scaleb1x128_"
     "cooperative_s4_sm90a",
     ""},
    {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groupsmasked_scalea1x128_scaleb128x128_"
     "cooperative_s4_c2x1_sm90a",
     "kernels for groups, gates and rows by index share nothing between blocks and copy no "
     "operand: "
     "they need a 1x1 cluster and splits=1 slices=1 streamk=0 repack=0, got 2x1 and splits=1 "
     "slices=1 streamk=0 repack=0"},
    {"gemm_fp8_rcr_tmaws_256x128x128_2x1x1_64x128x32_groupsmasked_scalea1x128_scaleb128x128_"
     "cooperative_s3_sm90a",
     "needs 193 registers a thread for sums, those of a stage and scales, at most 192 fit"},
    {"gemm_fp8_crr_tmaws_128x128x128_2x1x1_64x128x32_groupsalongk_scalea1x128_scaleb1x128_"
     "cooperative_s4_sm90a",
     "wgmma takes fp8 operands with k contiguous only (rcr, or repack), got crr"},
    {"gemm_fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_outfp8_scalea1x128_scaleb128x128_gatesilumul_"
     "rowsgathered_quantblock_s3_sm90a",
     ""},
    {"gemm_fp8_rcr_packab_192x1920x256_0x0x1_12x32x1_outfp8_scalea1x128_scaleb128x128_gatesilumul_"
     "quantblock_avx512",
     "avx512 has no packab kernels with block scales beside a gate, rows by index or quantised "
     "outputs"},
};
INSTANTIATE_TEST_SUITE_P(Gemm, ScaledLegality, testing::ValuesIn(kScaledRefusals));

// ---- what is listed ----

TEST(ScaledKernels, AreListedWhereAWishNamesThem) {
  const Target target = load_target("sm90a");
  const std::vector<Wish> wishes = {{"dtype", "fp8"},
                                    {"layout", "rcr"},
                                    {"variant", "standard"},
                                    {"scale_a", "1x128"},
                                    {"scale_b", "128x128"}};
  std::set<std::string> names;
  std::set<Pipeline> pipelines;
  const std::vector<KernelSpec> specs = family().enumerate(target, wishes);
  for (const KernelSpec& spec : specs) {
    EXPECT_TRUE(has_scales(std::get<GemmSignature>(spec.signature))) << name_of(spec);
    EXPECT_EQ(family().is_legal(spec, target).reason, "") << name_of(spec);
    EXPECT_TRUE(names.insert(name_of(spec)).second) << name_of(spec);
    pipelines.insert(spec.algorithm.pipeline);
  }
  EXPECT_EQ(pipelines, (std::set{Pipeline::tmaws, Pipeline::cpasync}));
  EXPECT_TRUE(
      family()
          .enumerate(
              target,
              std::vector<Wish>{
                  wishes[0], wishes[1], wishes[2], {"scale_b", "1x32"}, {"pipeline", "tmaws"}})
          .empty());
}

// ---- problems ----

GemmProblem with_blocks(GemmLayout layout, std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmProblem p = gemm_problem(DType::fp8, layout, m, n, k);
  p.scale_a = GemmScale::by_1x128, p.scale_b = GemmScale::by_128x128;
  return p;
}

TEST(ScaledKernels, EveryProblemHasAGeneralOne) {
  const Target target = load_target("sm90a");
  for (const GemmLayout layout :
       {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
    for (const GemmScale scale : {GemmScale::by_1x32, GemmScale::by_1x128, GemmScale::by_128x128}) {
      for (const std::int64_t m : {1, 300}) {
        GemmProblem p = with_blocks(layout, m, 77, 131);
        p.b = DType::bf8, p.scale_a = scale, p.scale_type = GemmScaleType::e8m0;
        p.scale_quads = true;
        const KernelSpec spec = family().general(p, target);
        EXPECT_EQ(family().is_legal(spec, target).reason, "");
        EXPECT_EQ(family().supports(spec, p, target).reason, "");
        EXPECT_EQ(spec.algorithm.pipeline, Pipeline::cpasync);
        EXPECT_EQ(spec.algorithm.tile.m, m == 300 && layout == GemmLayout::rcr ? 128 : 64);
      }
    }
  }
}

TEST(ScaledKernels, EveryProblemWithGroupsHasAGeneralOne) {
  const Target target = load_target("sm90a");
  for (const GemmLayout layout :
       {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
    for (const GemmScale scale : {GemmScale::by_1x32, GemmScale::by_1x128, GemmScale::by_128x128}) {
      for (const GemmGrouping grouping : {GemmGrouping::contiguous, GemmGrouping::indexed,
                                          GemmGrouping::masked, GemmGrouping::along_k}) {
        GemmProblem p = with_blocks(layout, 300, 77, 131);
        p.b = DType::bf8, p.scale_a = scale, p.groups = 5, p.grouping = grouping;
        const KernelSpec spec = family().general(p, target);
        EXPECT_EQ(family().is_legal(spec, target).reason, "") << name_of(spec);
        EXPECT_EQ(family().supports(spec, p, target).reason, "") << name_of(spec);
        EXPECT_EQ(spec.algorithm.pipeline, Pipeline::cpasync);
      }
    }
  }
}

// What the estimate finds best.
KernelSpec best(const GemmProblem& p, const Target& target) {
  std::optional<KernelSpec> found;
  double least = 0;
  for (const KernelSpec& spec : family().legal_candidates(p, target)) {
    if (!family().supports(spec, p, target)) continue;
    const double seconds = family().estimate(spec, p, target, 1).seconds;
    if (found && seconds >= least) continue;
    found = spec, least = seconds;
  }
  return found.value();
}

TEST(ScaledKernels, TheEstimateTakesSmallTilesForFewRows) {
  const Target target = load_target("sm90a");
  for (const std::int64_t m : {1, 16, 64, 128, 1024, 4096}) {
    const KernelSpec spec = best(with_blocks(GemmLayout::rcr, m, 7168, 2048), target);
    fmt::print("m={}: {}\n", m, name_of(spec));
    EXPECT_EQ(spec.algorithm.pipeline, Pipeline::tmaws);
    const Algorithm& a = spec.algorithm;
    const int rows = a.swap_ab ? a.tile.n : a.tile.m;
    if (m <= 64) {
      EXPECT_LE(rows, 64) << name_of(spec);
    }
    if (m >= 1024) {
      EXPECT_GE(a.tile.m * a.tile.n, 128 * 96) << name_of(spec);
    }
  }
}

// Layers of experts: up and down projections of DeepSeek-V3 and Qwen3-30B-A3B.
TEST(ScaledKernels, TheEstimateTakesTmawsForLayersOfExperts) {
  const Target target = load_target("sm90a");
  struct Layer {
    std::int64_t n, k, groups;
  };
  constexpr Layer kLayers[] = {
      {4096, 7168, 256}, {7168, 2048, 256}, {7168, 2048, 32}, {1536, 2048, 128}, {2048, 768, 128}};
  for (const Layer& layer : kLayers) {
    for (const std::int64_t rows : {1, 4, 16, 64, 128, 512}) {
      for (const GemmGrouping grouping :
           {GemmGrouping::contiguous, GemmGrouping::indexed, GemmGrouping::masked}) {
        const bool is_masked = grouping == GemmGrouping::masked;
        GemmProblem p =
            with_blocks(GemmLayout::rcr, is_masked ? rows : rows * layer.groups, layer.n, layer.k);
        p.out = p.d = DType::bf16, p.groups = layer.groups, p.grouping = grouping;
        const KernelSpec spec = best(p, target);
        const Algorithm& a = spec.algorithm;
        EXPECT_EQ(a.pipeline, Pipeline::tmaws) << to_string(Problem(p)) << ": " << name_of(spec);
        const int side = a.swap_ab ? a.tile.n : a.tile.m;
        if (rows <= 16) {
          EXPECT_LE(side, 64) << name_of(spec);
        }
        if (rows >= 512) {
          EXPECT_GE(side, 128) << name_of(spec);
        }
      }
    }
  }
}

// ---- launches and text ----

TEST(ScaledKernels, GetTheirScalesBehindTheOtherArguments) {
  const Target target = load_target("sm90a");
  GemmProblem p = with_blocks(GemmLayout::rcr, 256, 256, 512);
  p.stride_scale_a_m = 1, p.stride_scale_a_k = 256;
  alignas(256) static std::byte memory[512];
  GemmOperands o;
  o.a = o.b = o.out = memory;
  o.scale_a = memory + 16, o.scale_b = memory + 32;
  for (const char* name : {kScaledRefusals[0].name, kScaledRefusals[4].name}) {
    KernelSpec spec = parse_name(name);
    std::get<GemmSignature>(spec.signature).scale_a = GemmScale::by_1x128;
    const Launch launch = family().bind(spec, p, target, o);
    ASSERT_EQ(launch.arguments.size(), sizeof(device::CudaScaledGemmArguments));
    device::CudaScaledGemmArguments x;
    std::memcpy(&x, launch.arguments.data(), sizeof(x));
    EXPECT_EQ(x.cuda.gemm.m, 256);
    EXPECT_EQ(x.scales.a.data, o.scale_a);
    EXPECT_EQ(x.scales.b.data, o.scale_b);
    EXPECT_EQ(x.scales.a.stride_rows, 1);
    EXPECT_EQ(x.scales.a.stride_k, 256);
    EXPECT_EQ(x.scales.b.stride_rows, 4);
    EXPECT_EQ(x.scales.b.stride_k, 1);
    EXPECT_EQ(x.scales.quads, 0);
    std::set<const void*> pointers;
    for (const void* pointer : launch.pointers) pointers.insert(pointer);
    EXPECT_TRUE(pointers.contains(o.scale_a) && pointers.contains(o.scale_b));
  }
}

// Scales have a matrix for each group where their operand has one; others are shared.
TEST(ScaledKernels, GetTheScalesOfGroupsBehindTheOtherArguments) {
  const Target target = load_target("sm90a");
  alignas(256) static std::byte memory[512];
  GemmOperands o;
  o.a = o.b = o.out = memory;
  o.scale_a = memory + 16, o.scale_b = memory + 32;
  o.group_ends = o.group_index = o.group_rows = o.bad_group =
      reinterpret_cast<std::int32_t*>(memory);
  for (const GemmGrouping grouping : {GemmGrouping::contiguous, GemmGrouping::indexed,
                                      GemmGrouping::masked, GemmGrouping::along_k}) {
    GemmProblem p = with_blocks(GemmLayout::rcr, 256, 384, 512);
    p.scale_b = GemmScale::by_1x128, p.check_groups = true;
    p.groups = 3, p.grouping = grouping;
    for (const Pipeline pipeline : {Pipeline::tmaws, Pipeline::cpasync}) {
      const std::vector<KernelSpec> all = family().legal_candidates(p, target);
      const auto found = std::find_if(all.begin(), all.end(), [&](const KernelSpec& spec) {
        return spec.algorithm.pipeline == pipeline;
      });
      ASSERT_NE(found, all.end());
      SCOPED_TRACE(name_of(*found));
      const Launch launch = family().bind(*found, p, target, o);
      ASSERT_EQ(launch.arguments.size(), sizeof(device::CudaScaledGroupArguments));
      device::CudaScaledGroupArguments x;
      std::memcpy(static_cast<void*>(&x), launch.arguments.data(), sizeof(x));
      EXPECT_EQ(x.cuda.groups.groups, 3);
      EXPECT_EQ(x.scales.a.data, o.scale_a);
      EXPECT_EQ(x.scales.b.data, o.scale_b);
      const bool is_masked = grouping == GemmGrouping::masked;
      EXPECT_EQ(x.scales.a.batch_stride, is_masked ? 256 * 4 : 0);
      EXPECT_EQ(x.scales.b.batch_stride, grouping == GemmGrouping::along_k ? 0 : 384 * 4);
      EXPECT_EQ(launch.steps.size(), 2U);
      EXPECT_EQ(launch.tensor_maps.size(), pipeline == Pipeline::tmaws ? 3U : 0U);
      const Source source = family().emit(*found, target);
      for (const char* part :
           {"_prepare(const __grid_constant__ CudaScaledGroupArguments arguments)",
            "GroupCheck::run(arguments.cuda.groups)", "kScaleRowsA = 1",
            "kGrouping = Grouping::"}) {
        EXPECT_NE(source.text.find(part), std::string::npos) << part;
      }
    }
  }
}

TEST(ScaledKernels, GetTheScalesBehindTheArgumentsOfOutputs) {
  const Target target = load_target("sm90a");
  GemmProblem p = with_blocks(GemmLayout::rcr, 256, 256, 512);
  p.out = DType::fp8, p.quant = NormQuant::block, p.gate = GemmGate::silu_mul;
  p.indexing = GemmIndexing::gathered, p.index_room = 20;
  alignas(256) static std::byte memory[512];
  GemmOperands o;
  o.a = o.b = o.out = memory;
  o.scale_a = memory + 16, o.scale_b = memory + 32;
  const KernelSpec spec = family().general(p, target);
  const Launch launch = family().bind(spec, p, target, o);
  ASSERT_EQ(launch.arguments.size(), sizeof(device::CudaScaledOutputArguments));
  device::CudaScaledOutputArguments x;
  std::memcpy(static_cast<void*>(&x), launch.arguments.data(), sizeof(x));
  EXPECT_EQ(x.scales.a.data, o.scale_a);
  EXPECT_EQ(x.scales.b.data, o.scale_b);
  EXPECT_EQ(x.cuda.outputs.index_room, 20);
  EXPECT_EQ(launch.steps.size(), 3U);
  const std::string text = family().emit(spec, target).text;
  for (const char* part : {"scaled_outputs.h", "ScaledOutputsProduct<Config, ScaledMmaGemm>",
                           "__grid_constant__ CudaScaledOutputArguments",
                           "OutputsFinish<Config>::run(arguments.cuda)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(ScaledKernels, TheTextTellsTheScales) {
  const Target target = load_target("sm90a");
  const std::string text = family().emit(parse_name(kScaledRefusals[3].name), target).text;
  EXPECT_NE(text.find("mma_scaled_gemm.h"), std::string::npos);
  EXPECT_NE(text.find("kScaleRowsA = 1, kScaleKA = 32, kScaleRowsB = 1, kScaleKB = 32;"),
            std::string::npos);
  EXPECT_NE(text.find("kScaleE8m0 = true;"), std::string::npos);
  EXPECT_NE(text.find("__grid_constant__ CudaScaledGemmArguments"), std::string::npos);
  const std::string plain =
      family()
          .emit(parse_name("gemm_fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_s3_sm90a"), target)
          .text;
  EXPECT_EQ(plain.find("Scale"), std::string::npos);
}

}  // namespace
}  // namespace tessera::gemm
