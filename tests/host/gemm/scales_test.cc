// Scales of blocks: what is valid, operands, names, rules, enumeration, and the reference beside
// sums that are written down here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace scales_test {
namespace {

struct Row {
  const char* line;
  const char* sentence;
};

std::string sentence(const Problem& problem) {
  try {
    validate(problem);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class InvalidScales : public testing::TestWithParam<Row> {};

TEST_P(InvalidScales, GiveTheSentence) {
  EXPECT_EQ(sentence(parse_problem(std::string("gemm m=8 n=8 k=300 ") + GetParam().line)),
            GetParam().sentence);
}

const Row kInvalid[] = {
    {"a=fp8 scale_a=1x32 scale_b=1x32 scale_type=e8m0", ""},
    {"a=fp8 b=bf8 scale_a=1x128 scale_b=128x128", ""},
    {"a=bf8 scale_b=128x128 batch=3", ""},
    {"a=fp8 scale_a=1x128 scale_b=1x128 scale_type=e8m0 scale_quads=1", ""},
    {"a=fp8 scale_a=1x128 stride_scale_a_m=1 stride_scale_a_k=8", ""},
    {"a=fp8 scale_a=1x128 stride_scale_a_m=0 stride_scale_a_k=0", ""},
    {"a=bf16 scale_a=1x128", "gemm: scales of blocks go with operands of fp8 and bf8, got bf16"},
    {"a=int8 scale_b=1x128", "gemm: scales of blocks go with operands of fp8 and bf8, got int8"},
    {"a=fp8 scale_type=e8m0",
     "gemm: scale_type must be fp32 without scale_a and scale_b, got e8m0"},
    {"a=fp8 scale_a=1x32 scale_quads=1",
     "gemm: scale_quads must be 0 without scales of scale_type=e8m0, got 1"},
    {"a=fp8 scale_quads=1", "gemm: scale_quads must be 0 without scales of scale_type=e8m0, got 1"},
    {"a=fp8 scale_a=1x32 stride_scale_b_n=4",
     "gemm: stride_scale_b_n must be left out without such scales, got 4"},
    {"a=fp8 scale_b=1x32 stride_scale_a_m=4",
     "gemm: stride_scale_a_m must be left out without such scales, got 4"},
    {"a=fp8 stride_scale_a_k=4",
     "gemm: stride_scale_a_k must be left out without such scales, got 4"},
    {"a=fp8 scale_a=1x32 batch_stride_scale_b=4",
     "gemm: batch_stride_scale_b must be left out without such scales, got 4"},
    {"a=fp8 scale_a=1x32 stride_scale_a_m=-2", "gemm: stride_scale_a_m must be at least 0, got -2"},
    {"a=fp8 scale_b=1x32 stride_scale_b_k=-2", "gemm: stride_scale_b_k must be at least 0, got -2"},
    {"a=fp8 scale_a=1x32 scale_type=e8m0 scale_quads=1 stride_scale_a_k=2",
     "gemm: stride_scale_a_k must be at least 4 with scale_quads=1, where strides along k go from "
     "four scales to the next four, got 2"},
    {"a=fp8 scale_a=1x32 stride_scale_a_m=4611686018427387904",
     "gemm: the last byte of scale_a must be below 2^63, got 8 blocks of rows "
     "4611686018427387904 apart, 10 blocks along k 1 apart and 1 batches 9223372036854775807 "
     "apart"},
    {"a=fp8 scale_a=1x32 preshuffle=1",
     "gemm: preshuffle must be 0 with scale_a=1x32 and scale_b=none, got 1"},
    {"a=fp8 scale_a=1x32 batch=2 pointer_arrays=1",
     "gemm: pointer_arrays must be 0 with scale_a, scale_b, indexing or quant, got 1"},
};
INSTANTIATE_TEST_SUITE_P(All, InvalidScales, testing::ValuesIn(kInvalid));

// ---- operands ----

std::string operands_of(const char* line) {
  std::string text;
  for (const Tensor& tensor : tensors(parse_problem(line))) {
    if (!tensor.name.starts_with("scale")) continue;
    text += fmt::format("{} {} x {} bytes;", tensor.name, tensor.batches, tensor.batch_bytes());
  }
  return text;
}

TEST(ScaleOperands, HaveOneNumberForEachBlock) {
  EXPECT_EQ(operands_of("gemm m=130 n=257 k=129 a=fp8 scale_a=1x128 scale_b=128x128 batch=3"),
            "scale_a 3 x 1040 bytes;scale_b 3 x 24 bytes;");
  EXPECT_EQ(operands_of("gemm m=3 n=5 k=129 a=fp8 scale_a=1x32 scale_type=e8m0"),
            "scale_a 1 x 15 bytes;");
  EXPECT_EQ(operands_of("gemm m=3 n=5 k=129 a=fp8 scale_b=1x32 scale_type=e8m0 scale_quads=1"),
            "scale_b 1 x 40 bytes;");
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=contiguous a=fp8 scale_a=1x128 "
                        "scale_b=1x128"),
            "scale_a 1 x 36 bytes;scale_b 3 x 20 bytes;");
}

// ---- rules ----

TEST(ScaleRules, SayWhatDoesNotGoWithScales) {
  const Target target = load_target("avx512");
  const auto refusal = [&](const char* problem, const Algorithm& a) {
    const KernelSpec spec = {signature_of(parse_problem(problem)), a, target.name};
    return family().is_legal(spec, target).reason;
  };
  const char* const kLine = "gemm m=8 n=8 k=8 a=fp8 scale_a=1x128 scale_b=128x128";
  const Algorithm a = general(parse_problem(kLine), target).algorithm;
  EXPECT_EQ(refusal(kLine, a), "");
  Algorithm pairs = a;
  pairs.warp_tile = {12, 32, 2};
  EXPECT_EQ(refusal(kLine, pairs), "");
  pairs.tile.k = 96;
  EXPECT_EQ(refusal(kLine, pairs),
            "pairs with scales are multiplied block by block: tile_k must be a multiple of 128 "
            "with scale_a=1x128 and scale_b=128x128, got 96");
  EXPECT_EQ(refusal("gemm m=8 n=8 k=8 a=fp8 scale_a=1x128 scale_b=1x32", pairs), "");
  Algorithm shared = a;
  shared.wave.k = 2;
  EXPECT_EQ(refusal(kLine, shared),
            "threads do not share the k of elements with scales: wave_k must be 1 with "
            "scale_a=1x128 and scale_b=128x128, got 2");
  EXPECT_EQ(refusal("gemm m=8 n=8 k=8 a=fp8 scale_a=1x128 preshuffle=1", a),
            "preshuffle must be 0 with scale_a=1x128 and scale_b=none, got 1");
  for (const Pipeline pipeline :
       {Pipeline::packa, Pipeline::packb, Pipeline::direct, Pipeline::stream, Pipeline::small}) {
    Algorithm other = a;
    other.pipeline = pipeline;
    EXPECT_EQ(refusal(kLine, other),
              fmt::format("avx512 has no {} kernels with block scales", to_string(pipeline)));
  }
}

// Kernels whose instruction multiplies by scales go with mxfp8 on gfx950 alone.
TEST(ScaleKernels, MultiplyByScalesOnGfx950) {
  const auto count = [](const char* target, const char* scales) {
    const Problem p =
        parse_problem(fmt::format("gemm m=512 n=512 k=512 a=fp8 out=bf16 {}", scales));
    int found = 0;
    for (const KernelSpec& spec : legal_candidates(p, load_target(target))) {
      found += spec.algorithm.warp_tile == Shape3{16, 16, 128} ? 1 : 0;
    }
    return found;
  };
  constexpr const char* kMx = "scale_a=1x32 scale_b=1x32 scale_type=e8m0";
  EXPECT_GT(count("gfx950", kMx), 0);
  EXPECT_EQ(count("gfx942", kMx), 0);
  EXPECT_EQ(count("gfx950", "scale_a=1x32 scale_b=1x32"), 0);
  EXPECT_EQ(count("gfx950", "scale_a=1x128 scale_b=128x128 scale_type=e8m0"), 0);
  EXPECT_EQ(count("gfx950", ""), 0);
}

// Every pair of scales with either type, but none with none.
TEST(ScaleKernels, AreListedWhereAWishNamesThem) {
  const Target target = load_target("avx512");
  const auto count = [&](std::vector<Wish> wishes) {
    std::set<std::tuple<GemmScale, GemmScale, GemmScaleType>> all;
    for (const KernelSpec& spec : enumerate(target, wishes)) {
      const auto& s = std::get<GemmSignature>(spec.signature);
      all.insert({s.scale_a, s.scale_b, s.scale_type});
    }
    return all.size();
  };
  const std::vector<Wish> base = {{"dtype", "fp8"}, {"layout", "rcr"}};
  EXPECT_EQ(count(base), 1U);
  const auto with = [&](std::vector<Wish> more) {
    more.insert(more.end(), base.begin(), base.end());
    return more;
  };
  EXPECT_EQ(count(with({{"scale_a", "1x*"}})), 16U);
  EXPECT_EQ(count(with({{"scale_a", "1x128"}, {"scale_b", "128x128"}})), 2U);
  EXPECT_EQ(count(with({{"scale_type", "e8m0"}})), 15U);
}

// A problem that stands for other numbers of rows is valid, and has its own strides where the
// given ones do not follow from the sizes.
TEST(ScaledProblems, StandForAnyNumberOfRows) {
  const Problem packed =
      parse_problem("gemm m=64 n=256 k=512 a=fp8 scale_a=1x128 scale_b=128x128 batch=2");
  const Problem by_rows = parse_problem(
      "gemm m=64 n=256 k=512 a=fp8 scale_a=1x128 scale_b=128x128 stride_scale_a_m=1 "
      "stride_scale_a_k=64");
  for (const Problem& problem : {packed, by_rows}) {
    const AnyBatch any = any_batch(problem);
    for (const auto* list : {&any.usual, &any.unusual}) {
      for (const Problem& other : *list) {
        EXPECT_EQ(sentence(other), "") << to_string(other);
        const GemmProblem p = with_strides(std::get<GemmProblem>(other));
        EXPECT_EQ(p.batch_stride_scale_a, p.m * p.stride_scale_a_m);
        EXPECT_EQ(p.batch_stride_scale_b, 8);
      }
    }
  }
}

// ---- the reference ----

// Numbers of one product, in memory of their own, and its blocks' sums in fp32.
struct Product {
  GemmProblem p;
  std::vector<std::uint8_t> a, b;
  std::vector<float> scale_a, scale_b, out;

