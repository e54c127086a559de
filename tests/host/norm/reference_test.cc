// The reference against a second one, written as the formulas stand, and what it notices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tessera/base/error.h"
#include "tessera/families/norm/norm.h"
#include "tessera/spec/numeric.h"

namespace tessera::norm {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Operands of fp32 rows without gaps.
struct Rows {
  std::vector<float> in, residual, scale, shift, out, sum;
  NormOperands operands() {
    return {in.data(), residual.data(), scale.data(), shift.data(), out.data(), sum.data()};
  }
};

Rows random_rows(const NormProblem& p, std::mt19937_64& random) {
  std::normal_distribution<float> values(0.5F, 2);
  const auto count = static_cast<std::size_t>(p.rows * p.columns);
  const auto columns = static_cast<std::size_t>(p.columns);
  Rows rows{std::vector<float>(count),   std::vector<float>(count), std::vector<float>(columns),
            std::vector<float>(columns), std::vector<float>(count), std::vector<float>(count)};
  for (auto* list : {&rows.in, &rows.residual, &rows.scale, &rows.shift}) {
    for (float& value : *list) value = values(random);
  }
  return rows;
}

// Straight from the formulas, in long double.
void compute(const NormProblem& p, Rows& rows) {
  const auto columns = static_cast<std::size_t>(p.columns);
  for (std::size_t row = 0; row < static_cast<std::size_t>(p.rows); ++row) {
    const std::size_t first = row * columns;
    std::vector<long double> x(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      rows.sum[first + c] = rows.in[first + c] + rows.residual[first + c];
      x[c] = p.residual ? rows.sum[first + c] : rows.in[first + c];
    }
    long double total = 0, squares = 0, exponentials = 0;
    for (const long double value : x) total += value;
    const long double mean = p.kind == NormKind::layernorm ? total / columns : 0;
    for (const long double value : x) squares += (value - mean) * (value - mean);
    for (const long double value : x) exponentials += std::exp(value);
    for (std::size_t c = 0; c < columns; ++c) {
      long double y = (x[c] - mean) / std::sqrt(squares / columns + p.epsilon);
      if (p.scale) y *= rows.scale[c];
      if (p.shift) y += rows.shift[c];
      if (p.kind == NormKind::softmax) y = std::exp(x[c]) / exponentials;
      rows.out[first + c] = static_cast<float>(y);
    }
  }
}

NormProblem random_problem(std::mt19937_64& random) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  NormProblem p;
  p.kind = static_cast<NormKind>(draw(0, 2));
  if (p.kind != NormKind::softmax) {
    p.scale = draw(0, 1) == 1;
    p.shift = draw(0, 1) == 1;
    p.residual = draw(0, 1) == 1;
    p.epsilon = draw(0, 1) == 1 ? 1e-5F : 0.25F;
  }
  p.rows = draw(1, 9);
  p.columns = draw(2, 700);
  return p;
}

TEST(NormReference, AgreesWithTheFormulas) {
  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 50; ++i) {
    const NormProblem p = random_problem(random);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    Rows rows = random_rows(p, random);
    compute(p, rows);
    const Mismatch mismatch = family().verify(p, rows.operands());
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(mismatch.checked, p.rows * p.columns * (p.residual ? 2 : 1));
    // An error of 1% of one element is one too many. A shift may cancel most of an element, whose
    // tolerance is then the two terms'.
    const std::size_t wrong = random() % rows.out.size();
    const float shift =
        p.shift ? std::abs(rows.shift[wrong % static_cast<std::size_t>(p.columns)]) : 0;
    const float least = p.kind == NormKind::softmax ? 1e-3F : 0.1F;
    rows.out[wrong] += 0.01F * std::max(std::abs(rows.out[wrong]) + shift, least);
    EXPECT_EQ(family().verify(p, rows.operands()).bad, 1);
  }
}

long double gated(NormKind kind, long double gate, long double up) {
  const long double cube = 0.044715L * gate * gate * gate;
  if (kind == NormKind::silu_mul) return gate / (1 + std::exp(-gate)) * up;
  if (kind == NormKind::gelu_mul) return gate * std::erfc(-gate / std::sqrt(2.0L)) / 2 * up;
  return gate * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0L)) * (gate + cube))) / 2 * up;
}

