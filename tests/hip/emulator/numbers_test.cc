#include <gtest/gtest.h>

#include <cmath>

#include "bench.h"

namespace tessera::cdna_emulator {
namespace {

// A half's value by its definition.
double value_of_half(u32 bits) {
  const int e = static_cast<int>(bits >> 10 & 31U), m = static_cast<int>(bits & 1023U);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  return sign * (e == 0 ? std::ldexp(m, -24) : std::ldexp(m + 1024, e - 25));
}

TEST(Numbers, HalvesHaveTheirValues) {
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const float x = half_to_float(bits);
    if ((bits & 0x7c00U) == 0x7c00U) {
      EXPECT_EQ(std::isnan(x), (bits & 0x3ffU) != 0) << bits;
      EXPECT_EQ(std::isinf(x), (bits & 0x3ffU) == 0) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), value_of_half(bits)) << bits;
    ASSERT_EQ(float_to_half(x), bits);
    ASSERT_EQ(double_to_half(static_cast<double>(x)), bits);
  }
}

// The nearest half of a value: the one below or the one above, ties to the even one.
TEST(Numbers, FloatsBecomeTheNearestHalf) {
  auto random = fresh_random();
  for (int n = 0; n < 200000; ++n) {
    const float x = as_float(static_cast<u32>(random()));
    if (x != x) continue;
    const u32 half = float_to_half(x);
    ASSERT_EQ(double_to_half(static_cast<double>(x)), half) << x;
    const u32 size = half & 0x7fffU;
    const double magnitude = std::fabs(static_cast<double>(x));
    if (size >= 0x7c00U) {
      ASSERT_GE(magnitude, 65520.0);
      continue;
    }
    const double got = value_of_half(size), above = value_of_half(size + 1);
    const double below = size == 0 ? -1 : value_of_half(size - 1);
    const double error = std::fabs(magnitude - got);
    ASSERT_LE(error, std::fabs(magnitude - above)) << x;
    ASSERT_LE(error, std::fabs(magnitude - below)) << x;
    if (error == std::fabs(magnitude - above)) {
      ASSERT_EQ(half & 1U, 0U) << x;
    }
  }
}

TEST(Numbers, TruncatedHalvesAreNotLarger) {
  auto random = fresh_random();
  std::normal_distribution<float> normal;
  for (int n = 0; n < 10000; ++n) {
    const float x = normal(random);
    const u32 half = float_to_half_truncated(x);
    EXPECT_LE(std::fabs(half_to_float(half)), std::fabs(x));
    EXPECT_GT(std::fabs(half_to_float(half + 1)), std::fabs(x));
  }
}

TEST(Numbers, Fp8ValuesSurvive) {
  for (int e = 0; e < kFp8Encodings; ++e) {
    const Fp8 encoding = static_cast<Fp8>(e);
    for (u32 byte = 0; byte < 256; ++byte) {
      const float x = fp8_values(encoding)[byte];
      if (x != x) continue;
      ASSERT_EQ(float_to_fp8(x, encoding, false), byte) << e;
    }
  }
  EXPECT_EQ(fp8_values(Fp8::e4m3_fnuz)[0x7f], 240.0F);
  EXPECT_EQ(fp8_values(Fp8::e5m2_fnuz)[0x7f], 57344.0F);
  EXPECT_EQ(fp8_values(Fp8::e4m3_ocp)[0x7e], 448.0F);
  EXPECT_EQ(fp8_values(Fp8::e5m2_ocp)[0x7b], 57344.0F);
  EXPECT_EQ(fp8_values(Fp8::e4m3_fnuz)[1], 0x1p-10F);
  EXPECT_EQ(fp8_values(Fp8::e4m3_ocp)[1], 0x1p-9F);
}

TEST(Numbers, FloatsBecomeTheNearestFp8) {
  auto random = fresh_random();
  for (int n = 0; n < 20000; ++n) {
    const float x = as_float(static_cast<u32>(random()) % 0x0a000000U + 0x38000000U);
    for (int e = 0; e < kFp8Encodings; ++e) {
      const Fp8 encoding = static_cast<Fp8>(e);
      const float got = fp8_values(encoding)[float_to_fp8(x, encoding, true)];
      for (u32 byte = 0; byte < 128; ++byte) {
        const float other = fp8_values(encoding)[byte];
        if (std::isnan(other) || std::isinf(other)) continue;
        ASSERT_LE(std::fabs(got - x), std::fabs(other - x)) << x << " in encoding " << e;
      }
    }
  }
}

TEST(Numbers, LargeFp8SaturatesOrOverflows) {
  EXPECT_EQ(float_to_fp8(1e6F, Fp8::e4m3_fnuz, true), 0x7fU);
  EXPECT_EQ(float_to_fp8(-1e6F, Fp8::e4m3_fnuz, false), 0x80U);
  EXPECT_EQ(float_to_fp8(-1e6F, Fp8::e4m3_ocp, true), 0xfeU);
  EXPECT_EQ(float_to_fp8(1e6F, Fp8::e4m3_ocp, false), 0x7fU);
  EXPECT_EQ(float_to_fp8(-1e6F, Fp8::e5m2_ocp, false), 0xfcU);
  EXPECT_EQ(float_to_fp8(-0.0F, Fp8::e4m3_fnuz, true), 0x00U);
  EXPECT_EQ(float_to_fp8(-0.0F, Fp8::e4m3_ocp, true), 0x80U);
}

}  // namespace
}  // namespace tessera::cdna_emulator
