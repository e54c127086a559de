// Stream-K and tiles that fit, on a GPU: problems whose tiles fill a part of a wave, or a little
// more or less than waves, against the fp64 reference, with bit-identical repeats.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/gpu_test.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

struct Size {
  std::int64_t m, n, k;
  std::int64_t batch = 1;
};

class GpuStream : public GpuTest {
 protected:
  void check(const char* name, const Size& size, double beta = 0) {
    const KernelSpec spec = parse_name(name);
    ASSERT_EQ(family_of(spec).is_legal(spec, target_).reason, "") << name;
    GemmProblem p =
        gemm::problem_of(std::get<GemmSignature>(spec.signature), size.m, size.n, size.k);
    p.batch = size.batch;
    p.beta = beta;
    ASSERT_EQ(family_of(spec).supports(spec, p, target_).reason, "") << name;
    const Problem problem = p;
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("{} on '{}', seed {}", name, to_string(problem), seed));
    measure::OwnedOperands owned = measure::random_operands(problem, seed);
    measure::PlacedOperands placed = place(owned);
    Operands operands = placed.operands;
    const ReadyKernel& ready = dispatcher_->kernel_for(problem, {.force = name});
    const runtime::DeviceBuffer packed =
        measure::pack_operand(*ready.loaded, spec, problem, *ready.target, operands, place_);
    const std::vector<std::byte> first = run(problem, owned, placed, operands, name);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    expect_correct(family_of(spec).unpacked(problem), owned);
    // Blocks arrive in another order each time, and counters are as they were.
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(run(problem, owned, placed, operands, name), first) << "repeat " << i;
    }
  }

  void build_names(const std::vector<const char*>& names) {
    std::vector<KernelSpec> specs;
    for (const char* name : names) specs.push_back(parse_name(name));
    ASSERT_NO_FATAL_FAILURE(build(specs));
  }
};

TEST_F(GpuStream, PartsOfWavesAreCorrect) {
  constexpr const char* kSmall =
      "gemm_bf16_rcr_tmaws_128x72x64_2x1x1_64x72x16_cooperative_splitordered1_streamk_s8_swap_"
      "sm90a";
  ASSERT_NO_FATAL_FAILURE(build_names({kSmall}));
  // Tiles: 1, 4, 33 and 40 of less than a wave, 132 and 264 of whole ones, then a little more and
  // a little less.
  for (const Size& size :
       {Size{72, 128, 64 * 100}, Size{130, 250, 64 * 31 + 8}, Size{200, 11 * 128, 4096},
        Size{72 * 4, 10 * 128, 8192}, Size{72 * 11, 12 * 128, 1024}, Size{72 * 22, 12 * 128, 1024},
        Size{72 * 19, 7 * 128, 1032}, Size{72 * 13, 20 * 128, 1600}, Size{72 * 15, 23 * 128, 1088},
        Size{72 * 19 - 7, 7 * 128 - 8, 960}, Size{100, 264, 2048, 33}}) {
    check(kSmall, size);
    if (HasFailure()) return;
  }
}

