#include "numbers.h"

#include <array>
#include <cmath>

namespace tessera::cdna_emulator {

namespace {

struct Shape {
  int exponent_bits;
  bool fnuz;
  int mantissa_bits() const { return 7 - exponent_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - (fnuz ? 0 : 1); }
};

Shape shape_of(Fp8 encoding) {
  return {encoding == Fp8::e4m3_fnuz || encoding == Fp8::e4m3_ocp ? 4 : 5,
          encoding == Fp8::e4m3_fnuz || encoding == Fp8::e5m2_fnuz};
}

float decode(u32 byte, Shape shape) {
  const int m_bits = shape.mantissa_bits();
  const int e = static_cast<int>(byte >> m_bits) & ((1 << shape.exponent_bits) - 1);
  const int m = static_cast<int>(byte) & ((1 << m_bits) - 1);
  const float sign = (byte & 0x80U) != 0 ? -1.0F : 1.0F;
  if (shape.fnuz && byte == 0x80U) return NAN;
  if (!shape.fnuz && shape.exponent_bits == 4 && (byte & 0x7fU) == 0x7fU) return NAN;
  if (!shape.fnuz && shape.exponent_bits == 5 && e == 31) return m == 0 ? sign * INFINITY : NAN;
  const int whole = e == 0 ? m : m + (1 << m_bits);
  return sign * std::ldexp(static_cast<float>(whole), (e == 0 ? 1 : e) - shape.bias() - m_bits);
}

// A value with so many bits of fraction, and none below the last bit of the least exponent.
double round_to(double value, int fraction_bits, int least_exponent) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - 1, least_exponent) - fraction_bits;
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

// The bits of a half that holds `value` exactly, or of infinity.
u32 exact_half(double value) {
  const u32 sign = std::signbit(value) ? 0x8000U : 0U;
  const double size = std::fabs(value);
  if (size >= 65536.0) return sign | 0x7c00U;
  if (size < 0x1p-14) return sign | static_cast<u32>(size * 0x1p24);
  int exponent = 0;
  const double fraction = std::frexp(size, &exponent);  // in [0.5, 1)
  return sign | (static_cast<u32>(exponent + 14) << 10) |
         (static_cast<u32>(fraction * 2048.0) & 0x3ffU);
}

}  // namespace

u32 double_to_half(double value) {
  if (value != value) return 0x7e00U;
  if (std::fabs(value) > 1e6) return exact_half(std::copysign(65536.0, value));
  return exact_half(round_to(value, 10, -14));
}

u32 to_unsigned(float value) {
  if (!(value > 0)) return 0;
  return value >= 4294967296.0F ? ~0U : static_cast<u32>(value);
}
u32 to_signed(float value) {
  if (value != value) return 0;
  if (value >= 2147483648.0F) return 0x7fffffffU;
  return value < -2147483648.0F ? 0x80000000U : static_cast<u32>(static_cast<i32>(value));
}

u32 float_to_half(float value) {
  const u32 bits = as_bits(value);
  const u32 sign = bits >> 16 & 0x8000U;
  const u32 size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return sign | 0x7e00U | (size >> 13 & 0x1ffU);
  if (size >= 0x477ff000U) return sign | 0x7c00U;  // 65520 and more
  if (size < 0x38800000U) {                        // below the least normal half
    const float shifted = as_float(size) + 0.5F;   // whose unit is the small halves'
    return sign | (as_bits(shifted) - 0x3f000000U);
  }
  return sign | ((size - 0x38000000U + 0xfffU + (size >> 13 & 1U)) >> 13);
}

u32 float_to_half_truncated(float value) {
  const u32 half = float_to_half(value);
  if (value != value || std::isinf(value)) return half;
  if (std::fabs(half_to_float(half)) > std::fabs(value)) return half - 1;
  return half;
}

const float* fp8_values(Fp8 encoding) {
  using Values = std::array<std::array<float, 256>, kFp8Encodings>;
  static const Values values = [] {
    Values made{};
    for (int e = 0; e < kFp8Encodings; ++e) {
      for (u32 byte = 0; byte < 256; ++byte) {
        made[static_cast<std::size_t>(e)][byte] = decode(byte, shape_of(static_cast<Fp8>(e)));
      }
    }
    return made;
  }();
  return values[static_cast<std::size_t>(encoding)].data();
}

u32 float_to_fp8(float value, Fp8 encoding, bool saturate) {
  const Shape shape = shape_of(encoding);
  const u32 not_a_number = shape.fnuz ? 0x80U : 0x7fU;
  const u32 largest = shape.fnuz ? 0x7fU : shape.exponent_bits == 4 ? 0x7eU : 0x7bU;
  const u32 infinite = !shape.fnuz && shape.exponent_bits == 5 ? 0x7cU : not_a_number;
  const u32 sign = std::signbit(value) ? 0x80U : 0U;
  if (value != value) return not_a_number;
  const int m_bits = shape.mantissa_bits();
  const double size =
      std::isinf(value) ? INFINITY : std::fabs(round_to(value, m_bits, 1 - shape.bias()));
  if (size > static_cast<double>(decode(largest, shape))) {
    const bool lasting = std::isinf(value) && !shape.fnuz && shape.exponent_bits == 5;
    if (saturate && !lasting) return sign | largest;
    return infinite == 0x80U ? infinite : sign | infinite;
  }
  if (size == 0) return shape.fnuz ? 0U : sign;  // FNUZ has no negative zero
  int exponent = 0;
  const double fraction = std::frexp(size, &exponent);
  const int e = exponent - 1 + shape.bias();
  u32 byte = 0;
  if (e >= 1) {
    byte = static_cast<u32>(e) << m_bits |
           (static_cast<u32>(std::ldexp(fraction, m_bits + 1)) & ((1U << m_bits) - 1U));
  } else {
    byte = static_cast<u32>(std::ldexp(size, m_bits - 1 + shape.bias()));
  }
  return sign | byte;
}

}  // namespace tessera::cdna_emulator