  Product(const char* line, std::mt19937_64& random)
      : p(with_strides(std::get<GemmProblem>(parse_problem(line)))) {
    std::uniform_real_distribution<double> element(-4, 4);
    a.resize(static_cast<std::size_t>(p.m * p.k)), b.resize(static_cast<std::size_t>(p.n * p.k));
    for (std::size_t i = 0; i < a.size(); ++i) {
      store_element(p.a, a.data(), static_cast<std::int64_t>(i), element(random));
    }
    for (std::size_t i = 0; i < b.size(); ++i) {
      store_element(p.b, b.data(), static_cast<std::int64_t>(i), element(random));
    }
    scale_a = scales(p.scale_a, p.m, random), scale_b = scales(p.scale_b, p.n, random);
    out.resize(static_cast<std::size_t>(p.m * p.n));
  }

  // Powers of two from 2^-10 to 2^10, times a number from 1 to 2.
  std::vector<float> scales(GemmScale scale, std::int64_t rows, std::mt19937_64& random) const {
    const ScaleBlock count = scale_blocks(scale, rows, p.k);
    std::vector<float> all(static_cast<std::size_t>(count.rows * count.k));
    std::uniform_int_distribution<int> exponent(-10, 10);
    std::uniform_real_distribution<float> fraction(1, 2);
    for (float& x : all) x = std::ldexp(fraction(random), exponent(random));
    return all;
  }

