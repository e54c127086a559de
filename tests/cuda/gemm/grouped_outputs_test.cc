// Kernels for groups of unequal sizes with gates, rows by index and outputs of 8 bits on a GPU:
// random problems of every kind, against the fp64 reference, with bit-identical repeats; rows of no
// index and of no group, which are left alone; numbers that do not fit; and layers of experts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/gpu_test.h"
#include "grouped.h"
#include "outputs.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

class GpuGroupedOutputs : public GpuTest {
 protected:
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return grouped::draw(random_, low, high);
  }

  // Sizes, strides and scalars for a signature; sizes along lines are whole units.
  GemmProblem problem_for(const GemmSignature& s, const Shape3& tile, std::int64_t unit) {
    const auto size = [&](std::int64_t most) { return unit * draw(1, std::max(most / unit, 2L)); };
    const bool has_matrices = gemm::group_matrices(s.grouping).out;
    const std::int64_t most_rows = has_matrices ? 200 : draw(0, 2) == 0 ? 900 : 300;
    const std::int64_t n = 2 * size(std::max(tile.m, tile.n) / 2 + 60);
    GemmProblem p = gemm::problem_of(s, draw(1, most_rows), n, size(tile.k * 3 + 60));
    if (p.grouping == GemmGrouping::none) {
      p.batch = p.indexing == GemmIndexing::none ? draw(1, 3) : 1;
    } else {
      p.groups = draw(0, 4) == 0 ? draw(1, has_matrices ? 20 : 300) : draw(1, 9);
      p.group_int64 = draw(0, 1) == 1;
    }
    if (p.layout == GemmLayout::crr || p.layout == GemmLayout::ccr) p.m = unit * draw(1, 20);
    if (p.indexing != GemmIndexing::none) p.index_room = p.m + draw(0, 40);
    if (p.indexing == GemmIndexing::gathered) p.index_room = draw(1, 2 * p.m);
    p.scales_by_column = p.quant == NormQuant::block && draw(0, 1) == 1;
    p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
    if (p.out != DType::int32 && draw(0, 1) == 1) p.alpha = p.a == DType::int8 ? 0x1p-9F : 0.75F;
    return p;
  }

  // Strides that are longer than the sizes, and C where there may be one.
  void loosen(GemmProblem& p, std::int64_t unit, bool has_c) {
    p = with_strides(p);
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += unit * draw(0, 5);
    const std::int64_t rows = std::max({p.m, p.index_room, p.n, p.k}) + unit;
    p.batch_stride_a = rows * p.ld_a, p.batch_stride_b = rows * p.ld_b;
    p.batch_stride_c = rows * p.ld_c, p.batch_stride_out = rows * p.ld_out;
    for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
      if (!d_uses(p.epilogue)[i].is_vector()) p.ld_d[i] += unit * draw(0, 5);
      p.batch_stride_d[i] = draw(0, 3) == 0 ? 0 : rows * std::max(p.ld_d[i], p.n);
    }
    if (has_c && p.quant == NormQuant::none) p.beta = p.out == DType::int32 ? 2.0F : -0.5F;
  }

  // Twice, at both edges of memory, with equal bits.
  void check(const std::string& kernel, const GemmProblem& p) {
    const std::uint64_t seed = random_();
    const Problem problem = p;
    const std::string words = fmt::format("{} on '{}', seed {}", kernel, to_string(problem), seed);
    SCOPED_TRACE(words);
    say(words);
    family_of(Op::gemm).validate(problem);
    measure::OwnedOperands owned = measure::random_operands(problem, seed);
    if (p.grouping != GemmGrouping::none) grouped::fill_numbers(p, owned.operands, random_);
    outputs::fill_index(p, std::get<GemmOperands>(owned.operands), random_);
    measure::reset_outputs(owned);
    const auto before = outputs::bytes_of_outputs(owned);
    const std::vector<std::byte> first = run_at(Edge::first, kernel, problem, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    expect_correct(p, owned);
    outputs::expect_left_alone(p, owned, before);
    const std::vector<std::byte> last = run_at(Edge::last, kernel, problem, owned);
    EXPECT_EQ(last, first) << "a repeat gave other bits";
    EXPECT_EQ(measure::gaps_intact(owned), "");
  }

  // What a problem may have besides its types, drawn until it goes together.
  GemmSignature draw_signature(DType type) {
    constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                       GemmLayout::ccr};
    constexpr const char* kChains[] = {"none", "bias", "row_scale+bias", "add", "col_scale+relu"};
    while (true) {
      GemmProblem p = gemm_problem(type, kLayouts[draw(0, 3)], 8, 8, 8);
      p.d = type == DType::bf16 && draw(0, 1) == 1 ? DType::bf16 : DType::fp32;
      if (type == DType::int8) p.out = DType::fp32;
      if (type != DType::int8) p.gate = static_cast<GemmGate>(draw(0, 3));
      p.gate_interleaved = p.gate != GemmGate::none && draw(0, 1) == 0;
      p.indexing = static_cast<GemmIndexing>(draw(0, 2));
      p.quant = static_cast<NormQuant>(draw(0, 3));
      p.grouping = static_cast<GemmGrouping>(draw(1, 4));
      if (p.quant != NormQuant::none) p.out = draw(0, 1) == 0 ? DType::fp8 : DType::bf8;
      if (type != DType::tf32) p.epilogue = parse_epilogue(kChains[draw(0, 4)]);
      p.groups = 1;
      const auto s = std::get<GemmSignature>(signature_of(Problem(p)));
      if (gemm::extras_fit(s)) return s;
    }
  }
};

