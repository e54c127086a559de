// Kernels for operands with scales of blocks compile without spilling a register, whatever their
// epilogue, layout and scales. No GPU is needed.
#include <fmt/format.h>

#include "nvrtc/no_spills.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/ways.h"

namespace tessera {
namespace {

class ScaledKernels : public NvrtcTest {
 protected:
  Source source(const std::string& name) const {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(gemm::family().is_legal(spec, target_).reason, "") << name;
    return gemm::family().emit(spec, target_);
  }

  // The kernels of tmaws that are candidates for such problems, every `step`th.
  std::vector<Source> candidates(GemmScale scale_b, std::size_t first, std::size_t step,
                                 GemmGrouping grouping = GemmGrouping::none) const {
    GemmProblem p = scaled_problem(scale_b, grouping);
    return candidates(std::get<GemmSignature>(signature_of(Problem(p))), first, step);
  }

  static GemmProblem scaled_problem(GemmScale scale_b, GemmGrouping grouping) {
    GemmProblem p = gemm_problem(DType::fp8, GemmLayout::rcr, 64, 64, 128);
    p.scale_a = GemmScale::by_1x128, p.scale_b = scale_b, p.grouping = grouping;
    return p;
  }

  std::vector<Source> candidates(const GemmSignature& signature, std::size_t first,
                                 std::size_t step) const {
    std::vector<Algorithm> all;
    gemm::add_scaled({signature, target_, nullptr}, all);
    const bool is_alone = signature.grouping != GemmGrouping::none || gemm::has_outputs(signature);
    EXPECT_GT(all.size(), signature.quant != NormQuant::none ? 2U : is_alone ? 10U : 50U);
    std::vector<Source> sources;
    for (std::size_t i = first; i < all.size(); i += step) {
      const KernelSpec spec = {signature, all[i], target_.name};
      EXPECT_EQ(gemm::family().is_legal(spec, target_).reason, "") << name_of(spec);
      sources.push_back(gemm::family().emit(spec, target_));
    }
    return sources;
  }
};

TEST_F(ScaledKernels, OfBothWaysCompile) {
  expect_no_spills(
      {source("gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_scalea1x128_scaleb128x128_"
              "cooperative_s5_sm90a"),
       source("gemm_fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_scalea1x128_scaleb128x128_s3_sm90a")});
}

TEST_F(ScaledKernels, OfTmawsDoNotSpill) {
  expect_no_spills(candidates(GemmScale::by_128x128, 0, 5));
  expect_no_spills(candidates(GemmScale::by_1x128, 0, 11));
}

TEST_F(ScaledKernels, OfEveryKindOfScaleDoNotSpill) {
  std::vector<Source> sources;
  for (const char* scales :
       {"scalea1x128_scaleb128x128", "scalea1x128_scaleb1x128", "scalea1x32_scaleb1x32_bye8m0",
        "scalea128x128_scaleb1x32", "scaleb128x128", "scalea1x128_bye8m0"}) {
    sources.push_back(
        source(fmt::format("gemm_fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_{}_s3_sm90a", scales)));
  }
  for (const char* layout : {"rrr", "crr", "ccr"}) {
    sources.push_back(source(fmt::format(
        "gemm_fp8_bf8_{}_cpasync_64x64x64_2x2x1_16x8x16_scalea1x32_scaleb128x128_s3_sm90a",
        layout)));
  }
  expect_no_spills(sources);
}

TEST_F(ScaledKernels, WithEpiloguesDoNotSpill) {
  std::vector<Source> sources;
  for (const char* chain : {"bias_gelu", "multidadd2", "rowscale_colscale_bias"}) {
    for (const char* shape : {"128x128x128_2x1x1_64x128x32", "64x32x128_1x1x1_64x32x32"}) {
      sources.push_back(source(
          fmt::format("gemm_fp8_rcr_tmaws_{}_scalea1x128_scaleb128x128_{}_cooperative_s4_sm90a",
                      shape, chain)));
    }
  }
  expect_no_spills(sources);
}

// ---- gates, rows by index, outputs of 8 bits ----

TEST_F(ScaledKernels, WithGatesAndOutputsOf8BitsDoNotSpill) {
  std::vector<Source> sources;
  for (const char* rest :
       {"rcr_cpasync_128x128x64_2x4x1_16x8x16_outfp8_scalea1x128_scaleb128x128_gatesilumul_"
        "quantblock",
        "rcr_cpasync_128x128x64_2x4x1_16x8x16_outbf16_scalea1x128_scaleb128x128_gategelumul_"
        "rowsgathered",
        "crr_cpasync_64x64x64_2x2x1_16x8x16_outbf8_scalea1x32_scaleb1x32_bye8m0_rowsgathered_"
        "quantrow",
        "rcr_cpasync_128x128x64_2x4x1_16x8x16_outfp8_groupsindexed_scalea1x128_scaleb128x128_"
        "gatesilumul_rowsgathered_quantblock",
        "rcr_cpasync_64x64x64_2x2x1_16x8x16_outbf16_groupscontiguous_scalea1x128_scaleb128x128_"
        "rowsscattered"}) {
    sources.push_back(source(fmt::format("gemm_fp8_{}_s3_sm90a", rest)));
  }
  expect_no_spills(sources);
}

TEST_F(ScaledKernels, WithGatesAndRowsByIndexByTmawsCompile) {
  expect_no_spills(
      {source("gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_groupscontiguous_scalea1x128_"
              "scaleb128x128_gatesilumul_rowsgathered_cooperative_s4_sm90a"),
       source("gemm_fp8_rcr_tmaws_128x16x128_1x1x1_64x16x32_outbf16_groupscontiguous_scalea1x128_"
              "scaleb128x128_gatesilumul_rowsgathered_cooperative_s4_swap_sm90a"),
       source("gemm_fp8_rcr_tmaws_256x64x128_2x1x1_64x64x32_outfp8_groupscontiguous_scalea1x128_"
              "scaleb128x128_gatesilumul_rowsgathered_quantblock_cooperative_s4_swap_sm90a"),
       source("gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_dfp32_groupscontiguous_"
              "scalea1x128_scaleb128x128_rowsscattered_rowscale_cooperative_s4_sm90a")});
}

// A gate or rows by index, or both, with every candidate.
TEST_F(ScaledKernels, WithGatesAndRowsByIndexByTmawsDoNotSpill) {
  struct Kind {
    GemmScale scale_b;
    GemmGrouping grouping;
    GemmGate gate;
    bool interleaved;
    GemmIndexing indexing;
    const char* epilogue;
    std::size_t step;
    NormQuant quant = NormQuant::none;
  };
  constexpr Kind kKinds[] = {
      {GemmScale::by_128x128, GemmGrouping::contiguous, GemmGate::silu_mul, false,
       GemmIndexing::gathered, "none", 1},
      {GemmScale::by_1x128, GemmGrouping::contiguous, GemmGate::gelu_mul, true,
       GemmIndexing::gathered, "none", 2},
      {GemmScale::by_128x128, GemmGrouping::indexed, GemmGate::none, false, GemmIndexing::gathered,
       "bias+gelu", 2},
      {GemmScale::by_128x128, GemmGrouping::contiguous, GemmGate::none, false,
       GemmIndexing::scattered, "row_scale", 1},
      {GemmScale::by_1x128, GemmGrouping::indexed, GemmGate::none, false, GemmIndexing::scattered,
       "row_scale+bias", 2},
      {GemmScale::by_1x128, GemmGrouping::masked, GemmGate::gelu_tanh_mul, false,
       GemmIndexing::none, "none", 1},
      {GemmScale::by_1x128, GemmGrouping::none, GemmGate::silu_mul, false, GemmIndexing::scattered,
       "none", 3},
      {GemmScale::by_128x128, GemmGrouping::contiguous, GemmGate::silu_mul, false,
       GemmIndexing::gathered, "none", 1, NormQuant::block},
      {GemmScale::by_128x128, GemmGrouping::indexed, GemmGate::gelu_mul, true,
       GemmIndexing::scattered, "none", 1, NormQuant::block},
      {GemmScale::by_128x128, GemmGrouping::masked, GemmGate::none, false, GemmIndexing::none,
       "none", 1, NormQuant::block},
  };
  for (const Kind& kind : kKinds) {
    GemmProblem p = scaled_problem(kind.scale_b, kind.grouping);
    p.gate = kind.gate, p.gate_interleaved = kind.interleaved, p.indexing = kind.indexing;
    p.epilogue = parse_epilogue(kind.epilogue), p.d = DType::fp32;
    p.quant = kind.quant;
    if (p.quant != NormQuant::none) p.out = DType::fp8;
    expect_no_spills(candidates(std::get<GemmSignature>(signature_of(Problem(p))), 0, kind.step));
  }
}

// ---- groups of unequal sizes ----

TEST_F(ScaledKernels, OfGroupsCompile) {
  expect_no_spills(
      {source("gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groupscontiguous_scalea1x128_"
              "scaleb128x128_cooperative_s5_sm90a"),
       source("gemm_fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_groupsmasked_scalea1x128_scaleb128x128_"
              "s3_sm90a")});
}

TEST_F(ScaledKernels, OfGroupsByTmawsDoNotSpill) {
  expect_no_spills(candidates(GemmScale::by_128x128, 0, 1, GemmGrouping::contiguous));
  expect_no_spills(candidates(GemmScale::by_128x128, 0, 2, GemmGrouping::masked));
  expect_no_spills(candidates(GemmScale::by_1x128, 0, 2, GemmGrouping::indexed));
  expect_no_spills(candidates(GemmScale::by_1x128, 0, 1, GemmGrouping::along_k));
}

TEST_F(ScaledKernels, OfGroupsByWarpsDoNotSpill) {
  std::vector<Source> sources;
  for (const char* rest :
       {"rcr_cpasync_128x128x64_2x4x1_16x8x16_groupscontiguous_scalea1x128_scaleb128x128",
        "rcr_cpasync_128x128x64_2x4x1_16x8x16_groupsmasked_scalea1x128_scaleb1x128",
        "rcr_cpasync_128x128x64_2x4x1_16x8x16_groupsalongk_scalea1x128_scaleb1x128",
        "rcr_cpasync_64x64x64_2x2x1_16x8x16_groupsindexed_scalea1x32_scaleb1x32_bye8m0",
        "rrr_cpasync_64x64x64_2x2x1_16x8x16_groupscontiguous_scalea128x128_scaleb1x32",
        "crr_cpasync_64x64x64_2x2x1_16x8x16_groupsalongk_scalea1x32_scaleb1x32_bye8m0",
        "ccr_cpasync_64x64x64_2x2x1_16x8x16_groupsalongk_scalea1x128_scaleb1x128_bias_gelu"}) {
    sources.push_back(source(fmt::format("gemm_fp8_{}_s3_sm90a", rest)));
  }
  expect_no_spills(sources);
}

TEST_F(ScaledKernels, OfGroupsWithEpiloguesDoNotSpill) {
  std::vector<Source> sources;
  for (const char* chain : {"bias_gelu", "multidadd2", "rowscale_colscale_bias"}) {
    for (const char* shape : {"128x128x128_2x1x1_64x128x32", "64x32x128_1x1x1_64x32x32"}) {
      sources.push_back(
          source(fmt::format("gemm_fp8_rcr_tmaws_{}_groupscontiguous_scalea1x128_scaleb128x128_{}_"
                             "cooperative_s4_sm90a",
                             shape, chain)));
    }
  }
  expect_no_spills(sources);
}

}  // namespace
}  // namespace tessera
