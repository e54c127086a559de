// Numbers as the emulated machine holds them: bits of floats, halves, bfloats and 8-bit floats.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::cdna_emulator {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

inline float as_float(u32 bits) { return std::bit_cast<float>(bits); }
inline u32 as_bits(float value) { return std::bit_cast<u32>(value); }
inline double as_double(u64 bits) { return std::bit_cast<double>(bits); }
inline u64 as_bits(double value) { return std::bit_cast<u64>(value); }
inline i32 as_signed(u32 bits) { return static_cast<i32>(bits); }

// Toward zero, and to the nearest number that there is; NaN becomes 0.
u32 to_unsigned(float value);
u32 to_signed(float value);

// Exact; without branches, so that loops over lanes become vector code.
inline float half_to_float(u32 half) {
  const float magnitude = as_float((half & 0x7fffU) << 13) * 0x1p112F;
  const u32 special = (half & 0x7c00U) == 0x7c00U ? 0x7f800000U : 0U;
  return as_float(as_bits(magnitude) | special | (half & 0x8000U) << 16);
}
// To the nearest, ties to even.
u32 float_to_half(float value);
u32 double_to_half(double value);
// Toward zero.
u32 float_to_half_truncated(float value);

inline float bf16_to_float(u32 bits) { return as_float(bits << 16); }
inline u32 float_to_bf16(float value) {
  const u32 b = as_bits(value);
  const u32 rounded = (b + 0x7fffU + (b >> 16 & 1U)) >> 16;
  return value != value ? b >> 16 | 0x40U : rounded;
}

// The encodings of 8-bit floats. FNUZ (gfx942) has one more in the exponent's bias, and 0x80 is its
// only NaN; OCP (gfx950) has a negative zero.
enum class Fp8 : u8 { e4m3_fnuz, e5m2_fnuz, e4m3_ocp, e5m2_ocp };
inline constexpr int kFp8Encodings = 4;
// The 256 values of an encoding.
const float* fp8_values(Fp8 encoding);
// To the nearest, ties to even. What is too large becomes the largest value if `saturate`, else
// NaN, or infinity where the encoding has one.
u32 float_to_fp8(float value, Fp8 encoding, bool saturate);

// The first 10 bits of the fraction, as xf32 MFMAs read their operands.
inline float to_xf32(float value) { return as_float(as_bits(value) & 0xffffe000U); }

}  // namespace tessera::cdna_emulator