TEST_F(GpuGroupedOutputs, KernelsByWarpsAreCorrect) {
  for (const DType type :
       {DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::fp8, DType::bf8, DType::int8}) {
    for (int i = 0; i < 16; ++i) {
      const GemmSignature s = draw_signature(type);
      GemmProblem p = problem_for(s, {64, 64, 64}, 1);
      if (i % 2 == 1) loosen(p, 1, true);
      p.check_groups = draw(0, 3) == 0;
      check(name_of(gemm::general(p, target_)), p);
      if (HasFailure()) return;
    }
  }
}

// Tiles of every kind: for each name, problems of random sizes, then of whole units.
TEST_F(GpuGroupedOutputs, KernelsByTheCopyEngineAreCorrect) {
  std::vector<KernelSpec> specs;
  for (const char* pattern : {
           // gathered rows and a gate
           "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16{}_gatesilumul_rowsgathered_cooperative_s4",
           "bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16{}_gategelumul_rowsgathered_cooperative_s4",
           "fp16_rrr_tmaws_128x256x64_2x1x1_64x256x16{}_gatesilumul_rowsgathered_cooperative_s3",
           "bf16_rcr_tmaws_64x256x64_2x1x1_64x256x16{}_gatesilumul_rowsgathered_pingpong_s4",
           "bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16{}_gatesilumul_interleaved_rowsgathered_"
           "cooperative_s4",
           "bf16_rcr_tmaws_128x8x64_1x1x1_64x8x16{}_gatesilumul_rowsgathered_cooperative_s4_swap",
           "bf16_rcr_tmaws_128x16x64_1x1x1_64x16x16{}_gatesilumul_interleaved_rowsgathered_"
           "cooperative_s5_swap",
           "bf16_rrr_tmaws_128x64x64_1x1x1_64x64x16{}_gategelutanhmul_rowsgathered_cooperative_s4_"
           "swap",
           "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_outfp32{}_gatesilumul_rowsgathered_"
           "cooperative_s4",
           "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16{}_gatesilumul_rowsgathered_"
           "cooperative_s4",
           // one of both
           "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16{}_gatesilumul_cooperative_s4",
           "bf16_rcr_tmaws_128x192x64_2x1x1_64x192x16{}_rowsgathered_bias_cooperative_s4",
           "bf16_rcr_tmaws_64x32x64_1x1x1_64x32x16{}_rowsgathered_cooperative_s8_swap",
           "tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8{}_gatesilumul_cooperative_s4",
           "int8_rcr_tmaws_128x128x128_2x1x1_64x128x32{}_rowsgathered_cooperative_s4",
           // scattered rows
           "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_dfp32{}_rowsscattered_rowscale_cooperative_"
           "s4",
           "bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_dfp32{}_rowsscattered_rowscale_cooperative_"
           "s4",
           "bf16_rrr_tmaws_64x256x64_2x1x1_64x256x16_dfp32{}_rowsscattered_rowscale_bias_pingpong_"
           "s4",
           "bf16_rcr_tmaws_64x16x64_1x1x1_64x16x16_dfp32{}_rowsscattered_rowscale_cooperative_s8_"
           "swap",
           "bf16_rcr_tmaws_128x64x64_2x1x1_64x64x16{}_rowsscattered_multidadd2_cooperative_s5_swap",
           "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_outfp32{}_rowsscattered_cooperative_s4",
           "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16{}_gatesilumul_rowsscattered_cooperative_s4",
       }) {
    for (const char* grouping : {"", "_groupscontiguous", "_groupsindexed", "_groupsmasked"}) {
      specs.push_back(
          parse_name(fmt::format("gemm_{}_sm90a", fmt::format(fmt::runtime(pattern), grouping))));
      const auto& s = std::get<GemmSignature>(specs.back().signature);
      const bool fits = static_cast<bool>(gemm::extras_fit(s));
      EXPECT_EQ(fits ? family_of(Op::gemm).is_legal(specs.back(), target_).reason : "", "")
          << pattern;
      if (!fits) specs.pop_back();  // rows by index go with groups of rows
    }
  }
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    for (int i = 0; i < 6; ++i) {
      GemmProblem p = problem_for(s, spec.algorithm.tile, 16);
      if (i % 2 == 1) loosen(p, 16, s.gate == GemmGate::none);
      // Where rows lie at whole units, their length may be any even one.
      if (i == 3) p.n -= 2 * draw(0, 7);
      if (i == 5) p.k -= draw(0, 15);
      if (p.grouping != GemmGrouping::none) p.check_groups = draw(0, 3) == 0;
      if (family_of(Op::gemm).supports(spec, p, target_)) check(name_of(spec), p);
      if (HasFailure()) return;
    }
  }
}

