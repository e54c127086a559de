// Kernels for groups of unequal sizes on a GPU, with scales of blocks and without: random groups of
// every kind, empty ones, one that has everything, against the fp64 reference; rows of no group bit
// for bit; numbers that do not fit; NaN in a neighbour; and graphs that are replayed with other
// sizes.
#include <cmath>
#include <cstring>

#include "cuda/gemm/grouped_gpu_test.h"

namespace tessera {
namespace {

class GpuGrouped : public GroupedGpuTest {
 protected:
  // The places of A and of B, or of A alone, that belong to group 2 of NanStaysInItsGroup.
  static void fill_with_nan(const GemmProblem& p, const GemmOperands& o) {
    const auto fill = [](const void* data, DType dtype, std::int64_t index) {
      const auto size = static_cast<std::size_t>(size_of(dtype));
      auto* const to = static_cast<std::byte*>(const_cast<void*>(data));
      std::memset(to + index * static_cast<std::int64_t>(size), 0xff, size);
    };
    const bool along_k = p.grouping == GemmGrouping::along_k;
    const bool has_matrices = p.grouping == GemmGrouping::masked;
    const bool a_rows = a_is_row_major(p.layout), b_rows = b_is_row_major(p.layout);
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t k = 0; k < p.k; ++k) {
        const std::int64_t place = along_k ? k : row;
        if (place >= 101 || (place < 37 && !has_matrices)) continue;
        const std::int64_t at = a_rows ? row * p.ld_a + k : k * p.ld_a + row;
        fill(o.a, p.a, at + (has_matrices ? 2 * p.batch_stride_a : 0));
      }
    }
    for (std::int64_t k = 37; k < 101 && along_k; ++k) {
      for (std::int64_t column = 0; column < p.n; ++column) {
        fill(o.b, p.b, b_rows ? k * p.ld_b + column : column * p.ld_b + k);
      }
    }
  }

  // Group 2 has NaN.
  void expect_nan_stays(const std::vector<KernelSpec>& specs) {
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      const auto& signature = std::get<GemmSignature>(spec.signature);
      GemmProblem p = gemm::problem_of(signature, 160, 96, 272);
      p.groups = 4;
      const auto room = static_cast<int>(p.grouping == GemmGrouping::along_k ? p.k : p.m);
      const std::vector<std::int32_t> ends = {37, 37, 101, room};
      measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
      const auto& o = std::get<GemmOperands>(owned.operands);
      auto* const numbers = const_cast<std::int32_t*>(gemm::numbers_of(p, o));
      for (std::int64_t i = 0; i < gemm::numbers_count(p); ++i) {
        numbers[i] = p.grouping == GemmGrouping::indexed ? (i < 37    ? 0
                                                            : i < 101 ? 2
                                                                      : 3)
                                                         : ends[static_cast<std::size_t>(i)];
      }
      fill_with_nan(with_strides(p), o);
      measure::reset_outputs(owned);
      const std::vector<std::byte> before = grouped::bytes_of_out(owned);
      SCOPED_TRACE(name_of(spec));
      run_at(Edge::last, name_of(spec), p, owned);
      expect_right(p, owned, before);
    }
  }
};

TEST_F(GpuGrouped, KernelsByWarpsAreCorrect) {
  check_all({"fp32_rcr_cpasync_64x64x32_2x2x1_8x4x1_groups{}_s3",
             "fp32_crr_cpasync_128x128x32_2x4x1_8x8x1_groups{}_bias_gelu_s3",
             "tf32_rrr_cpasync_64x64x32_2x2x1_16x8x8_groups{}_s3",
             "fp16_ccr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_multidadd2_s3",
             "bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_groups{}_s3",
             "bf16_crr_cpasync_64x64x64_2x2x1_16x8x16_outfp32_groups{}_s3",
             "bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_rowscale_colscale_bias_clamp_s3",
             "fp8_rcr_cpasync_64x64x128_2x2x1_16x8x16_groups{}_s3",
             "fp8_bf8_rrr_cpasync_64x64x128_2x2x1_16x8x16_outbf16_groups{}_s3",
             "int8_rcr_cpasync_64x64x128_2x2x1_16x8x32_groups{}_s3",
             "int8_crr_cpasync_64x64x128_2x2x1_16x8x32_outint8_groups{}_s3"},
            1, 6);
}

