// Normalisations on a GPU against the fp64 reference: every essential kernel, odd shapes, strides
// and addresses, long rows in two steps, and what the dispatcher chooses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "cuda/gpu_test.h"
#include "scaled_rows.h"

namespace tessera {
namespace {

class GpuNorm : public GpuTest {
 protected:
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  NormProblem problem_for(const KernelSpec& spec, std::int64_t rows, std::int64_t columns) const {
    auto p = std::get<NormProblem>(family_.samples(spec, target_).front());
    p.rows = rows;
    p.columns = columns;
    return p;
  }

  void draw_strides(NormProblem& p) {
    for (std::int64_t* ld : {&p.ld_in, &p.ld_residual, &p.ld_out, &p.ld_sum}) {
      if (draw(0, 1) == 0) *ld = p.columns + draw(0, 40);
    }
    if (is_gated(p.kind) && p.ld_in != kPacked) p.ld_in += p.columns;
  }

  void check(const std::string& kernel, const Problem& problem) {
    check_twice(kernel, problem, expect_correct);
  }

  const Family& family_ = family_of(Op::norm);
};

TEST_F(GpuNorm, EveryEssentialKernelIsCorrectOnOddShapes) {
  const std::vector<KernelSpec> specs = essential(family_);
  ASSERT_EQ(specs.size(), 129U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    const std::string name = name_of(spec);
    for (const Problem& problem : family_.samples(spec, target_)) check(name, problem);
    for (int i = 0; i < 3; ++i) {
      NormProblem p = problem_for(spec, draw(1, 300), draw(1, 40000));
      const std::int64_t held = std::int64_t{spec.algorithm.tile.n} * spec.algorithm.cluster_n;
      if (!family_.supports(spec, p, target_)) p.columns = draw(1, held);
      draw_strides(p);
      check(name, p);
    }
  }
}

// Rows of one block and of many, of the first and of both steps.
TEST_F(GpuNorm, LongRowsAreCorrectInTwoSteps) {
  for (const char* name :
       {"norm_fp32_softmax_rows_1x4096x1_1x8x1_1x1x1_slices128_sm90a",
        "norm_bf16_layernorm_rows_1x8192x1_1x8x1_1x1x1_scale_shift_residual_slices32_sm90a",
        "norm_fp16_fp32_rmsnorm_rows_1x2048x1_1x4x1_1x1x1_scale_slices8_sm90a"}) {
    const KernelSpec spec = parse_name(name);
    ASSERT_EQ(family_.is_legal(spec, target_).reason, "") << name;
    for (const auto& [rows, columns] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {3, 127}, {2, 1000003}, {5, 1 << 20}, {700, 5001}}) {
      check(name, problem_for(spec, rows, columns));
    }
  }
}

// Blocks of several rows, of which the last has too many; types that differ; every flag.
TEST_F(GpuNorm, OtherAlgorithmsAndTypesAreCorrect) {
  constexpr const char* kNames[] = {
      "norm_fp32_softmax_rows_8x256x1_8x1x1_1x1x1_outbf16_sm90a",
      "norm_bf16_softmax_rows_4x512x1_4x2x1_1x1x1_outfp32_sm90a",
      "norm_fp16_softmax_rows_2x2048x1_2x4x1_1x1x1_sm90a",
      "norm_fp16_softmax_rows_1x16384x1_1x32x1_1x1x1_outbf16_sm90a",
      "norm_fp32_rmsnorm_rows_4x4096x1_4x1x1_1x1x1_sm90a",
      "norm_fp32_bf16_rmsnorm_rows_4x1024x1_4x1x1_1x1x1_scale_shift_sm90a",
      "norm_bf16_fp32_rmsnorm_rows_8x512x1_8x1x1_1x1x1_scale_residual_sm90a",
      "norm_bf16_rmsnorm_rows_1x32768x1_1x16x1_1x1x1_residual_sm90a",
      "norm_fp16_rmsnorm_rows_1x1024x1_1x4x1_1x1x1_outfp32_shift_sm90a",
      "norm_fp32_layernorm_rows_4x1024x1_4x2x1_1x1x1_outfp16_sm90a",
      "norm_fp32_layernorm_rows_2x2048x1_2x4x1_1x1x1_scale_residual_sm90a",
      "norm_bf16_fp32_layernorm_rows_8x1024x1_8x1x1_1x1x1_outfp32_scale_shift_residual_sm90a",
      "norm_fp16_fp32_layernorm_rows_4x256x1_4x1x1_1x1x1_scale_shift_sm90a",
      "norm_fp16_layernorm_rows_1x8192x1_1x32x1_1x1x1_residual_sm90a",
  };
  for (const char* name : kNames) {
    const KernelSpec spec = parse_name(name);
    ASSERT_EQ(family_.is_legal(spec, target_).reason, "") << name;
    for (const std::int64_t most : {300, 3000, 100000}) {
      NormProblem p = problem_for(spec, draw(1, 99), draw(1, most));
      draw_strides(p);
      if (p.kind != NormKind::softmax) p.epsilon = 0.125F;
      check(name, p);
    }
  }
}

// Rows of 1 to 32 lanes, and rows of the blocks of a cluster, whole vectors and single elements.
TEST_F(GpuNorm, RowsThatThreadsHoldAreCorrect) {
  constexpr const char* kNames[] = {
      "norm_bf16_softmax_rows_128x8x1_4x1x1_32x1x1_sm90a",
      "norm_fp32_layernorm_rows_64x8x1_4x1x1_16x1x1_scale_shift_sm90a",
      "norm_bf16_rmsnorm_rows_32x128x1_4x1x1_8x1x1_scale_residual_sm90a",
      "norm_fp16_fp32_layernorm_rows_16x64x1_4x1x1_4x1x1_scale_shift_residual_sm90a",
      "norm_bf16_softmax_rows_8x512x1_4x1x1_2x1x1_outfp32_sm90a",
      "norm_fp32_rmsnorm_rows_8x256x1_4x1x1_2x1x1_scale_shift_sm90a",
      "norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_c1x2_sm90a",
      "norm_bf16_layernorm_rows_1x4096x1_1x8x1_1x1x1_scale_shift_residual_c1x4_sm90a",
      "norm_fp32_layernorm_rows_1x16384x1_1x16x1_1x1x1_scale_c1x8_sm90a",
      "norm_fp16_rmsnorm_rows_1x16384x1_1x32x1_1x1x1_scale_residual_c1x8_sm90a",
  };
  for (const char* name : kNames) {
    const KernelSpec spec = parse_name(name);
    ASSERT_EQ(family_.is_legal(spec, target_).reason, "") << name;
    const std::int64_t held = std::int64_t{spec.algorithm.tile.n} * spec.algorithm.cluster_n;
    const std::int64_t most_rows = held > 4096 ? 40 : 5000;
    for (const std::int64_t columns :
         {std::int64_t{1}, held, draw(1, held), draw(1, held / 8) * 8}) {
      NormProblem p = problem_for(spec, draw(1, most_rows), columns);
      check(name, p);  // without gaps: rows that are no whole vectors go through shared memory
      draw_strides(p);
      check(name, p);
      if (p.kind == NormKind::softmax || p.in == DType::fp16) continue;
      const std::uint64_t seed = random_();
      SCOPED_TRACE(fmt::format("{} columns={} scaled, seed {}", name, columns, seed));
      measure::OwnedOperands owned = measure::random_operands(p, seed);
      testing_support::scale_rows(p, owned.operands, draw(0, columns - 1));
      measure::PlacedOperands placed = measure::place_operands(owned, place_);
      run(p, owned, placed, placed.operands, name);
      expect_correct(p, owned);
    }
  }
}

// Outputs of 8 bits, whole vectors and single elements, blocks of one warp and of several.
TEST_F(GpuNorm, QuantisedOutputsAreCorrect) {
  for (const char* quant : {"tensor", "row", "block"}) {
    for (const char* kernel : {"bf16_rmsnorm_rows_1x4096x1_1x8x1_1x1x1_outfp8_scale_residual",
                               "fp32_layernorm_rows_64x64x1_4x1x1_16x1x1_outbf8_scale_shift",
                               "fp16_layernorm_rows_4x1024x1_4x2x1_1x1x1_outfp8_scale_shift",
                               "bf16_rmsnorm_rows_8x512x1_4x1x1_2x1x1_outfp8"}) {
      const std::string name = fmt::format("norm_{}_quant{}_sm90a", kernel, quant);
      const KernelSpec spec = parse_name(name);
      ASSERT_EQ(family_.is_legal(spec, target_).reason, "") << name;
      const std::int64_t held = spec.algorithm.tile.n;
      for (const std::int64_t columns :
           {std::int64_t{1}, held, draw(1, held), draw(1, held / 16) * 16}) {
        NormProblem p = problem_for(spec, draw(1, 300), columns);
        p.scales_by_column = p.quant == NormQuant::block && draw(0, 1) == 0;
        if (draw(0, 1) == 0) draw_strides(p);
        check(name, p);
      }
    }
  }
}

// Gates in halves and pairs, and copies: rows of one tile and of several, every output, blocks of a
// cluster.
TEST_F(GpuNorm, ElementwiseRowsAreCorrect) {
  for (const char* kernel :
       {"bf16_silumul_rows_1x4096x1_1x8x1_1x1x1", "fp32_gelumul_rows_1x4096x1_1x8x1_1x1x1",
        "fp16_gelutanhmul_rows_2x2048x1_2x4x1_1x1x1_outfp32",
        "bf16_silumul_rows_32x128x1_4x1x1_8x1x1_interleaved",
        "fp32_silumul_rows_1x1024x1_1x4x1_1x1x1_interleaved",
        "bf16_silumul_rows_1x4096x1_1x8x1_1x1x1_outfp8_quanttensor",
        "fp16_gelumul_rows_1x4096x1_1x8x1_1x1x1_outbf8_quantblock",
        "fp32_silumul_rows_4x1024x1_4x2x1_1x1x1_outfp8_quantblock_interleaved",
        "bf16_silumul_rows_1x8192x1_1x16x1_1x1x1_outfp8_quantrow",
        "fp32_gelutanhmul_rows_64x64x1_4x1x1_16x1x1_outbf8_quantrow",
        "bf16_silumul_rows_1x8192x1_1x16x1_1x1x1_outfp8_quantrow_interleaved_c1x4",
        "fp16_copy_rows_64x64x1_4x1x1_16x1x1_outfp32",
        "bf16_copy_rows_1x2048x1_1x8x1_1x1x1_outfp8_quantblock",
        "fp32_copy_rows_4x512x1_4x1x1_1x1x1_outbf8_quanttensor",
        "bf16_copy_rows_1x8192x1_1x16x1_1x1x1_outfp8_quantrow_c1x4"}) {
    const std::string name = fmt::format("norm_{}_sm90a", kernel);
    const KernelSpec spec = parse_name(name);
    ASSERT_EQ(family_.is_legal(spec, target_).reason, "") << name;
    const std::int64_t tile = std::int64_t{spec.algorithm.tile.n} * spec.algorithm.cluster_n;
    const bool is_row = name.find("quantrow") != std::string::npos;
    for (const std::int64_t columns :
         {std::int64_t{1}, tile, draw(1, tile), draw(1, tile / 16) * 16, is_row ? tile : 3 * tile,
          draw(1, is_row ? tile : 5 * tile)}) {
      NormProblem p = problem_for(spec, draw(1, 300), columns);
      p.scales_by_column = p.quant == NormQuant::block && draw(0, 1) == 0;
      check(name, p);
      draw_strides(p);
      check(name, p);
    }
  }
}

TEST_F(GpuNorm, KernelsThatTheDispatcherChoosesAreCorrect) {
  for (const char* line : {"norm kind=softmax rows=4096 columns=128 dtype=bf16",
                           "norm kind=softmax rows=1000 columns=1000 dtype=fp16 out=fp32",
                           "norm kind=rmsnorm rows=77 columns=4096 dtype=bf16 scale=1 residual=1",
                           "norm kind=layernorm rows=3000 columns=8192 scale=1 shift=1",
                           "norm kind=softmax rows=2 columns=3000000",
                           "norm kind=silu_mul rows=1 columns=14336 dtype=bf16",
                           "norm kind=silu_mul rows=4096 columns=14336 dtype=bf16",
                           "norm kind=gelu_tanh_mul rows=900 columns=3333 dtype=fp16",
                           "norm kind=silu_mul rows=77 columns=14336 dtype=bf16 out=fp8 quant=row",
                           "norm kind=gelu_mul rows=9 columns=262144 out=fp8 quant=row",
                           "norm kind=copy rows=77 columns=7168 dtype=bf16 out=fp8 quant=block",
                           "norm kind=copy rows=9 columns=262143 dtype=fp16 out=bf8 quant=row",
                           "norm kind=silu_mul rows=77 columns=2048 dtype=bf16 out=fp8 "
                           "quant=block scales_by_column=1 interleaved=1"}) {
    const Problem problem = parse_problem(line);
    check(name_of(dispatcher_->kernel_for(problem).spec), problem);
  }
}

TEST_F(GpuNorm, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float specials[] = {kInf,  -kInf,  std::numeric_limits<float>::quiet_NaN(),
                            3e38F, -3e38F, 0.0F};
  for (const char* kind : {"softmax", "rmsnorm", "layernorm"}) {
    for (const char* end : {"", "_slices8"}) {
      const std::string name =
          fmt::format("norm_fp32_{}_rows_1x1024x1_1x4x1_1x1x1{}_sm90a", kind, end);
      for (const std::int64_t columns : {5, 1024, 5000}) {
        const NormProblem p = problem_for(parse_name(name), 18, columns);
        const std::uint64_t seed = random_();
        SCOPED_TRACE(fmt::format("{} columns={} seed {}", name, columns, seed));
        measure::OwnedOperands owned = measure::random_operands(p, seed);
        auto* in =
            static_cast<float*>(const_cast<void*>(std::get<NormOperands>(owned.operands).in));
        for (std::int64_t row = 0; row < p.rows; ++row) {
          const std::int64_t at = row >= 12 ? columns - 1 : draw(0, columns - 1);
          const std::int64_t first = row >= 6 ? 0 : at;  // one, a run, or the whole row
          for (std::int64_t c = first; c <= at; ++c) in[row * columns + c] = specials[row % 6];
        }
        measure::PlacedOperands placed = place(owned);
        run(p, owned, placed, placed.operands, name);
        expect_correct(p, owned);
      }
    }
  }
}

// See the test of the same name on CPUs. Blocks of one row and of several, of one warp and of many.
TEST_F(GpuNorm, RowsWhoseSquaresFp32Lacks) {
  for (const char* kernel :
       {"fp32_rmsnorm_rows_1x1024x1_1x4x1_1x1x1", "fp32_layernorm_rows_1x1024x1_1x4x1_1x1x1",
        "fp32_layernorm_rows_4x1024x1_4x1x1_1x1x1",
        "fp32_layernorm_rows_2x2048x1_2x4x1_1x1x1_scale_residual",
        "bf16_rmsnorm_rows_4x1024x1_4x2x1_1x1x1_scale_shift_residual",
        "bf16_layernorm_rows_1x1024x1_1x4x1_1x1x1",
        "fp32_rmsnorm_rows_1x1024x1_1x4x1_1x1x1_slices8",
        "fp32_layernorm_rows_1x1024x1_1x4x1_1x1x1_slices8"}) {
    const std::string name = fmt::format("norm_{}_sm90a", kernel);
    for (const std::int64_t columns : {5, 1024, 5000}) {
      NormProblem p = problem_for(parse_name(name), 37, columns);
      if (draw(0, 1) == 0) p.epsilon = 0;
      const std::uint64_t seed = random_();
      SCOPED_TRACE(fmt::format("{} columns={} seed {}", name, columns, seed));
      measure::OwnedOperands owned = measure::random_operands(p, seed);
      testing_support::scale_rows(p, owned.operands, draw(0, columns - 1));
      measure::PlacedOperands placed = measure::place_operands(owned, place_);
      run(p, owned, placed, placed.operands, name);
      expect_correct(p, owned);
    }
  }
}

TEST_F(GpuNorm, RunVerifiesOnTheDevice) {
  run_and_verify(
      parse_problem("norm kind=rmsnorm rows=77 columns=4096 dtype=bf16 scale=1 residual=1"));
}

}  // namespace
}  // namespace tessera
