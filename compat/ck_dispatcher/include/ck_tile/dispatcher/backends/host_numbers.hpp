// Element types of the host, under the original's names, for programs without the headers of CK
// Tile's core. The bits are those of the kernels.
#pragma once

#ifndef CK_TILE_HOST_DEVICE  // CK Tile's core has its own

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ck_tile {

namespace host_numbers {

// The bits of a float that is rounded to a format, to nearest and then to even. `is_finite`: the
// format has no infinity, and larger numbers become the largest or not-a-number.
template <int kExponent, int kMantissa, bool is_finite>
std::uint32_t rounded_bits(float value) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr std::uint32_t kTop = (1U << kExponent) - 1;
  const std::uint32_t sign = std::signbit(value) ? 1U << (kExponent + kMantissa) : 0;
  const std::uint32_t not_a_number =
      sign | (kTop << kMantissa) | (is_finite ? (1U << kMantissa) - 1 : 1U << (kMantissa - 1));
  if (std::isnan(value)) return not_a_number;
  const double size = std::fabs(static_cast<double>(value));
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int lowest = 1 - kBias;
  const int power = (exponent - 1 < lowest ? lowest : exponent - 1) - kMantissa;
  double steps = std::isinf(size) ? 0 : std::nearbyint(std::ldexp(size, -power));
  std::int64_t bits = static_cast<std::int64_t>(steps);
  bits += static_cast<std::int64_t>(power + kMantissa - lowest) << kMantissa;
  const std::int64_t largest =
      (static_cast<std::int64_t>(kTop) << kMantissa) + (is_finite ? (1 << kMantissa) - 2 : -1);
  if (std::isinf(size) || bits > largest) {
    return is_finite ? sign | static_cast<std::uint32_t>(largest) : sign | (kTop << kMantissa);
  }
  return sign | static_cast<std::uint32_t>(bits);
}

template <int kExponent, int kMantissa, bool is_finite>
float value_of_bits(std::uint32_t bits) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr std::uint32_t kTop = (1U << kExponent) - 1;
  const std::uint32_t mantissa = bits & ((1U << kMantissa) - 1);
  const std::uint32_t exponent = (bits >> kMantissa) & kTop;
  const float sign = (bits >> (kExponent + kMantissa)) != 0 ? -1.0F : 1.0F;
  if (!is_finite && exponent == kTop) return mantissa == 0 ? sign * INFINITY : NAN;
  if (is_finite && exponent == kTop && mantissa == (1U << kMantissa) - 1) return NAN;
  const int power = (exponent == 0 ? 1 : static_cast<int>(exponent)) - kBias - kMantissa;
  const std::uint32_t whole = exponent == 0 ? mantissa : mantissa + (1U << kMantissa);
  return sign * std::ldexp(static_cast<float>(whole), power);
}

template <class Bits, int kExponent, int kMantissa, bool is_finite>
class Number {
 public:
  Number() = default;
  template <class T>
  Number(T value)  // not explicit, as the original's are not
      : bits_(static_cast<Bits>(
            rounded_bits<kExponent, kMantissa, is_finite>(static_cast<float>(value)))) {}
  operator float() const { return value_of_bits<kExponent, kMantissa, is_finite>(bits_); }

 private:
  Bits bits_ = 0;
};

}  // namespace host_numbers

using half_t = host_numbers::Number<std::uint16_t, 5, 10, false>;
using fp16_t = half_t;
using bf16_t = host_numbers::Number<std::uint16_t, 8, 7, false>;
using bfloat16_t = bf16_t;
using fp8_t = host_numbers::Number<std::uint8_t, 4, 3, true>;   // E4M3
using bf8_t = host_numbers::Number<std::uint8_t, 5, 2, false>;  // E5M2
using fp32_t = float;
using index_t = std::int32_t;
using long_index_t = std::int64_t;

template <class To, class From>
To type_convert(From value) {
  return static_cast<To>(static_cast<float>(value));
}

}  // namespace ck_tile

#endif