TEST_F(GpuStream, TypesLayoutsAndEpiloguesAreCorrect) {
  const std::vector<const char*> names = {
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_cooperative_splitordered1_streamk_s6_sm90a",
      "gemm_bf16_rcr_tmaws_256x72x64_2x1x1_64x72x16_cooperative_splitordered1_streamk_s4_swap_"
      "sm90a",
      "gemm_bf16_rcr_tmaws_192x120x64_3x1x1_64x120x16_bias_relu_cooperative_splitordered1_streamk_"
      "s4_swap_sm90a",
      "gemm_bf16_rcr_tmaws_128x200x64_2x1x1_64x200x16_cooperative_splitordered1_streamk_s4_swap_"
      "sm90a",
      "gemm_bf16_rrr_tmaws_128x192x64_2x1x1_64x192x16_cooperative_splitordered1_streamk_s4_sm90a",
      "gemm_bf16_rcr_tmaws_128x192x64_2x1x1_64x192x16_cooperative_splitordered1_streamk_s4_c2x1_"
      "sm90a",
      "gemm_bf16_rcr_tmaws_128x176x64_2x1x1_64x176x16_cooperative_splitordered1_streamk_s4_c2x1_"
      "swap_sm90a",
      "gemm_bf16_rcr_tmaws_192x112x64_3x1x1_64x112x16_bias_cooperative_splitordered1_streamk_s4_"
      "c1x2_swap_sm90a",
      "gemm_fp16_ccr_tmaws_128x128x64_2x1x1_64x128x16_bias_gelu_cooperative_splitordered1_streamk_"
      "s6_sm90a",
      "gemm_bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_multidadd2_cooperative_splitordered1_"
      "streamk_s5_sm90a",
      "gemm_bf16_rcr_tmaws_256x72x64_2x1x1_64x72x16_outfp32_cooperative_splitordered1_streamk_"
      "s3_swap_sm90a",
      "gemm_fp8_rcr_tmaws_128x200x128_2x1x1_64x200x32_cooperative_splitordered1_streamk_s4_swap_"
      "sm90a",
      "gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_presh_cooperative_splitordered1_streamk_s6_"
      "sm90a",
      "gemm_int8_rcr_tmaws_128x112x128_2x1x1_64x112x32_cooperative_splitordered1_streamk_s6_swap_"
      "sm90a",
      "gemm_tf32_rcr_tmaws_128x96x32_2x1x1_64x96x8_cooperative_splitordered1_streamk_s6_swap_sm90a",
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_cooperative_splitordered1_streamk_s6_repack_"
      "sm90a",
  };
  ASSERT_NO_FATAL_FAILURE(build_names(names));
  for (const char* name : names) {
    const bool whole_rows = parse_name(name).algorithm.repack;
    const std::int64_t odd = whole_rows ? 1 : 16;
    check(name, {400 + odd, 512 + odd, 2048 + odd});
    check(name, {384, 640, 4096}, 2);
    check(name, {256 + odd, 336, 2560, 2});
    if (HasFailure()) return;
  }
}

// Tiles of other sides without stream-K: their stores in chunks that are no power of 2.
TEST_F(GpuStream, FittedTilesAreCorrect) {
  const std::vector<const char*> names = {
      "gemm_bf16_rcr_tmaws_128x72x64_2x1x1_64x72x16_cooperative_s8_swap_sm90a",
      "gemm_bf16_rcr_tmaws_128x80x64_2x1x1_64x80x16_bias_cooperative_s7_swap_sm90a",
      "gemm_bf16_rcr_tmaws_128x112x64_2x1x1_64x112x16_cooperative_s6_swap_sm90a",
      "gemm_bf16_rcr_tmaws_192x144x64_3x1x1_64x144x16_outfp32_cooperative_s4_swap_sm90a",
      "gemm_bf16_rcr_tmaws_128x200x64_2x1x1_64x200x16_bias_silu_cooperative_s4_swap_sm90a",
      "gemm_bf16_rcr_tmaws_256x96x64_2x1x1_64x96x16_multiply_cooperative_s4_swap_sm90a",
      "gemm_bf16_rcr_tmaws_128x216x64_2x1x1_64x216x16_cooperative_s4_swap_sm90a",
      "gemm_bf16_rcr_tmaws_128x200x64_2x1x1_64x200x16_cooperative_splitordered1_slices3_s4_swap_"
      "sm90a",
      "gemm_fp8_rcr_tmaws_128x240x128_2x1x1_64x240x32_cooperative_s4_swap_sm90a",
  };
  ASSERT_NO_FATAL_FAILURE(build_names(names));
  for (const char* name : names) {
    check(name, {215, 400, 336});
    check(name, {433, 264, 512, 2});
    check(name, {96, 1000, 640}, 1);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
