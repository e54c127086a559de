#include "tessera/spec/numeric.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::uint32_t store(DType dtype, double value) {
  std::array<std::uint32_t, 2> bits = {0, 0x5a5a5a5a};
  store_element(dtype, bits.data(), 0, value);
  EXPECT_EQ(bits[1], 0x5a5a5a5a) << "wrote past the element";
  return bits[0];
}

double load(DType dtype, std::uint32_t bits) { return load_element(dtype, &bits, 0); }

// The formats of at most 16 bits, which can be tested pattern by pattern.
struct Small {
  DType dtype;
  int bits;
  int infinities;
  int nans;
};
constexpr Small kSmall[] = {
    {DType::fp16, 16, 2, 2 * 1023}, {DType::bf16, 16, 2, 2 * 127}, {DType::fp8, 8, 0, 2},
    {DType::bf8, 8, 2, 6},          {DType::int8, 8, 0, 0},
};

class EveryPattern : public testing::TestWithParam<Small> {};
class EveryFloatPattern : public testing::TestWithParam<Small> {};  // integers have their own test

TEST_P(EveryPattern, RoundTrips) {
  const auto [dtype, bits, infinities, nans] = GetParam();
  int infinite = 0;
  int nan = 0;
  for (std::uint32_t pattern = 0; pattern < (1U << bits); ++pattern) {
    const double value = load(dtype, pattern);
    infinite += std::isinf(value) ? 1 : 0;
    if (std::isnan(value)) {
      ++nan;
      EXPECT_TRUE(std::isnan(load(dtype, store(dtype, value)))) << pattern;
    } else {
      ASSERT_EQ(store(dtype, value), pattern) << value;
    }
  }
  EXPECT_EQ(infinite, infinities);
  EXPECT_EQ(nan, nans);
}

// Between neighbours, the exact middle goes to the even pattern and everything else to the nearer.
TEST_P(EveryFloatPattern, RoundsToNearestEven) {
  const auto [dtype, bits, infinities, nans] = GetParam();
  const std::uint32_t sign = 1U << (bits - 1);
  for (std::uint32_t low = 0; low + 1 < sign; ++low) {
    const double a = load(dtype, low);
    const double b = load(dtype, low + 1);
    if (!std::isfinite(a) || !std::isfinite(b)) break;
    ASSERT_LT(a, b) << "patterns must be ordered like values, at " << low;
    const double middle = a + (b - a) / 2;
    const std::uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(store(dtype, middle), even) << middle;
    ASSERT_EQ(store(dtype, std::nextafter(middle, 0.0)), low) << middle;
    ASSERT_EQ(store(dtype, std::nextafter(middle, kInfinity)), low + 1) << middle;
    ASSERT_EQ(store(dtype, -middle), sign | even) << middle;
  }
}

TEST_P(EveryFloatPattern, OverflowsPastHalfAStepAboveTheLargest) {
  const auto [dtype, bits, infinities, nans] = GetParam();
  const double most = max_finite(dtype);
  const std::uint32_t top = store(dtype, most);
  ASSERT_EQ(load(dtype, top), most);
  const double half_step = (most - load(dtype, top - 1)) / 2;
  EXPECT_EQ(load(dtype, store(dtype, std::nextafter(most + half_step, 0.0))), most);
  // fp8's largest pattern is even, so that the tie stays; the others' is odd, and the tie leaves.
  const bool tie_stays = dtype == DType::fp8;
  EXPECT_EQ(load(dtype, store(dtype, most + half_step)) == most, tie_stays);
  for (const double big : {std::nextafter(most + half_step, kInfinity), 1e300, kInfinity}) {
    if (dtype == DType::fp8) {
      EXPECT_TRUE(std::isnan(load(dtype, store(dtype, big)))) << big;
      EXPECT_TRUE(std::isnan(load(dtype, store(dtype, -big)))) << big;
    } else {
      EXPECT_EQ(load(dtype, store(dtype, big)), kInfinity) << big;
      EXPECT_EQ(load(dtype, store(dtype, -big)), -kInfinity) << big;
    }
  }
}

