// Attention by WMMA of RDNA 3 and RDNA 4: compiled here, counted, and run instruction by
// instruction on the emulator on random problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hip/fmha/mfma_problems.h"
#include "tessera/device/hip/fmha/wmma_sizes.h"
#include "tessera/families/fmha/fmha.h"

namespace tessera {
namespace {

class WmmaFmha : public MfmaProblems {
 protected:
  static bool is_wmma(const KernelSpec& spec) {
    return spec.algorithm.pipeline == Pipeline::qr && signature(spec).kind == FmhaKind::forward;
  }
  // Matrix instructions of the keys of a tile, in the code.
  static std::uint64_t wmmas_of(const KernelSpec& spec) {
    const Shape3& t = spec.algorithm.tile;
    return static_cast<std::uint64_t>(t.n / 16 * (t.k + fmha::most_hdim_v(t.k)) / 16);
  }
  void check_kernels(const std::vector<KernelSpec>& specs, int problems) {
    for_each_built(specs,
                   [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                     const emulator::Facts facts = kernel.facts(name_of(spec));
                     EXPECT_EQ(mfmas_in(facts), wmmas_of(spec));
                     for (int n = 0; n < problems; ++n) {
                       const FmhaProblem p = with_strides(problem_for(spec));
                       check(spec, source, kernel, p);
                     }
                     expect_few_lds_cycles(kernel);
                   });
  }
  std::vector<KernelSpec> some_of_all(std::size_t count) {
    std::vector<KernelSpec> specs = family_.enumerate(target_, {});
    std::erase_if(specs, [](const KernelSpec& spec) { return !is_wmma(spec); });
    EXPECT_GE(specs.size(), count);
    std::shuffle(specs.begin(), specs.end(), random_);
    specs.resize(std::min(count, specs.size()));
    return specs;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, WmmaFmha, testing::Values("gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(WmmaFmha, KernelsAreLeanAndCorrect) {
  std::vector<KernelSpec> specs = essential(is_wmma);
  ASSERT_EQ(specs.size(), 2U);
  for (const char* words : {"bf16_qr_64x64x32_4x1x1_16x16x16_packed_masked_lse",
                            "fp16_qr_128x32x128_8x1x1_16x16x16_padded_masked_biasalibi_softcap",
                            "fp16_qr_64x32x64_4x1x1_16x16x16_masked_biaselementwise_lse"}) {
    specs.push_back(parse_name(fmt::format("fmha_forward_{}_{}", words, target_.name)));
  }
  check_kernels(specs, 2);
}

TEST_P(WmmaFmha, KeysAreHiddenByTheLeastNumber) {
  run_on_low_scores(
      parse_problem("fmha heads=4 heads_kv=2 seqlen_q=5 seqlen_k=150 hdim=64 bias=elementwise "
                    "lse=1 dtype=fp16 dtype_bias=fp32"),
      is_wmma,
      [&](const KernelSpec&, const EmulatedKernel&, const fmha::LowScores& scores) {
        scores.hide_keys();
      },
      [](const fmha::LowScores& scores) { scores.expect_means(); });
}

class LongWmmaFmha : public WmmaFmha {};
INSTANTIATE_TEST_SUITE_P(Long, LongWmmaFmha, testing::Values("gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });
TEST_P(LongWmmaFmha, SomeOfAllKernelsAreLeanAndCorrect) { check_kernels(some_of_all(25), 12); }

}  // namespace
}  // namespace tessera
