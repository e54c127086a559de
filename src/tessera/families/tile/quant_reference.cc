#include "tessera/families/tile/quant_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::tile {
namespace {

constexpr double kHalfUlp = 0x1p-24;     // of fp32
constexpr double kLargestFnuz = 240;     // of fp8
constexpr double kLeastMost = 0x1p-100;  // below it the scale is 1
constexpr double kAnyScale = std::numeric_limits<double>::infinity();

double magnitude_of(const Bounded& y) { return std::isnan(y.value) ? 0 : std::abs(y.value); }

}  // namespace

double largest_of(DType dtype, Fp8Encoding fp8) {
  const bool is_fnuz = dtype == DType::fp8 && fp8 == Fp8Encoding::fnuz;
  return is_fnuz ? kLargestFnuz : max_finite(dtype);
}

Bounded scale_of(std::span<const Bounded> elements, double largest) {
  double most = 0;
  double error = 0;
  for (const Bounded& y : elements) {
    most = std::max(most, magnitude_of(y));
    error = std::max(error, y.error);
  }
  if (!(error < kAnyScale) || std::abs(most - kLeastMost) <= error) return {1, kAnyScale};
  if (most < kLeastMost) return {1, 0};
  return {most / largest, error / largest + 4 * kHalfUlp * most / largest};
}

Bounded quantised(const Bounded& y, const Bounded& scale, double largest) {
  if (scale.error == kAnyScale || y.error == kAnyScale) return {0, kAnyScale};
  const double share =
      scale.value != 0 && std::isfinite(scale.value) ? scale.error / std::abs(scale.value) : 0;
  const double value = y.value / scale.value;
  const double error =
      y.error / std::abs(scale.value) * (1 + share) + std::abs(value) * (share + 8 * kHalfUlp);
  const bool is_number = !std::isnan(value);
  return {is_number ? std::clamp(value, -largest, largest) : value,
          std::isfinite(value) ? error : 0};
}

}  // namespace tessera::tile
