// Kernels with gates, rows by index and outputs of 8 bits, on a GPU: random sizes, strides,
// layouts, types, batches and epilogues, against the fp64 reference, with bit-identical repeats,
// and rows of no index, which are left alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/gpu_test.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

class GpuOutputs : public GpuTest {
 protected:
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(random_() % limit); }

  GemmProblem draw_outputs(DType type) {
    constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                       GemmLayout::ccr};
    const std::int64_t most = below(4) == 0 ? 700 : 150;
    GemmProblem p = gemm_problem(type, kLayouts[below(4)], 1 + below(most), 2 * (1 + below(most)),
                                 below(8) == 0 ? 0 : 1 + below(300));
    p.d = type == DType::bf16 ? DType::bf16 : DType::fp32;
    if (type == DType::int8) p.out = DType::fp32;
    if (type != DType::int8) p.gate = static_cast<GemmGate>(below(4));
    p.gate_interleaved = p.gate != GemmGate::none && below(2) == 0;
    p.indexing = static_cast<GemmIndexing>(below(3));
    p.quant = static_cast<NormQuant>(below(4));
    if (p.indexing != GemmIndexing::none) p.index_room = p.m + below(50);
    if (p.indexing == GemmIndexing::none) p.batch = 1 + below(3);
    if (p.quant != NormQuant::none) p.out = below(2) == 0 ? DType::fp8 : DType::bf8;
    p.scales_by_column = p.quant == NormQuant::block && below(2) == 0;
    constexpr const char* kChains[] = {"none", "bias", "row_scale+bias", "add", "col_scale+relu"};
    p.epilogue = parse_epilogue(kChains[below(5)]);
    p.alpha = type == DType::int8 ? 0x1p-9F : 0.75F;
    if (p.quant == NormQuant::none && below(2) == 0) p.beta = -0.5F;
    p = with_strides(p);
    if (below(2) == 0) p.ld_a += below(9), p.batch_stride_a = 0;
    if (below(2) == 0) p.ld_b += below(9), p.batch_stride_b = 0;
    const std::int64_t more = below(5);
    p.ld_out += more, p.batch_stride_out += more * std::max(p.m, p.index_room);
    return p;
  }

  std::string kernel_of(const Problem& problem) {
    return name_of(dispatcher_->kernel_for(problem).spec);
  }
};

TEST_F(GpuOutputs, OfRandomProblemsAreCorrect) {
  for (const DType type :
       {DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::fp8, DType::bf8, DType::int8}) {
    for (int i = 0; i < 12; ++i) {
      GemmProblem p = draw_outputs(type);
      if (type == DType::tf32) p.epilogue = {};
      p = with_strides(p);
      family_of(Op::gemm).validate(p);
      check_twice(kernel_of(p), p, expect_correct);
      if (HasFailure()) return;
    }
  }
}

// ---- with scales of blocks ----

class GpuScaledOutputs : public GpuOutputs {};

TEST_F(GpuScaledOutputs, OfRandomProblemsAreCorrect) {
  constexpr GemmScale kScales[] = {GemmScale::none, GemmScale::by_1x32, GemmScale::by_1x128,
                                   GemmScale::by_128x128};
  for (int i = 0; i < 24; ++i) {
    GemmProblem p = draw_outputs(i % 2 == 0 ? DType::fp8 : DType::bf8);
    p.scale_a = kScales[below(4)];
    p.scale_b = kScales[p.scale_a == GemmScale::none ? 1 + below(3) : below(4)];
    p.scale_type = below(2) == 0 ? GemmScaleType::fp32 : GemmScaleType::e8m0;
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && below(2) == 0;
    p = with_strides(p);
    family_of(Op::gemm).validate(p);
    check_twice(kernel_of(p), p, expect_correct);
    if (HasFailure()) return;
  }
}

// What a down projection reads is what the up projection wrote: its rows and their scales.
TEST_F(GpuScaledOutputs, ARowsScalesAreThoseOfTheNextProduct) {
  for (const bool by_column : {false, true}) {
    GemmProblem up = std::get<GemmProblem>(
        parse_problem("gemm m=70 n=512 k=384 a=fp8 out=fp8 scale_a=1x128 scale_b=128x128 "
                      "gate=silu_mul quant=block"));
    up.scales_by_column = by_column;
    GemmProblem down = std::get<GemmProblem>(
        parse_problem("gemm m=70 n=200 k=256 a=fp8 out=bf16 scale_a=1x128 scale_b=128x128"));
    if (by_column) down.stride_scale_a_m = 1, down.stride_scale_a_k = 70;
    measure::OwnedOperands first = measure::random_operands(Problem(up), random_());
    run_at(Edge::last, kernel_of(up), up, first);
    expect_correct(up, first);
    measure::OwnedOperands second = measure::random_operands(Problem(down), random_());
    const auto& from = std::get<GemmOperands>(first.operands);
    const auto& to = std::get<GemmOperands>(second.operands);
    std::memcpy(const_cast<void*>(to.a), from.out, 70 * 256);
    std::memcpy(const_cast<void*>(to.scale_a), from.out_scales, 70 * 2 * sizeof(float));
    run_at(Edge::last, kernel_of(down), down, second);
    expect_correct(down, second);
  }
}

// The bytes of out in rows of no index stay what they were.
TEST_F(GpuOutputs, LeaveRowsOfNoIndexAlone) {
  for (const char* line :
       {"gemm m=70 n=64 k=50 dtype=bf16 indexing=gathered index_room=30 gate=silu_mul",
        "gemm m=70 n=300 k=50 dtype=bf16 out=fp8 indexing=scattered index_room=90 quant=block",
        "gemm m=70 n=300 k=50 out=bf8 indexing=scattered index_room=90 quant=row"}) {
    const GemmProblem p = std::get<GemmProblem>(parse_problem(line));
    measure::OwnedOperands owned = measure::random_operands(p, random_());
    const auto& o = std::get<GemmOperands>(owned.operands);
    auto* const index = const_cast<std::int32_t*>(o.row_index);
    std::vector<bool> is(static_cast<std::size_t>(stored_rows_out(p)), false);
    for (std::int64_t i = 0; i < p.m; ++i) {
      if (below(3) == 0) index[i] = -1;
      if (index[i] < 0) continue;
      const std::int64_t row = p.indexing == GemmIndexing::scattered ? index[i] : i;
      is[static_cast<std::size_t>(row)] = true;
    }
    const auto row_bytes = static_cast<std::size_t>(stored_columns_out(p) * size_of(p.out));
    std::vector<std::byte> before(row_bytes * is.size());
    std::memcpy(before.data(), o.out, before.size());
    run_at(Edge::last, kernel_of(p), p, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    expect_correct(p, owned);
    const auto* const now = static_cast<const std::byte*>(o.out);
    for (std::size_t row = 0; row < is.size(); ++row) {
      if (is[row]) continue;
      EXPECT_EQ(std::memcmp(now + row * row_bytes, before.data() + row * row_bytes, row_bytes), 0)
          << line << ": row " << row;
    }
  }
}

}  // namespace
}  // namespace tessera