TEST_F(GpuGrouped, KernelsByTheCopyEngineAreCorrect) {
  check_all({"bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groups{}_cooperative_s4",
             "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4",
             "bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_outfp32_groups{}_cooperative_s4",
             "bf16_rrr_tmaws_64x256x64_2x1x1_64x256x16_groups{}_pingpong_s4",
             "bf16_crr_tmaws_64x128x64_2x1x1_64x128x16_groups{}_pingpong_s4",
             "fp16_ccr_tmaws_192x128x64_3x1x1_64x128x16_groups{}_bias_gelu_cooperative_s4",
             "bf16_rcr_tmaws_64x16x64_1x1x1_64x16x16_groups{}_cooperative_s8_swap",
             "bf16_rcr_tmaws_64x32x64_1x1x1_64x32x16_groups{}_bias_silu_cooperative_s8_swap",
             "bf16_rcr_tmaws_128x64x64_2x1x1_64x64x16_groups{}_cooperative_s5_swap",
             "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_multidadd2_cooperative_s4",
             "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_rowscale_colscale_cooperative_s4",
             "fp8_rcr_tmaws_128x256x128_2x1x1_64x256x32_groups{}_cooperative_s4",
             "fp8_rcr_tmaws_64x128x128_2x1x1_64x128x32_outbf16_groups{}_pingpong_s4",
             "int8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groups{}_cooperative_s4",
             "tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8_groups{}_cooperative_s4"},
            16, 8);
}

// What a dispatcher chooses.
TEST_F(GpuGrouped, ChosenKernelsAreCorrect) {
  for (const char* line :
       {"gemm m=2000 n=1536 k=1024 dtype=bf16 groups=37 grouping=contiguous",
        "gemm m=2000 n=1000 k=512 dtype=bf16 groups=300 grouping=indexed epilogue=bias",
        "gemm m=64 n=1536 k=2048 dtype=bf16 groups=30 grouping=masked",
        "gemm m=512 n=384 k=5000 dtype=bf16 layout=crr groups=9 grouping=along_k out=fp32",
        "gemm m=1500 n=512 k=1024 dtype=fp8 groups=12 grouping=contiguous out=bf16",
        "gemm m=300 n=77 k=131 groups=20 grouping=contiguous",
        "gemm m=900 n=33 k=35 dtype=bf16 groups=20000 grouping=contiguous",
        "gemm m=100 n=200 k=65 dtype=bf16 groups=6 grouping=along_k beta=1"}) {
    const Problem problem = parse_problem(line);
    const ReadyKernel& ready = dispatcher_->kernel_for(problem);
    check(name_of(ready.spec), std::get<GemmProblem>(problem), false);
    if (HasFailure()) return;
  }
}

// What the numbers say that do not fit is written, and nothing else.
TEST_F(GpuGrouped, NumbersThatDoNotFitAreReported) {
  const std::vector<KernelSpec> specs =
      kernels({"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
               "fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
               "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4"});
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    SCOPED_TRACE(name_of(spec));
    const auto& signature = std::get<GemmSignature>(spec.signature);
    const bool has_matrices = gemm::group_matrices(signature.grouping).out;
    const bool along_k = signature.grouping == GemmGrouping::along_k;
    GemmProblem p = gemm::problem_of(signature, has_matrices ? 24 : 3000, 16, along_k ? 3000 : 40);
    p.groups = 2500, p.check_groups = true, p.group_int64 = draw(0, 1) == 0;
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    auto& o = std::get<GemmOperands>(owned.operands);
    const std::int64_t count = gemm::numbers_count(p);
    for (int i = 0; i < 3; ++i)
      grouped::put_number(p, o, draw(1, count - 1), draw(0, 1) * 9000 - 5);
    const device::BadGroup bad = device::first_bad_group(gemm::group_arguments(with_strides(p), o));
    ASSERT_TRUE(bad.found);
    expect_report(p, owned, name_of(spec), bad);
  }
}

// A graph is replayed with other sizes of groups.
TEST_F(GpuGrouped, IsCapturedAndReplayedWithOtherSizes) {
  replay(kernels({"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
                  "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4",
                  "bf16_rcr_tmaws_64x32x64_1x1x1_64x32x16_groups{}_cooperative_s8_swap"}));
}

// NaN in one group reaches no other one.
TEST_F(GpuGrouped, NanStaysInItsGroup) {
  expect_nan_stays(kernels({"bf16_crr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
                            "bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4",
                            "bf16_rcr_tmaws_64x128x64_2x1x1_64x128x16_groups{}_pingpong_s4",
                            "fp8_rcr_tmaws_128x64x128_2x1x1_64x64x32_groups{}_cooperative_s5"}));
}

// ---- with scales of blocks ----

class GpuGroupedScaled : public GpuGrouped {};

TEST_F(GpuGroupedScaled, KernelsByWarpsAreCorrect) {
  check_all(
      {"fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
       "fp8_rcr_cpasync_64x64x128_2x2x1_16x8x16_groups{}_scalea1x32_scaleb1x32_bye8m0_s3",
       "fp8_bf8_rrr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea128x128_scaleb1x32_s3",
       "bf8_crr_cpasync_64x64x64_2x2x1_16x8x16_outbf16_groups{}_scalea1x128_bye8m0_bias_gelu_s3",
       "bf8_fp8_ccr_cpasync_64x64x64_2x2x1_16x8x16_outfp32_groups{}_scaleb128x128_multidadd2_s3",
       "fp8_rcr_cpasync_64x64x32_2x2x1_16x8x16_groups{}_scalea1x128_scaleb1x128_bye8m0_s3"},
      1, 8);
}

