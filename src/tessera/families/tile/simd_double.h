// Arithmetic that compilers can do in vectors, with the same bits on every machine. It has no calls
// and no branches, so that a loop over candidates becomes vector instructions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace tessera::tile {

// How many candidates are computed at a time. Loops of this fixed length become vector
// instructions. A lane never depends on its neighbours.
inline constexpr std::size_t kLanes = 120;
using Lane = double[kLanes];

inline double flag(bool value) { return value ? 1.0 : 0.0; }
inline double pick(double condition, double yes, double no) { return condition != 0 ? yes : no; }

// The nearest whole number below and above x >= 0: adding 2^52 leaves no bits for a fraction. From
// 2^52 on the result may differ from x by a last bit.
inline constexpr double kWholeNumbers = 0x1p52;
inline double floor_of(double x) {
  const double near = (x + kWholeNumbers) - kWholeNumbers;
  return near - flag(near > x);
}
inline double ceil_of(double x) {
  const double near = (x + kWholeNumbers) - kWholeNumbers;
  return near + flag(near < x);
}
inline double at_least(double x, double least) { return x < least ? least : x; }
inline double at_most(double x, double most) { return x > most ? most : x; }

// log2 of a positive normal number, exact for powers of 2 and else within 1e-13: the exponent, and
// 2 / ln 2 * artanh((f - 1) / (f + 1)) for the fraction f between 1/sqrt(2) and sqrt(2).
inline double log2_of(double x) {
  constexpr double kScale = 2.8853900817779268;  // 2 / ln 2
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const double fraction =
      std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  const double exponent =
      std::bit_cast<double>((bits >> 52) | 0x4330000000000000ULL) - (kWholeNumbers + 1023);
  const double upper = flag(fraction > 1.4142135623730951);
  const double f = fraction - 0.5 * upper * fraction;
  const double s = (f - 1) / (f + 1);
  const double z = s * s;
  double sum = 1.0 / 15;
  for (const double term : {1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0}) {
    sum = sum * z + term;
  }
  return exponent + upper + kScale * s * sum;
}

}  // namespace tessera::tile
