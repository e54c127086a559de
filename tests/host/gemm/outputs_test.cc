// Gates, rows by index and outputs of 8 bits: what is valid, operands, numbers that do not fit,
// rules, enumeration, and the reference beside values that are computed here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/measure/operands.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

std::string sentence_of_outputs(const Problem& problem) {
  try {
    validate(problem);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct InvalidLine {
  const char* line;
  const char* sentence;
};
class InvalidOutputs : public testing::TestWithParam<InvalidLine> {};

TEST_P(InvalidOutputs, GivesTheSentence) {
  EXPECT_EQ(sentence_of_outputs(parse_problem(GetParam().line)), GetParam().sentence);
}

const InvalidLine kInvalidLines[] = {
    {"gemm m=8 n=8 k=8 gate=silu_mul", ""},
    {"gemm m=8 n=8 k=8 gate=gelu_mul gate_interleaved=1 batch=3 pointer_arrays=1", ""},
    {"gemm m=8 n=8 k=8 gate=silu_mul ld_out=4 ld_c=8 beta=1", ""},
    {"gemm m=8 n=8 k=8 indexing=gathered index_room=3 groups=2 grouping=contiguous", ""},
    {"gemm m=8 n=8 k=8 indexing=scattered index_room=8 epilogue=row_scale", ""},
    {"gemm m=8 n=8 k=8 dtype=bf16 out=fp8 quant=block d=fp32 scales_by_column=1", ""},
    {"gemm m=8 n=8 k=8 dtype=int8 out=bf8 quant=row d=fp16 epilogue=col_scale", ""},
    {"gemm m=8 n=8 k=8 dtype=bf16 out=fp8 quant=tensor", ""},
    {"gemm m=8 n=8 k=8 gate_interleaved=1",
     "gemm: gate_interleaved must be 0 with gate=none, got 1"},
    {"gemm m=8 n=7 k=8 gate=silu_mul", "gemm: n must be even with gate=silu_mul, got 7"},
    {"gemm m=8 n=8 k=8 gate=silu_mul ld_out=3",
     "gemm: ld_out must be at least 4 (n / 2 with a gate), got 3"},
    {"gemm m=8 n=8 k=8 gate=silu_mul batch=2 batch_stride_out=31",
     "gemm: batch_stride_out must be at least 32 so that batches do not overlap, got 31"},
    {"gemm m=8 n=8 k=8 dtype=int8 out=fp32 gate=silu_mul",
     "gemm: a gate needs sums of fp32, got int32"},
    {"gemm m=8 n=8 k=8 index_room=4", "gemm: index_room must be 0 with indexing=none, got 4"},
    {"gemm m=8 n=8 k=8 indexing=gathered",
     "gemm: index_room must be at least 1 with indexing=gathered and m=8, got 0"},
    {"gemm m=8 n=8 k=8 indexing=scattered index_room=7",
     "gemm: index_room must be at least 8 with indexing=scattered and m=8, got 7"},
    {"gemm m=8 n=8 k=8 indexing=gathered index_room=9 batch=2",
     "gemm: batch must be 1 with indexing=gathered, got 2"},
    {"gemm m=8 n=8 k=8 indexing=gathered index_room=9 grouping=masked groups=2",
     "gemm: indexing must be none with grouping=masked, got gathered"},
    {"gemm m=8 n=8 k=8 dtype=bf16 quant=row", "gemm: quant=row needs out=fp8 or bf8, got bf16"},
    {"gemm m=8 n=8 k=8 dtype=bf16 out=fp8 quant=row d=fp8 epilogue=bias",
     "gemm: d must be fp32, fp16 or bf16 with quant=row, got fp8"},
    {"gemm m=8 n=8 k=8 dtype=bf16 out=fp8 quant=row beta=1",
     "gemm: beta must be 0 with quant=row, since C would have the 8 bits of out, got 1"},
    {"gemm m=8 n=8 k=8 dtype=bf16 out=fp8 quant=row scales_by_column=1",
     "gemm: scales_by_column must be 0 with quant=row, got 1"},
    {"gemm m=8 n=8 k=8 dtype=bf16 out=fp8 quant=row batch=2 pointer_arrays=1",
     "gemm: pointer_arrays must be 0 with scale_a, scale_b, indexing or quant, got 1"},
};
INSTANTIATE_TEST_SUITE_P(All, InvalidOutputs, testing::ValuesIn(kInvalidLines));

// ---- operands ----

std::string outputs_operands(const char* line) {
  std::string text;
  for (const Tensor& tensor : tensors(parse_problem(line))) {
    text += fmt::format("{} {}x{} of {}; ", tensor.name, tensor.batches, tensor.rows(),
                        tensor.sizes[0]);
  }
  return text;
}

TEST(OutputsOperands, LieAsTheProblemSays) {
  EXPECT_EQ(outputs_operands("gemm m=9 n=6 k=7 gate=silu_mul epilogue=bias+add beta=1"),
            "a 1x9 of 7; b 1x6 of 7; c 1x9 of 6; d0 1x1 of 6; d1 1x9 of 6; out 1x9 of 3; ");
  EXPECT_EQ(outputs_operands("gemm m=9 n=6 k=7 indexing=gathered index_room=4"),
            "a 1x4 of 7; b 1x6 of 7; row_index 1x1 of 9; out 1x9 of 6; ");
  EXPECT_EQ(outputs_operands("gemm m=9 n=6 k=7 indexing=scattered index_room=40 groups=2 "
                             "grouping=contiguous epilogue=row_scale"),
            "a 1x9 of 7; b 2x6 of 7; d0 1x1 of 40; group_ends 1x1 of 2; row_index 1x1 of 9; "
            "out 1x40 of 6; ");
  EXPECT_EQ(outputs_operands("gemm m=9 n=600 k=7 dtype=bf16 out=fp8 d=fp32 quant=block "
                             "gate=gelu_mul grouping=masked groups=3"),
            "a 3x9 of 7; b 3x600 of 7; group_rows 1x1 of 3; out_scales 3x9 of 3; out 3x9 of 300; ");
}

// ---- numbers that do not fit ----

std::string index_sentence(const char* line, const std::vector<std::int32_t>& index) {
  const Problem problem = parse_problem(line);
  GemmOperands operands;
  operands.row_index = index.data();
  try {
    value_check(problem)(problem, operands);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RowIndex, IsRefusedWithBothNumbers) {
  const char* const gathered = "gemm m=4 n=5 k=7 indexing=gathered index_room=3";
  const char* const scattered = "gemm m=4 n=5 k=7 indexing=scattered index_room=6";
  EXPECT_EQ(index_sentence(gathered, {0, -1, 2, 2}), "");
  EXPECT_EQ(index_sentence(scattered, {5, -1, 2, -1}), "");
  EXPECT_EQ(index_sentence(gathered, {0, 1, 3, 2}),
            "gemm: row_index[2] must be at most 2 with index_room=3, got 3");
  EXPECT_EQ(index_sentence(gathered, {0, -2, 1, 2}),
            "gemm: row_index[1] must be at least -1, got -2");
  EXPECT_EQ(index_sentence(scattered, {5, 1, 2, 5}),
            "gemm: row_index[3] must be a row of out that no other row names, got 5");
}

// ---- rules and enumeration ----

std::string why_not(const char* line, Pipeline pipeline, const Target& target) {
  KernelSpec spec;
  spec.signature = signature_of(parse_problem(line));
  spec.target = target.name;
  const auto& s = std::get<GemmSignature>(spec.signature);
  const std::vector<Wish> wishes = {{"pipeline", std::string(to_string(pipeline))},
                                    {"dtype", std::string(to_string(s.a))},
                                    {"layout", std::string(to_string(s.layout))}};
  for (const KernelSpec& other : enumerate(target, wishes)) {
    if (other.algorithm.slices != 1) continue;
    spec.algorithm = other.algorithm;
    return family().is_legal(spec, target).reason;
  }
  return "no such pipeline";
}

TEST(OutputsRules, SayWhichWayServesThem) {
  const Target target = load_target("avx512");
  EXPECT_EQ(why_not("gemm m=8 n=8 k=8 gate=silu_mul", Pipeline::packab, target), "");
  EXPECT_EQ(why_not("gemm m=8 n=8 k=8 gate=silu_mul", Pipeline::small, target),
            "avx512 has no small kernels with gates");
  EXPECT_EQ(why_not("gemm m=8 n=8 k=8 indexing=gathered index_room=3", Pipeline::small, target),
            "avx512 has no small kernels with rows by index");
  EXPECT_EQ(why_not("gemm m=8 n=8 k=8 gate=silu_mul preshuffle=1", Pipeline::packab, target),
            "preshuffle must be 0 with a gate, rows by index or quantised outputs, got 1");
}

TEST(OutputsRules, ServeAmdWithGroups) {
  const Target target = load_target("gfx942");
  const char* const grouped =
      "gemm m=8 n=8 k=8 dtype=bf16 gate=silu_mul groups=3 grouping=contiguous";
  for (const Pipeline pipeline : {Pipeline::direct, Pipeline::compv3, Pipeline::mem}) {
    EXPECT_EQ(why_not(grouped, pipeline, target), "");
  }
  EXPECT_EQ(why_not(grouped, Pipeline::stream, target),
            "gfx942 has no stream kernels for groups of unequal sizes, got grouping=contiguous");
  KernelSpec sliced = parse_name(
      "gemm_bf16_rcr_mem_64x64x64_2x2x1_32x32x16_gatesilumul_intrawave_splitordered1_slices4_"
      "gfx942");
  EXPECT_EQ(family().is_legal(sliced, target).reason,
            "workgroups share no k of products with a gate, rows by index or quantised outputs, "
            "which need slices=1 streamk=false, got slices=4 streamk=false");
}

TEST(OutputsRules, ServeBlockScalesOnAmd) {
  const char* const line = "gemm m=8 n=8 k=8 dtype=fp8 out=bf16 gate=silu_mul scale_a=1x128";
  EXPECT_EQ(why_not(line, Pipeline::direct, load_target("gfx942")), "");
  const KernelSpec mfma = parse_name(
      "gemm_fp8_rcr_compv3_64x64x128_2x2x1_16x16x64_outbf16_scalea1x128_gatesilumul_intrawave_"
      "gfx942");
  EXPECT_EQ(family().is_legal(mfma, load_target("gfx942")).reason, "");
  EXPECT_EQ(why_not(line, Pipeline::packab, load_target("avx512")),
            "avx512 has no packab kernels with block scales beside a gate, rows by index or "
            "quantised outputs");
}

TEST(OutputsLaunch, HasTheStepsThatAmdNeeds) {
  const Target target = load_target("gfx942");
  const auto entries = [&](const char* line) {
    const Problem problem = parse_problem(line);
    const KernelSpec spec = general(problem, target);
    EXPECT_EQ(family().is_legal(spec, target).reason, "") << line;
    const Source source = family().emit(spec, target);
    const Launch launch = family().bind(spec, problem, target, no_operands(problem));
    std::string all;
    for (const Step& step : launch.steps) all += source.entries.at(step.entry) + ";";
    return all;
  };
  EXPECT_EQ(entries("gemm m=8 n=8 k=8 dtype=bf16 gate=silu_mul"), ";_finish;");
  EXPECT_EQ(entries("gemm m=8 n=8 k=8 dtype=bf16 indexing=gathered index_room=4"),
            "_gather;;_finish;");
  EXPECT_EQ(entries("gemm m=8 n=8 k=0 dtype=bf16 indexing=gathered index_room=4"), ";_finish;");
  EXPECT_EQ(entries("gemm m=0 n=8 k=8 dtype=bf16 indexing=gathered index_room=4"), "");
  EXPECT_EQ(entries("gemm m=8 n=8 k=8 dtype=bf16 gate=silu_mul groups=2 grouping=indexed "
                    "check_groups=1 indexing=gathered index_room=4"),
            "_check;_gather;;_finish;");
}

TEST(OutputsEnumeration, ListsKernelsThatAWishNames) {
  const Target target = load_target("avx512");
  const auto count = [&](std::vector<Wish> wishes) { return enumerate(target, wishes).size(); };
  const std::size_t plain = count({{"pipeline", "packab"},
                                   {"dtype", "bf16"},
                                   {"epilogue", "none"},
                                   {"layout", "rcr"},
                                   {"variant", "standard"},
                                   {"wave", "*x*x1"}});
  ASSERT_GT(plain, 0U);
  for (const std::string gate : {"silu_mul", "gelu_mul", "gelu_tanh_mul"}) {
    EXPECT_EQ(count({{"pipeline", "packab"},
                     {"dtype", "bf16"},
                     {"epilogue", "none"},
                     {"layout", "rcr"},
                     {"gate", gate},
                     {"variant", "standard"},
                     {"wave", "*x*x1"}}),
              2 * plain);
  }
  EXPECT_EQ(count({{"pipeline", "packab"},
                   {"dtype", "bf16"},
                   {"epilogue", "none"},
                   {"layout", "rcr"},
                   {"variant", "standard"},
                   {"wave", "*x*x1"},
                   {"indexing", "scattered"},
                   {"quant", "block"}}),
            2 * plain);
}

// ---- the reference ----

// A product of one row, gated and quantised by hand.
TEST(OutputsReference, AgreesWithValuesThatAreComputedHere) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<float> numbers(-1, 1);
  std::vector<float> a(3 * 4), b(6 * 4);
  for (auto* list : {&a, &b}) {
    for (float& one : *list) one = numbers(random);
  }
  const std::vector<std::int32_t> index = {2, -1, 0};
  std::vector<std::uint8_t> out(3 * 3, 0x7f);
  std::vector<float> scales(3, -1);
  const Problem problem = parse_problem(
      "gemm m=3 n=6 k=4 out=fp8 gate=silu_mul indexing=gathered index_room=3 quant=row");
  const GemmOperands o = {.a = a.data(),
                          .b = b.data(),
                          .out = out.data(),
                          .row_index = index.data(),
                          .out_scales = scales.data()};
  for (const std::size_t row : {0U, 2U}) {
    const float* x = a.data() + 4 * index[row];
    const auto sum = [&](std::size_t column) {
      double all = 0;
      for (std::size_t k = 0; k < 4; ++k) all += double{x[k]} * b[column * 4 + k];
      return all;
    };
    double y[3], most = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const double z = sum(i);
      y[i] = z / (1 + std::exp(-z)) * sum(3 + i);
      most = std::max(most, std::abs(y[i]));
    }
    scales[row] = static_cast<float>(most / 448);
    for (std::size_t i = 0; i < 3; ++i) {
      store_element(DType::fp8, out.data(), static_cast<std::int64_t>(3 * row + i),
                    y[i] * 448 / most);
    }
  }
  const Mismatch right = verify(problem, o);
  EXPECT_TRUE(right.ok) << right.message;
  EXPECT_EQ(right.checked, 8);
  scales[2] *= 1.001F;
  EXPECT_FALSE(verify(problem, o).ok);
  scales[2] /= 1.001F;
  out[7] ^= 0x80;
  EXPECT_FALSE(verify(problem, o).ok);
}

}  // namespace
}  // namespace tessera::gemm