  static float scale(const GemmProblem& p, GemmScale of, const std::vector<float>& all,
                     std::int64_t row, std::int64_t k) {
    const ScaleBlock block = block_of(of), count = scale_blocks(of, 1, p.k);
    return all[static_cast<std::size_t>(row / block.rows * count.k + k / block.k)];
  }

  void multiply(std::int64_t shift) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        out[static_cast<std::size_t>(i * p.n + j)] = element(i, j, shift);
      }
    }
  }
  // By parts of 32 along k, whose scales lie `shift` further on.
  float element(std::int64_t i, std::int64_t j, std::int64_t shift) const {
    float sum = 0;
    for (std::int64_t k = 0; k < p.k; k += 32) {
      float part = 0;
      for (std::int64_t x = k; x < std::min(k + 32, p.k); ++x) {
        part += static_cast<float>(load_element(p.a, a.data(), i * p.k + x) *
                                   load_element(p.b, b.data(), j * p.k + x));
      }
      const std::int64_t at = std::min(k + shift, p.k - 1);
      sum += part * (scale(p, p.scale_a, scale_a, i, at) * scale(p, p.scale_b, scale_b, j, at));
    }
    return sum;
  }
  Mismatch verified() {
    GemmOperands o = {.a = a.data(), .b = b.data(), .out = out.data()};
    o.scale_a = scale_a.data(), o.scale_b = scale_b.data();
    return verify(p, o);
  }
};