constexpr const char* kScaledKernels[] = {
    "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groups{}_scalea1x128_scaleb128x128_cooperative_s4",
    "fp8_rcr_tmaws_128x96x128_2x1x1_64x96x32_groups{}_scalea1x128_scaleb1x128_cooperative_s4",
    "fp8_rcr_tmaws_256x64x128_2x1x1_64x64x32_groups{}_scalea1x128_scaleb128x128_cooperative_s4",
    "fp8_rcr_tmaws_64x64x128_1x1x1_64x64x32_groups{}_scalea1x128_scaleb128x128_cooperative_s4",
    "fp8_rcr_tmaws_128x64x128_2x1x1_64x64x32_groups{}_scalea1x128_scaleb128x128_cooperative_s5_"
    "swap",
    "fp8_rcr_tmaws_64x16x128_1x1x1_64x16x32_groups{}_scalea1x128_scaleb1x128_cooperative_s6_swap",
    "fp8_rcr_tmaws_64x8x128_1x1x1_64x8x32_groups{}_scalea1x128_scaleb128x128_cooperative_s8_swap"};

TEST_F(GpuGroupedScaled, KernelsByTheCopyEngineAreCorrect) {
  check_all({std::begin(kScaledKernels), std::end(kScaledKernels)}, 16, 8);
}

TEST_F(GpuGroupedScaled, TypesAndEpiloguesAreCorrect) {
  check_all(
      {"bf8_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outfp32_groups{}_scalea1x128_"
       "scaleb128x128_cooperative_s4",
       "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_groups{}_scalea1x128_scaleb128x128_"
       "bias_gelu_cooperative_s4",
       "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groups{}_scalea1x128_scaleb1x128_multidadd2_"
       "cooperative_s4",
       "fp8_rcr_tmaws_64x32x128_1x1x1_64x32x32_outbf16_groups{}_scalea1x128_scaleb128x128_"
       "rowscale_colscale_cooperative_s6_swap"},
      16, 6);
}

// What a dispatcher chooses.
TEST_F(GpuGroupedScaled, ChosenKernelsAreCorrect) {
  for (const char* words :
       {"m=2000 n=1536 k=1024 groups=37 grouping=contiguous scale_a=1x128 scale_b=128x128",
        "m=2000 n=1024 k=512 groups=300 grouping=indexed scale_a=1x128 scale_b=128x128",
        "m=64 n=1536 k=2048 groups=30 grouping=masked scale_a=1x128 scale_b=128x128",
        "m=4 n=1536 k=2048 groups=30 grouping=masked scale_a=1x128 scale_b=128x128",
        "m=512 n=384 k=5008 groups=9 grouping=along_k scale_a=1x128 scale_b=1x128 out=fp32",
        "m=300 n=77 k=131 groups=20 grouping=contiguous scale_a=1x32 scale_b=1x32 "
        "scale_type=e8m0"}) {
    const Problem problem = parse_problem(fmt::format("gemm a=fp8 {}", words));
    const ReadyKernel& ready = dispatcher_->kernel_for(problem);
    check(name_of(ready.spec), std::get<GemmProblem>(problem), false);
    if (HasFailure()) return;
  }
}

TEST_F(GpuGroupedScaled, IsCapturedAndReplayedWithOtherSizes) {
  replay(kernels({"fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
                  kScaledKernels[0], kScaledKernels[5]}));
}

TEST_F(GpuGroupedScaled, NanStaysInItsGroup) {
  expect_nan_stays(
      kernels({"fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
               "fp8_crr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x32_scaleb1x128_s3",
               kScaledKernels[0], kScaledKernels[1], kScaledKernels[5]}));
}

// Rows of a group whose scales are NaN spoil no other group's, which may share tiles with them.
TEST_F(GpuGroupedScaled, NanAmongScalesStaysInItsRows) {
  const std::vector<KernelSpec> specs =
      kernels({"fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
               kScaledKernels[0], kScaledKernels[5]});
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    const auto& signature = std::get<GemmSignature>(spec.signature);
    if (signature.grouping == GemmGrouping::along_k) continue;  // all groups have these rows
    GemmProblem p = with_strides(gemm::problem_of(signature, 160, 96, 272));
    p.groups = 5;
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    const auto& o = std::get<GemmOperands>(owned.operands);
    auto* const scales = static_cast<float*>(const_cast<void*>(o.scale_a));
    for (std::int64_t row = draw(0, 80), last = row + draw(1, 70); row < last; ++row) {
      scales[row * p.stride_scale_a_m + draw(0, 2) * p.stride_scale_a_k] = NAN;
    }
    measure::reset_outputs(owned);
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    SCOPED_TRACE(name_of(spec));
    run_at(Edge::last, name_of(spec), p, owned);
    expect_right(p, owned, before);
  }
}

}  // namespace
}  // namespace tessera