// What is chosen for layers of experts, in few steps.
TEST_F(GpuGroupedOutputs, ChosenKernelsForExpertsAreCorrect) {
  for (const std::int64_t rows : {8, 128, 1500}) {
    for (const char* line : {"n=1536 k=2048 groups=128 gate=silu_mul indexing=gathered",
                             "n=4096 k=7168 groups=8 "
                             "gate=silu_mul indexing=gathered",
                             "n=2048 k=768 groups=128 indexing=scattered "
                             "epilogue=row_scale d=fp32",
                             "n=384 k=512 groups=9 gate=gelu_mul indexing=gathered "
                             "quant=block out=fp8"}) {
      const GemmProblem p = std::get<GemmProblem>(parse_problem(fmt::format(
          "gemm m={} dtype=bf16 grouping=contiguous index_room={} {}", rows, rows, line)));
      check(name_of(dispatcher_->kernel_for(Problem(p)).spec), p);
      if (HasFailure()) return;
    }
  }
}

// What the numbers say that do not fit is written, and nothing else.
TEST_F(GpuGroupedOutputs, NumbersThatDoNotFitAreReported) {
  for (const char* name :
       {"gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groupscontiguous_gatesilumul_rowsgathered_s3_"
        "sm90a",
        "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groupscontiguous_gatesilumul_rowsgathered_"
        "cooperative_s4_sm90a"}) {
    const KernelSpec spec = parse_name(name);
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), 3000, 32, 64);
    p.groups = 200, p.index_room = 77, p.check_groups = true;
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    auto& o = std::get<GemmOperands>(owned.operands);
    grouped::put_number(p, o, draw(1, 199), 9000);
    measure::reset_outputs(owned);
    const auto before = outputs::bytes_of_outputs(owned);
    run_at(Edge::last, name, p, owned);
    EXPECT_EQ(o.bad_group[0], 1);
    EXPECT_EQ(o.bad_group[2], 9000);
    EXPECT_EQ(o.bad_group[3], 3000);
    EXPECT_EQ(outputs::bytes_of_outputs(owned), before);
  }
}