TEST(ScaledReference, AgreesWithSumsOfBlocksInFp32WhoseScalesDifferBy2To20) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (const char* line :
       {"gemm m=7 n=5 k=16384 a=fp8 out=fp32 scale_a=1x128 scale_b=128x128",
        "gemm m=131 n=3 k=290 a=bf8 b=fp8 out=fp32 scale_a=128x128 scale_b=1x32"}) {
    Product product(line, random);
    product.multiply(0);
    const Mismatch right = product.verified();
    EXPECT_TRUE(right.ok) << right.message;
    EXPECT_EQ(right.checked, product.p.m * product.p.n);
    product.multiply(128);
    EXPECT_FALSE(product.verified().ok) << line;
  }
}

TEST(ScaledReference, IsNanWhereAScaleIsNan) {
  std::mt19937_64 random(1);
  Product product("gemm m=2 n=2 k=64 a=fp8 out=fp32 scale_a=1x32 scale_b=1x32", random);
  product.scale_a[1] = std::numeric_limits<float>::quiet_NaN();
  product.multiply(0);
  EXPECT_TRUE(std::isnan(product.out[0]));
  const Mismatch same = product.verified();
  EXPECT_TRUE(same.ok) << same.message;
  product.out[0] = 1;
  EXPECT_FALSE(product.verified().ok);
}

// No bound holds where a product of scales leaves fp32, although the sum does not.
TEST(ScaledReference, HasNoBoundWhereScalesLeaveTheRange) {
  std::mt19937_64 random(1);
  Product product("gemm m=1 n=1 k=32 a=fp8 out=fp32 scale_a=1x32 scale_b=1x32", random);
  product.scale_a[0] = 0x1p100F, product.scale_b[0] = 0x1p100F;
  product.out[0] = 5;
  EXPECT_TRUE(product.verified().ok);
  product.scale_a[0] = 0x1p10F, product.scale_b[0] = 0x1p10F;
  EXPECT_FALSE(product.verified().ok);
}

// Blocks of k are counted from k = 0 where groups cut k.
TEST(ScaledReference, CountsBlocksFromTheBeginningWhereGroupsCutK) {
  GemmProblem p = std::get<GemmProblem>(
      parse_problem("gemm m=1 n=1 k=64 a=fp8 out=fp32 scale_a=1x32 groups=2 grouping=along_k"));
  const std::vector<std::uint8_t> ones(64, 0x38);
  const float scales[] = {2, 3};
  const std::int32_t ends[] = {20, 50};
  float out[] = {20 * 2, 12 * 2 + 18 * 3};
  GemmOperands o = {.a = ones.data(), .b = ones.data(), .out = out};
  o.group_ends = ends, o.scale_a = scales;
  const Mismatch same = verify(p, o);
  EXPECT_TRUE(same.ok) << same.message;
  out[1] = 20 * 2 + 10 * 3;
  EXPECT_FALSE(verify(p, o).ok);
}

// A row that is gathered has the scales of the row of A that it is, wherever its group begins.
TEST(ScaledReference, GatesAndQuantisesGatheredRowsOfGroups) {
  const GemmProblem p = std::get<GemmProblem>(
      parse_problem("gemm m=3 n=2 k=160 a=fp8 out=fp8 scale_a=1x128 scale_b=128x128 gate=silu_mul "
                    "quant=row indexing=gathered index_room=5 groups=2 grouping=indexed"));
  const std::vector<std::uint8_t> ones(5 * 160, 0x38);
  std::vector<float> scale_a, out_scales;
  for (int i = 1; i <= 5 * 2; ++i) scale_a.push_back(0.01F * static_cast<float>(i));
  const float scale_b[] = {1, 2, 3, 4};
  const std::int32_t groups[] = {0, 1, 1}, rows[] = {4, 0, 2};
  for (std::size_t i = 0; i < 3; ++i) {
    const float* const of_row = &scale_a[static_cast<std::size_t>(rows[i]) * 2];
    const float* const of_group = &scale_b[groups[i] * 2];
    const double sum = 128.0 * of_row[0] * of_group[0] + 32.0 * of_row[1] * of_group[1];
    out_scales.push_back(static_cast<float>(sum * sum / (1 + std::exp(-sum)) / 448));
  }
  std::vector<std::uint8_t> out(3, 0x7e);  // 448
  GemmOperands o = {.a = ones.data(), .b = ones.data(), .out = out.data()};
  o.group_index = groups, o.row_index = rows;
  o.scale_a = scale_a.data(), o.scale_b = scale_b, o.out_scales = out_scales.data();
  const Mismatch same = verify(p, o);
  EXPECT_TRUE(same.ok) << same.message;
  EXPECT_EQ(same.checked, 6);
  std::swap(out_scales[1], out_scales[2]);
  EXPECT_FALSE(verify(p, o).ok);
}

}  // namespace
}  // namespace scales_test
}  // namespace tessera::gemm
