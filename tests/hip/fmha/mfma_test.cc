// Attention by matrix instructions of AMD's GPUs: every kernel that ships, compiled here, counted,
// and run instruction by instruction on the emulator on random problems, against the fp64
// reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hip/fmha/emulated_mfma.h"

namespace tessera {
namespace {

constexpr int kProblemsOfKernel = 1;

class MfmaFmha : public EmulatedMfma {
 protected:
  // Whether it reads whole sequences that lie in order.
  static bool is_whole(const KernelSpec& spec) {
    return is_mfma(spec) && spec.algorithm.pipeline != Pipeline::splitkv &&
           signature(spec).pages == FmhaPages::none;
  }

  // The kernels of the essential sets, and some that are in none.
  std::vector<KernelSpec> kernels() {
    std::vector<KernelSpec> specs = essential(is_whole), others;
    EXPECT_GE(specs.size(), 25U);
    const auto add = [&](const KernelSpec& spec) {
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) others.push_back(spec);
    };
    for (const char* words : kOthers) {
      const KernelSpec spec = parse_name(fmt::format("fmha_forward_{}_{}", words, target_.name));
      if (!family_.is_legal(spec, target_)) continue;
      add(spec);
      if (std::get<FmhaSignature>(spec.signature).bias != FmhaBias::elementwise) continue;
      KernelSpec wide = spec;
      std::get<FmhaSignature>(wide.signature).dtype_bias = DType::fp32;
      if (family_.is_legal(wide, target_)) add(wide);
    }
    specs = sampled(specs);
    for (KernelSpec& spec : some(others, kUsualOthers)) specs.push_back(std::move(spec));
    return specs;
  }
  // Two blocks of rows a wave, tiles by registers where shipped kernels copy them, bent scores and
  // dropout.
  static constexpr const char* kOthers[] = {
      "bf16_qr_256x64x64_4x1x1_32x32x16_padded_masked_lse",
      "fp16_qr_128x128x64_4x1x1_32x32x16_packed_masked",
      "fp16_qr_128x64x128_4x1x1_32x32x16_masked_lse",
      "bf16_qr_128x64x128_4x1x1_32x32x16_masked_biasalibi_softcap_lse_dropout",
      "fp16_qr_128x64x64_4x1x1_32x32x16_packed_biaselementwise_lse",
      "fp16_qr_128x64x64_4x1x1_32x32x16_padded_masked_biaselementwise_softcap_dropout",
      "bf16_qr_128x128x32_4x1x1_32x32x16_softcap_dropout",
      "bf16_qrasync_256x64x128_4x1x1_32x32x16_packed_masked_lse",
      "fp16_qrasync_256x64x64_4x1x1_32x32x16",
      "fp16_qrasync_128x64x128_4x1x1_32x32x16_masked_biaselementwise_lse",
      "bf16_qrasync_128x64x64_4x1x1_32x32x16_padded_masked_biasalibi_lse",
      "fp16_qrasync_128x64x128_4x1x1_32x32x16_packed_softcap_dropout",
      "fp16_qr_128x64x192_4x1x1_32x32x16_packed_masked_lse",
      "bf16_qr_128x64x192_4x1x1_32x32x16_softcap",
      "bf16_qrasync_128x64x192_4x1x1_32x32x16_padded_masked_lse",
      "fp16_qrasync_128x64x192_4x1x1_32x32x16_biasalibi_lse"};
};
INSTANTIATE_TEST_SUITE_P(Targets, MfmaFmha, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(MfmaFmha, EveryKernelIsLeanAndCorrect) { check_kernels(kernels(), kProblemsOfKernel); }

TEST_P(MfmaFmha, KeysAreHiddenByTheLeastNumber) {
  for (const char* words : {"dtype=bf16", "dtype=fp16 dtype_bias=fp32"}) {
    SCOPED_TRACE(words);
    run_on_low_scores(
        parse_problem(fmt::format(
            "fmha heads=4 heads_kv=2 seqlen_q=5 seqlen_k=150 hdim=64 bias=elementwise lse=1 {}",
            words)),
        is_mfma,
        [&](const KernelSpec& spec, const EmulatedKernel& kernel, const fmha::LowScores& scores) {
          expect_counted(spec, kernel);
          scores.hide_keys();
        },
        [](const fmha::LowScores& scores) { scores.expect_means(); });
  }
}

// The compiler waits for copies to LDS where it cannot tell that a read is not of them. The loop is
// to have the one wait that the kernel asks for.
TEST_P(MfmaFmha, WaitsOnceATileForCopies) {
  if (GetParam() != "gfx950") GTEST_SKIP() << GetParam() << " copies no tiles";
  for (const char* words : {"fp16_qrasync_128x64x128_4x1x1_32x32x16_gfx950",
                            "bf16_qrasync_128x64x64_4x1x1_32x32x16_masked_gfx950"}) {
    SCOPED_TRACE(words);
    const Source source = family_.emit(parse_name(fmt::format("fmha_forward_{}", words)), target_);
    const EmulatedKernel kernel(read_file(builder().build(source, target_).binary));
    const emulator::Facts facts = kernel.facts(fmt::format("fmha_forward_{}", words));
    EXPECT_GE(facts.loops.size(), 1U);
    for (const emulator::Loop& loop : facts.loops) EXPECT_EQ(loop.vm_left.size(), 1U);
  }
}

// What a wave executes for a tile of keys: the difference of two problems, a workgroup each, that
// differ in so many tiles. docs/performance/cdna_fmha.md has the table.
constexpr int kMoreTiles = 4, kWaves = 4;
struct TileCounts {
  std::uint64_t mfmas = 0, exps = 0, others = 0;  // vector instructions
};
TileCounts counts_of_tile(const emulator::Statistics& few, const emulator::Statistics& many) {
  TileCounts counts;
  for (const auto& [name, count] : many.executed) {
    if (!name.starts_with("v_")) continue;
    const auto before = few.executed.find(name);
    const std::uint64_t more = count - (before == few.executed.end() ? 0 : before->second);
    (name.starts_with("v_mfma")   ? counts.mfmas
     : name.starts_with("v_exp_") ? counts.exps
                                  : counts.others) += more;
  }
  const auto tiles = static_cast<std::uint64_t>(kWaves * kMoreTiles);
  return {counts.mfmas / tiles, counts.exps / tiles, counts.others / tiles};
}

TEST_P(MfmaFmha, ATileNeedsFewVectorInstructions) {
  const bool copies = target_.name == "gfx950";
  for (const char* type : {"fp16", "bf16"}) {
    for_each_kernel(
        {fmt::format("fmha_forward_{}_{}_128x64x128_4x1x1_32x32x16", type,
                     copies ? "qrasync" : "qr")},
        [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
          emulator::Statistics runs[2];
          for (int i = 0; i < 2; ++i) {
            kernel.statistics = {};
            // With such a scale no tile after the first has a weight that calls for a new maximum.
            check(spec, source, kernel,
                  parse_problem(fmt::format("fmha heads=1 seqlen_q=128 seqlen_k={} hdim=128 "
                                            "scale=0.001 dtype={}",
                                            64 * (4 + i * kMoreTiles), type)));
            runs[i] = kernel.statistics;
          }
          const TileCounts counts = counts_of_tile(runs[0], runs[1]);
          EXPECT_EQ(counts.mfmas, copies ? 32U : 64U);
          EXPECT_EQ(counts.exps, 32U);
          EXPECT_LE(counts.others, copies ? 89U : 130U);
          fmt::print("{}: {} MFMAs, {} powers of two, {} other vector instructions a tile\n", type,
                     counts.mfmas, counts.exps, counts.others);
        });
  }
}

}  // namespace
}  // namespace tessera