TEST(NormReference, GatesAgreeWithTheFormulas) {
  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> values(-4, 4);
  for (int i = 0; i < 30; ++i) {
    NormProblem p{.kind = static_cast<NormKind>(3 + i % 3), .rows = 3, .columns = 7 + i};
    p.interleaved = i % 2 == 1;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    std::vector<float> in(static_cast<std::size_t>(6 * p.columns));
    std::vector<float> out(in.size() / 2);
    for (float& x : in) x = values(random);
    for (std::size_t e = 0; e < out.size(); ++e) {
      const std::size_t columns = static_cast<std::size_t>(p.columns);
      const std::size_t row = e / columns * 2 * columns, c = e % columns;
      const std::size_t gate = row + (p.interleaved ? 2 * c : c);
      out[e] =
          static_cast<float>(gated(p.kind, in[gate], in[gate + (p.interleaved ? 1 : columns)]));
    }
    const NormOperands operands{.in = in.data(), .out = out.data()};
    const Mismatch mismatch = family().verify(p, operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(mismatch.checked, p.rows * p.columns);
    out[random() % out.size()] += 0.02F;
    EXPECT_EQ(family().verify(p, operands).bad, 1);
  }
}

TEST(NormReference, CopiesAreWhatWasRead) {
  const float in[] = {1, kInf, -3, 5, std::numeric_limits<float>::quiet_NaN(), 0, 9, 9};
  const NormProblem p{.kind = NormKind::copy, .rows = 2, .columns = 3, .ld_in = 4};
  float out[] = {1, kInf, -3, std::numeric_limits<float>::quiet_NaN(), 0, 9};
  const NormOperands operands{.in = in, .out = out};
  EXPECT_EQ(family().verify(p, operands).message, "");
  out[2] = std::nextafter(-3.0F, 0.0F);
  EXPECT_EQ(family().verify(p, operands).bad, 1);
}

TEST(NormReference, CopiesOf8BitsAreOverTheirScales) {
  const float in[] = {448, -112, 1, 0, 0, 0x1p-101F};
  const NormProblem p{
      .kind = NormKind::copy, .out = DType::fp8, .rows = 2, .columns = 3, .quant = NormQuant::row};
  std::uint8_t out[6];
  for (int i = 0; i < 6; ++i) store_element(DType::fp8, out, i, in[i]);
  float scales[] = {1, 1};
  const NormOperands operands{.in = in, .out = out, .out_scales = scales};
  EXPECT_EQ(family().verify(p, operands).message, "");
  scales[1] = 0.5F;  // no magnitude of the row reaches 2^-100
  EXPECT_EQ(family().verify(p, operands).bad, 1);
}

TEST(NormReference, GatesOfMinusInfinityGiveZero) {
  const float in[] = {-kInf, kInf, 1, 2, 3, std::numeric_limits<float>::quiet_NaN()};
  for (const NormKind kind : {NormKind::silu_mul, NormKind::gelu_mul, NormKind::gelu_tanh_mul}) {
    float out[] = {0, kInf, std::numeric_limits<float>::quiet_NaN()};
    const NormOperands operands{.in = in, .out = out};
    EXPECT_EQ(family().verify(NormProblem{.kind = kind, .rows = 1, .columns = 3}, operands).message,
              "");
    out[0] = 1;
    EXPECT_EQ(family().verify(NormProblem{.kind = kind, .rows = 1, .columns = 3}, operands).bad, 1);
  }
}

TEST(NormReference, SaysWhichElementIsWrong) {
  const NormProblem p{.kind = NormKind::rmsnorm, .rows = 2, .columns = 2, .epsilon = 0};
  Rows rows{{3, -3, 1, 1}, {}, {}, {}, {1, -1, 1, 7}, {}};
  const Mismatch mismatch = family().verify(p, rows.operands());
  EXPECT_TRUE(
      mismatch.message.starts_with("norm: out[1, 1] is 7, the reference is 1 with tolerance "))
      << mismatch.message;
  EXPECT_NE(mismatch.message.find("(1 of 4 elements checked is outside)"), std::string::npos);
}

TEST(NormReference, TheSumIsRoundedToItsType) {
  NormProblem p{.kind = NormKind::rmsnorm,
                .in = DType::bf16,
                .weight = DType::bf16,
                .rows = 1,
                .columns = 2,
                .epsilon = 0,
                .residual = true};
  p.out = DType::fp32;
  std::uint16_t in[2], residual[2], sum[2];
  for (int i = 0; i < 2; ++i) {
    store_element(DType::bf16, in, i, 256);
    store_element(DType::bf16, residual, i, i == 0 ? 1.0 : 256);
    store_element(DType::bf16, sum, i, i == 0 ? 256 : 512);  // 257 is none of bf16
  }
  const double root = std::sqrt((256.0 * 256 + 512.0 * 512) / 2);
  float out[2] = {static_cast<float>(256 / root), static_cast<float>(512 / root)};
  const NormOperands operands{in, residual, nullptr, nullptr, out, sum};
  EXPECT_EQ(family().verify(p, operands).message, "");
  store_element(DType::bf16, sum, 0, 258);
  EXPECT_EQ(family().verify(p, operands).bad, 1);
}

struct Special {
  NormKind kind;
  std::vector<float> in, out;
};

// What is not finite: see README.md.
TEST(NormReference, SpecialValues) {
  const float half = 0.5F;
  const Special rows[] = {
      {NormKind::softmax, {1, kNan}, {kNan, kNan}},
      {NormKind::softmax, {1, kInf}, {kNan, kNan}},
      {NormKind::softmax, {2, -kInf, 2}, {half, 0, half}},
      {NormKind::softmax, {-kInf, -kInf}, {kNan, kNan}},
      {NormKind::softmax, {-3.4e38F, -3.4e38F}, {half, half}},
      {NormKind::rmsnorm, {1, kInf}, {0, kNan}},
      {NormKind::rmsnorm, {1, kNan}, {kNan, kNan}},
      {NormKind::layernorm, {1, -kInf}, {kNan, kNan}},
      {NormKind::layernorm, {1, kNan}, {kNan, kNan}},
      {NormKind::layernorm, {0, 0}, {0, 0}},
  };
  for (const Special& row : rows) {
    const NormProblem p{.kind = row.kind, .rows = 1, .columns = std::ssize(row.in)};
    Rows operands{row.in, {}, {}, {}, row.out, {}};
    EXPECT_EQ(family().verify(p, operands.operands()).message, "")
        << to_string(row.kind) << " of " << row.in[0] << ", " << row.in[1];
    for (float& value : operands.out) value = std::isnan(value) ? 0.25F : kNan;
    EXPECT_FALSE(family().verify(p, operands.operands()).ok)
        << to_string(row.kind) << " of " << row.in[0] << ", " << row.in[1];
  }
}

// Their squares overflow or vanish in fp32, and still 0 is as wrong as anywhere.
TEST(NormReference, LargeAndSmallRows) {
  for (const NormKind kind : {NormKind::rmsnorm, NormKind::layernorm}) {
    for (const float x : {1e25F, 3e38F, 1e-25F}) {
      const NormProblem p{.kind = kind, .rows = 1, .columns = 2, .epsilon = 0};
      Rows rows{{x, -x}, {}, {}, {}, {1, -1}, {}};
      EXPECT_EQ(family().verify(p, rows.operands()).message, "") << x;
      rows.out = {0, 0};
      EXPECT_EQ(family().verify(p, rows.operands()).bad, 2) << x;
    }
  }
}

TEST(NormReference, NeedsItsInputs) {
  NormProblem p{.kind = NormKind::layernorm, .rows = 1, .columns = 2, .residual = true};
  Rows rows{{1, 2}, {3, 4}, {}, {}, {0, 0}, {0, 0}};
  NormOperands operands = rows.operands();
  operands.sum = rows.residual.data();
  try {
    family().verify(p, operands);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "norm: verify needs residual as it was before the kernel ran, but residual is "
                 "sum; pass a copy");
  }
}

TEST(NormReference, LimitsChooseRows) {
  const NormProblem p{.kind = NormKind::softmax, .rows = 1000, .columns = 64};
  std::mt19937_64 random(7);
  Rows rows = random_rows(p, random);
  const Reference some = reference(p, rows.operands(), {.rows = 5});
  ASSERT_EQ(some.runs.size(), 5U);
  EXPECT_EQ(some.runs.front().offset, 0);
  EXPECT_EQ(some.runs.back().offset, 999 * 64 * 4);
  EXPECT_EQ(some.runs.back().bytes, 64 * 4);
  EXPECT_EQ(reference(p, rows.operands(), {.elements = 640}).runs.size(), 10U);
  EXPECT_EQ(reference(p, rows.operands(), {}).runs.size(), 1000U);
  EXPECT_EQ(reference(NormProblem{.rows = 5, .columns = 0}, rows.operands(), {}).runs.size(), 0U);
}

}  // namespace
}  // namespace tessera::norm
