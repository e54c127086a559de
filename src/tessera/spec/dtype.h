// Element types and what is known about each of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)
namespace tessera {

// fp8 is E4M3 and bf8 is E5M2, see Fp8Encoding. tf32 is stored as fp32.
enum class DType : std::uint8_t { fp32, tf32, fp16, bf16, fp8, bf8, int8, int32 };

// What the codes of fp8 and bf8 stand for. Nearly all machines have ocp: fp8 has no infinity and
// NaN = S.1111.111, bf8 has both as fp16 has. With fnuz the exponent counts one more, so that
// nearly every code stands for half as much; there is no infinity and no negative zero, whose code
// is the only NaN.
enum class Fp8Encoding : std::uint8_t { ocp, fnuz };
std::string_view to_string(Fp8Encoding encoding);

std::span<const DType> all_dtypes();
std::string_view to_string(DType dtype);

// Throws Error{parse_error} naming the nearest dtype.
DType parse_dtype(std::string_view text);

// Bytes of one stored element. Inline: each call asks for each operand's. Throws
// Error{invalid_argument} for a number of no type.
inline constexpr std::array<std::int8_t, 8> kDTypeBytes = {4, 4, 2, 2, 1, 1, 1, 4};
[[noreturn]] void refuse_dtype_number(DType dtype);
inline int size_of(DType dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  if (number >= kDTypeBytes.size()) refuse_dtype_number(dtype);
  return kDTypeBytes[number];
}

bool is_integer(DType dtype);

// The default accumulator for products of this type: int32 for int8, otherwise fp32.
DType default_accumulator(DType operand);

// The default output: int32 for int8, fp16 for fp8 and bf8, otherwise the operand's type.
DType default_output(DType operand);

// The distance from 1 to the next larger value (2^-23 for fp32, ...); 0 for integers.
double epsilon(DType dtype);

// The largest finite magnitude.
double max_finite(DType dtype);

// The smallest positive normal magnitude; 1 for integers.
double min_normal(DType dtype);

}  // namespace tessera
#pragma GCC visibility pop