TEST_P(EveryFloatPattern, UnderflowsToSignedZero) {
  const auto [dtype, bits, infinities, nans] = GetParam();
  const double least = load(dtype, 1);
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(store(dtype, least / 2), 0U);
  EXPECT_EQ(store(dtype, -least / 2), 1U << (bits - 1));
  EXPECT_EQ(store(dtype, tiny), 0U);
  EXPECT_EQ(store(dtype, -tiny), 1U << (bits - 1));
  EXPECT_EQ(store(dtype, std::nextafter(least / 2, 1.0)), 1U);
}

std::string name_of_row(const testing::TestParamInfo<Small>& row) {
  return std::string(to_string(row.param.dtype));
}
INSTANTIATE_TEST_SUITE_P(Numeric, EveryPattern, testing::ValuesIn(kSmall), name_of_row);
INSTANTIATE_TEST_SUITE_P(Numeric, EveryFloatPattern,
                         testing::ValuesIn(std::begin(kSmall), std::end(kSmall) - 1), name_of_row);

// The processor's own conversion is the oracle of fp32; the double is made of random bits.
TEST(Numeric, Fp32AgreesWithTheProcessor) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300000; ++i) {
    std::uint64_t bits = random();
    // Half of the exponents near fp32's range, where rounding and subnormals are.
    if (i % 2 == 0) bits = (bits & 0x800fffffffffffffULL) | ((1023 - 160 + random() % 300) << 52);
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isnan(value)) continue;
    const auto expected = static_cast<float>(value);
    std::uint32_t expected_bits = 0;
    std::memcpy(&expected_bits, &expected, sizeof(expected));
    ASSERT_EQ(store(DType::fp32, value), expected_bits) << value;
    ASSERT_EQ(load(DType::fp32, expected_bits), static_cast<double>(expected));
  }
}

TEST(Numeric, Tf32IsFp32WithTenBitsOfMantissa) {
  EXPECT_EQ(store(DType::tf32, 1.0), 0x3f800000U);
  EXPECT_EQ(store(DType::tf32, 1.0 + 0x1p-10), 0x3f802000U);
  EXPECT_EQ(store(DType::tf32, 1.0 + 0x1p-11), 0x3f800000U) << "ties to even";
  EXPECT_EQ(store(DType::tf32, 1.0 + 3 * 0x1p-11), 0x3f804000U) << "ties to even";
  EXPECT_EQ(store(DType::tf32, 1e39), 0x7f800000U);
  EXPECT_EQ(load(DType::tf32, store(DType::tf32, max_finite(DType::tf32))),
            max_finite(DType::tf32));
  EXPECT_TRUE(std::isnan(load(DType::tf32, store(DType::tf32, kNan))));
}

TEST(Numeric, IntegersSaturateAndRoundHalfToEven) {
  struct Row {
    double value;
    int as_int8;
    int as_int32;
  };
  const Row rows[] = {
      {0.5, 0, 0},
      {1.5, 2, 2},
      {2.5, 2, 2},
      {-0.5, 0, 0},
      {-1.5, -2, -2},
      {126.5, 126, 126},
      {127.5, 127, 128},
      {-128.5, -128, -128},
      {1e9, 127, 1000000000},
      {1e10, 127, 2147483647},
      {-1e10, -128, -2147483647 - 1},
      {kNan, 0, 0},
      {kInfinity, 127, 2147483647},
      {-kInfinity, -128, -2147483647 - 1},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(load(DType::int8, store(DType::int8, row.value)), row.as_int8) << row.value;
    EXPECT_EQ(load(DType::int32, store(DType::int32, row.value)), row.as_int32) << row.value;
  }
}

TEST(Numeric, IndexCountsElements) {
  for (const DType dtype : all_dtypes()) {
    std::array<unsigned char, 5 * 4 + 1> bytes{};
    for (int i = 0; i < 5; ++i) store_element(dtype, bytes.data() + 1, i, i - 2);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(load_element(dtype, bytes.data() + 1, i), i - 2) << to_string(dtype);
    }
  }
}

