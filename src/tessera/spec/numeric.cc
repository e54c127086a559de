#include "tessera/spec/numeric.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/base/enums.h"

namespace tessera {
namespace {

// A binary floating-point format: sign, exponent field, mantissa field.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  Fp8Encoding encoding = Fp8Encoding::ocp;

  constexpr bool is_fnuz() const { return encoding == Fp8Encoding::fnuz; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - (is_fnuz() ? 0 : 1); }
  constexpr std::uint32_t sign() const { return 1U << (exponent_bits + mantissa_bits); }
  // Magnitudes above this are infinity or NaN. OCP's fp8 gives up a single pattern, the last.
  constexpr std::uint32_t largest() const {
    if (is_fnuz()) return sign() - 1;
    return has_infinity ? (((1U << exponent_bits) - 1) << mantissa_bits) - 1 : sign() - 2;
  }
  constexpr std::uint32_t nan() const {
    if (is_fnuz()) return sign();
    return has_infinity ? (largest() + 1) | (1U << (mantissa_bits - 1)) : sign() - 1;
  }
};

constexpr Format kFp32{8, 23, true};
constexpr Format kTf32{8, 10, true};
constexpr Format kFp16{5, 10, true};
constexpr Format kBf16{8, 7, true};
constexpr Format kFp8{4, 3, false};
constexpr Format kBf8{5, 2, true};
constexpr Format kFnuzFp8{4, 3, false, Fp8Encoding::fnuz};
constexpr Format kFnuzBf8{5, 2, false, Fp8Encoding::fnuz};

const Format& fp8_format(Fp8Encoding encoding) {
  return encoding == Fp8Encoding::fnuz ? kFnuzFp8 : kFp8;
}
const Format& bf8_format(Fp8Encoding encoding) {
  return encoding == Fp8Encoding::fnuz ? kFnuzBf8 : kBf8;
}

double decode(const Format& format, std::uint32_t bits) {
  const std::uint32_t magnitude = bits & (format.sign() - 1);
  const double sign = (bits & format.sign()) != 0 ? -1.0 : 1.0;
  if (format.is_fnuz() && bits == format.nan()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude > format.largest()) {
    const bool infinite = format.has_infinity && magnitude == format.largest() + 1;
    return std::copysign(infinite ? std::numeric_limits<double>::infinity()
                                  : std::numeric_limits<double>::quiet_NaN(),
                         sign);
  }
  const std::uint32_t field = magnitude >> format.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1U << format.mantissa_bits) - 1);
  const std::uint32_t hidden = field == 0 ? 0 : 1U << format.mantissa_bits;
  const int exponent = static_cast<int>(field == 0 ? 1 : field) - format.bias();
  return sign * std::ldexp(hidden + mantissa, exponent - format.mantissa_bits);
}

// Consecutive patterns are consecutive values, so rounding the mantissa as an integer carries into
// the exponent by itself, also from the subnormals and past the largest finite value.
std::uint32_t magnitude_of(const Format& format, double value) {
  const int lowest = 1 - format.bias();
  const int exponent = std::max(std::ilogb(value), lowest);
  if (exponent > format.bias() + 1) return format.largest() + 1;
  const double steps =
      std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  return (static_cast<std::uint32_t>(exponent - lowest) << format.mantissa_bits) +
         static_cast<std::uint32_t>(steps);
}

std::uint32_t encode(const Format& format, double value) {
  const std::uint32_t sign = std::signbit(value) ? format.sign() : 0;
  const std::uint32_t nan = format.is_fnuz() ? format.nan() : sign | format.nan();
  if (std::isnan(value)) return nan;
  const std::uint32_t magnitude = value == 0          ? 0
                                  : std::isinf(value) ? format.largest() + 1
                                                      : magnitude_of(format, value);
  if (format.is_fnuz() && magnitude == 0) return 0;
  if (magnitude <= format.largest()) return sign | magnitude;
  return format.has_infinity ? sign | (format.largest() + 1) : nan;
}

template <class T>
T read(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <class T>
void write(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

template <class T>
T saturated(double value) {
  if (std::isnan(value)) return 0;
  if (value <= std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
  if (value >= std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
  return static_cast<T>(std::nearbyint(value));
}

[[noreturn]] void refuse_dtype(DType dtype) {
  throw Error(ErrorCode::invalid_argument, number_reason("dtype", static_cast<std::int64_t>(dtype),
                                                         static_cast<std::int64_t>(DType::int32)));
}

}  // namespace

double load_element(DType dtype, const void* data, std::int64_t index, Fp8Encoding fp8) {
  switch (dtype) {
    case DType::fp32:
    case DType::tf32:
      return read<float>(data, index);
    case DType::fp16:
      return decode(kFp16, read<std::uint16_t>(data, index));
    case DType::bf16:
      return decode(kBf16, read<std::uint16_t>(data, index));
    case DType::fp8:
      return decode(fp8_format(fp8), read<std::uint8_t>(data, index));
    case DType::bf8:
      return decode(bf8_format(fp8), read<std::uint8_t>(data, index));
    case DType::int8:
      return read<std::int8_t>(data, index);
    case DType::int32:
      return read<std::int32_t>(data, index);
  }
  refuse_dtype(dtype);
}

void store_element(DType dtype, void* data, std::int64_t index, double value, Fp8Encoding fp8) {
  switch (dtype) {
    case DType::fp32:
      return write(data, index, encode(kFp32, value));
    case DType::tf32:
      // The 13 low bits of fp32's mantissa, which tf32 does not have, are 0.
      return write(data, index, encode(kTf32, value) << 13);
    case DType::fp16:
      return write(data, index, static_cast<std::uint16_t>(encode(kFp16, value)));
    case DType::bf16:
      return write(data, index, static_cast<std::uint16_t>(encode(kBf16, value)));
    case DType::fp8:
      return write(data, index, static_cast<std::uint8_t>(encode(fp8_format(fp8), value)));
    case DType::bf8:
      return write(data, index, static_cast<std::uint8_t>(encode(bf8_format(fp8), value)));
    case DType::int8:
      return write(data, index, saturated<std::int8_t>(value));
    case DType::int32:
      return write(data, index, saturated<std::int32_t>(value));
  }
  refuse_dtype(dtype);
}

}  // namespace tessera