// Numbers beyond the room name no row.
TEST_F(GpuGroupedOutputs, IndicesThatNameNoRowAreSkipped) {
  for (const char* indexing : {"gathered", "scattered"}) {
    const GemmProblem p = std::get<GemmProblem>(parse_problem(
        fmt::format("gemm m=300 n=128 k=64 dtype=bf16 groups=5 grouping=contiguous indexing={} "
                    "index_room=310",
                    indexing)));
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    auto* const index = const_cast<std::int32_t*>(std::get<GemmOperands>(owned.operands).row_index);
    index[3] = 310, index[150] = 1 << 30, index[290] = -5;
    measure::reset_outputs(owned);
    const auto before = outputs::bytes_of_outputs(owned);
    run_at(Edge::last, name_of(dispatcher_->kernel_for(Problem(p)).spec), p, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    for (const int at : {3, 150, 290}) index[at] = -1;
    expect_correct(p, owned);
    outputs::expect_left_alone(p, owned, before);
  }
}

// ---- with scales of blocks ----

class GpuGroupedScaledOutputs : public GpuGroupedOutputs {
 protected:
  // Packed, or scales of neighbouring rows side by side, with gaps or without.
  void draw_scale_strides(GemmProblem& p) {
    p = with_strides(p);
    const auto spread = [&](GemmScale scale, std::int64_t rows, std::int64_t& of_row,
                            std::int64_t& of_k, std::int64_t& of_matrix) {
      if (scale == GemmScale::none || draw(0, 2) == 0) return;
      const ScaleBlock blocks = scale_blocks(scale, rows, p.k);
      const bool by_row = draw(0, 1) == 0;
      of_row = by_row ? blocks.k + draw(0, 3) : 1;
      of_k = by_row ? 1 : blocks.rows + draw(0, 5);
      of_matrix = draw(0, 3) == 0 ? 0 : blocks.rows * of_row + blocks.k * of_k;
    };
    spread(p.scale_a, stored_rows_a(p), p.stride_scale_a_m, p.stride_scale_a_k,
           p.batch_stride_scale_a);
    spread(p.scale_b, p.n, p.stride_scale_b_n, p.stride_scale_b_k, p.batch_stride_scale_b);
  }
};

TEST_F(GpuGroupedScaledOutputs, KernelsByWarpsAreCorrect) {
  for (int i = 0; i < 32; ++i) {
    GemmSignature s = draw_signature(i % 2 == 0 ? DType::fp8 : DType::bf8);
    s.scale_a = static_cast<GemmScale>(draw(0, 3));
    s.scale_b = static_cast<GemmScale>(draw(s.scale_a == GemmScale::none ? 1 : 0, 3));
    s.scale_type = static_cast<GemmScaleType>(draw(0, 1));
    GemmProblem p = problem_for(s, {64, 64, 64}, 1);
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && draw(0, 1) == 1;
    if (i % 4 > 1) loosen(p, 1, true);
    p.check_groups = draw(0, 3) == 0;
    check(name_of(gemm::general(p, target_)), p);
    if (HasFailure()) return;
  }
}

// Tiles of every kind, with A and B swapped and not, one consumer and two.
TEST_F(GpuGroupedScaledOutputs, KernelsByTheCopyEngineAreCorrect) {
  constexpr const char* kShapes[] = {"128x128x128_2x1x1_64x128x32{}_cooperative_s4",
                                     "128x96x128_2x1x1_64x96x32{}_cooperative_s4",
                                     "64x128x128_1x1x1_64x128x32{}_cooperative_s4",
                                     "64x32x128_1x1x1_64x32x32{}_cooperative_s4",
                                     "128x128x128_2x1x1_64x128x32{}_cooperative_s4_swap",
                                     "64x16x128_1x1x1_64x16x32{}_cooperative_s4_swap",
                                     "128x64x128_2x1x1_64x64x32{}_cooperative_s4_swap",
                                     "256x64x128_2x1x1_64x64x32{}_cooperative_s3_swap",
                                     "128x64x128_1x1x1_64x64x32{}_cooperative_s3_swap",
                                     "128x8x128_1x1x1_64x8x32{}_cooperative_s4_swap",
                                     "256x16x128_2x1x1_64x16x32{}_cooperative_s4_swap",
                                     "256x32x128_1x1x1_64x32x32{}_cooperative_s4_swap"};
  constexpr const char* kKinds[] = {
      "_outbf16{}_scalea1x128_scaleb128x128_gatesilumul_rowsgathered",
      "_outbf16{}_scalea1x128_scaleb1x128_gategelumul_interleaved_rowsgathered",
      "_outfp32{}_scalea1x128_scaleb128x128_gategelutanhmul_interleaved",
      "_outbf16{}_scalea1x128_scaleb128x128_rowsgathered",
      "_outbf16_dfp32{}_scalea1x128_scaleb128x128_rowsscattered_rowscale",
      "_dfp32{}_scalea1x128_scaleb1x128_rowsscattered_rowscale_bias",
      "_outbf16{}_scalea1x128_scaleb1x128_gatesilumul_rowsscattered",
      "_outfp8{}_scalea1x128_scaleb128x128_gatesilumul_rowsgathered_quantblock",
      "_outbf8{}_scalea1x128_scaleb128x128_gategelumul_interleaved_quantblock",
      "_outfp8{}_scalea1x128_scaleb128x128_rowsscattered_quantblock"};
  std::vector<KernelSpec> specs;
  for (const char* kind : kKinds) {
    for (const char* shape : kShapes) {
      constexpr const char* kGroupings[] = {"", "_groupscontiguous", "_groupsindexed",
                                            "_groupsmasked"};
      const char* const grouping = kGroupings[draw(0, 3)];
      const std::string middle = fmt::format(fmt::runtime(kind), grouping);
      const KernelSpec spec = parse_name(
          fmt::format("gemm_fp8_rcr_tmaws_{}_sm90a", fmt::format(fmt::runtime(shape), middle)));
      if (!gemm::extras_fit(std::get<GemmSignature>(spec.signature))) continue;
      if (family_of(Op::gemm).is_legal(spec, target_)) specs.push_back(spec);
    }
  }
  ASSERT_GT(specs.size(), 20U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    for (int i = 0; i < 5; ++i) {
      GemmProblem p = problem_for(s, spec.algorithm.tile, 16);
      const bool is_whole =
          s.gate != GemmGate::none && !s.gate_interleaved && s.scale_b == GemmScale::by_128x128;
      if (is_whole) p.n = 256 * draw(1, 3);
      if (i % 2 == 1) loosen(p, 16, s.gate == GemmGate::none);
      if (i > 1) draw_scale_strides(p);
      // Where rows lie at whole units, their length may be any, of B an even one.
      if (i == 3 && !is_whole) p.n -= 2 * draw(0, 7);
      if (i == 3) p.k -= draw(0, 15);
      if (p.grouping != GemmGrouping::none) p.check_groups = draw(0, 3) == 0;
      const Verdict serves = family_of(Op::gemm).supports(spec, p, target_);
      EXPECT_EQ(serves.reason, "") << name_of(spec) << " on " << to_string(Problem(p));
      if (serves) check(name_of(spec), p);
      if (HasFailure()) return;
    }
  }
}

// What is chosen for the two products of a layer of experts, from few rows to many.
TEST_F(GpuGroupedScaledOutputs, ChosenKernelsForExpertsAreCorrect) {
  for (const std::int64_t rows : {8, 200, 1500}) {
    for (const char* line :
         {"out=bf16 n=1536 k=2048 groups=128 gate=silu_mul indexing=gathered",
          "out=bf16 n=1536 k=2048 groups=128 indexing=gathered",
          "out=fp8 n=1536 k=2048 groups=128 gate=silu_mul indexing=gathered quant=block",
          "out=bf16 n=2048 k=768 groups=128 indexing=scattered epilogue=row_scale d=fp32",
          "out=bf16 n=7168 k=2048 groups=8 indexing=scattered epilogue=row_scale d=fp32"}) {
      const GemmProblem p = std::get<GemmProblem>(parse_problem(
          fmt::format("gemm m={} a=fp8 scale_a=1x128 scale_b=128x128 grouping=contiguous "
                      "index_room={} {}",
                      rows, rows, line)));
      const KernelSpec chosen = dispatcher_->kernel_for(Problem(p)).spec;
      EXPECT_EQ(chosen.algorithm.pipeline, Pipeline::tmaws) << name_of(chosen);
      check(name_of(chosen), p);
      if (HasFailure()) return;
    }
  }
}

// A layer of experts: gathered tokens are projected up and gated to 8 bits with a scale for each
// 128, which the projection down reads and scatters.
TEST_F(GpuGroupedScaledOutputs, OutputsOfOneLayerAreOperandsOfTheNext) {
  const GemmProblem up = std::get<GemmProblem>(
      parse_problem("gemm m=90 n=512 k=384 a=fp8 out=fp8 groups=4 grouping=contiguous "
                    "scale_a=1x128 scale_b=128x128 gate=silu_mul quant=block indexing=gathered "
                    "index_room=40"));
  const GemmProblem down = std::get<GemmProblem>(
      parse_problem("gemm m=90 n=200 k=256 a=fp8 out=bf16 groups=4 grouping=contiguous "
                    "scale_a=1x128 scale_b=128x128 indexing=scattered index_room=100"));
  measure::OwnedOperands first = measure::random_operands(Problem(up), random_());
  measure::OwnedOperands second = measure::random_operands(Problem(down), random_());
  const auto& from = std::get<GemmOperands>(first.operands);
  const auto& to = std::get<GemmOperands>(second.operands);
  for (const GemmOperands* o : {&from, &to}) {
    const std::int32_t ends[] = {17, 17, 60, 90};
    std::memcpy(const_cast<void*>(o->group_ends), ends, sizeof(ends));
  }
  run_at(Edge::last, name_of(dispatcher_->kernel_for(up).spec), up, first);
  expect_correct(up, first);
  std::memcpy(const_cast<void*>(to.a), from.out, 90 * 256);
  std::memcpy(const_cast<void*>(to.scale_a), from.out_scales, 90 * 2 * sizeof(float));
  run_at(Edge::last, name_of(dispatcher_->kernel_for(down).spec), down, second);
  expect_correct(down, second);
}

}  // namespace
}  // namespace tessera