// The value of a code with FNUZ, from the definition: sign, exponent with a bias of half its range,
// mantissa; no infinity, and the code of negative zero is the only NaN.
double fnuz(int mantissa_bits, std::uint32_t code) {
  if (code == 0x80) return kNan;
  const int exponent_bits = 7 - mantissa_bits;
  const int bias = 1 << (exponent_bits - 1);
  const auto field = static_cast<int>(code >> mantissa_bits & ((1U << exponent_bits) - 1));
  const double part = (code & ((1U << mantissa_bits) - 1)) / std::exp2(mantissa_bits);
  const double magnitude =
      field == 0 ? part * std::exp2(1 - bias) : (1 + part) * std::exp2(field - bias);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

std::uint8_t store_fnuz(DType dtype, double value) {
  std::array<std::uint8_t, 2> bits = {0, 0x5a};
  store_element(dtype, bits.data(), 0, value, Fp8Encoding::fnuz);
  EXPECT_EQ(bits[1], 0x5a) << "wrote past the element";
  return bits[0];
}

struct Fnuz {
  DType dtype;
  int mantissa_bits;
  double largest;
};
class FnuzCodes : public testing::TestWithParam<Fnuz> {};
INSTANTIATE_TEST_SUITE_P(Types, FnuzCodes,
                         testing::Values(Fnuz{DType::fp8, 3, 240}, Fnuz{DType::bf8, 2, 57344}),
                         [](const auto& row) { return std::string(to_string(row.param.dtype)); });

TEST_P(FnuzCodes, EachIsWhatTheDefinitionSays) {
  const auto [dtype, mantissa_bits, largest] = GetParam();
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto stored = static_cast<std::uint8_t>(code);
    const double value = load_element(dtype, &stored, 0, Fp8Encoding::fnuz);
    const double wanted = fnuz(mantissa_bits, code);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(store_fnuz(dtype, wanted), 0x80);
    } else {
      EXPECT_EQ(value, wanted) << code;
      EXPECT_EQ(store_fnuz(dtype, wanted), code);
      EXPECT_LE(std::abs(wanted), largest);
    }
  }
  const std::uint8_t top = 0x7f;
  EXPECT_EQ(load_element(dtype, &top, 0, Fp8Encoding::fnuz), largest);
}

TEST_P(FnuzCodes, RoundToNearestEven) {
  const auto [dtype, mantissa_bits, largest] = GetParam();
  for (std::uint32_t low = 0; low < 0x7f; ++low) {
    const double a = fnuz(mantissa_bits, low);
    const double middle = a + (fnuz(mantissa_bits, low + 1) - a) / 2;
    const std::uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(store_fnuz(dtype, middle), even) << middle;
    ASSERT_EQ(store_fnuz(dtype, std::nextafter(middle, 0.0)), low) << middle;
    ASSERT_EQ(store_fnuz(dtype, std::nextafter(middle, kInfinity)), low + 1) << middle;
    ASSERT_EQ(store_fnuz(dtype, -middle), even == 0 ? 0 : 0x80 | even) << middle;
  }
}

TEST_P(FnuzCodes, WhatHasNoCodeBecomesTheOnlyNan) {
  const auto [dtype, mantissa_bits, largest] = GetParam();
  const double step = largest - fnuz(mantissa_bits, 0x7e);
  EXPECT_EQ(store_fnuz(dtype, std::nextafter(largest + step / 2, 0.0)), 0x7f);
  for (const double value : {largest + step / 2, 1e30, kInfinity, -kInfinity, -1e30, kNan, -kNan}) {
    EXPECT_EQ(store_fnuz(dtype, value), 0x80) << value;
  }
  EXPECT_EQ(store_fnuz(dtype, -0.0), 0);
  EXPECT_EQ(store_fnuz(dtype, -1e-30), 0);
}

}  // namespace
}  // namespace tessera
