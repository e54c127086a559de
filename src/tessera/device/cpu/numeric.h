// Element types and their conversion to and from vectors of float, without tables or branches.
#pragma once

#include "tessera/device/cpu/vector.h"

namespace tessera::device {

// Storage types: they hold bits only, so that each dtype is a C++ type of its own.
struct fp16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct fp8 {  // E4M3: S.1111.111 is NaN, there is no infinity
  u8 bits;
};
struct bf8 {  // E5M2
  u8 bits;
};
struct int8 {
  signed char value;
};

template <class T>
struct is_int8 {
  static constexpr bool value = false;
};
template <>
struct is_int8<int8> {
  static constexpr bool value = true;
};

// GCC converts element by element unless the code names the instruction.
#if defined(__AVX512F__) && !defined(__clang__)
typedef char c8v __attribute__((vector_size(kLanes)));
typedef short c16v __attribute__((vector_size(kLanes * 2)));
[[gnu::always_inline]] inline u32v widen(u16v v) {
  return bits_as<u32v>(__builtin_ia32_pmovzxwd512_mask(bits_as<c16v>(v), i32v{}, 0xffff));
}
[[gnu::always_inline]] inline u32v widen(u8v v) {
  return bits_as<u32v>(__builtin_ia32_pmovzxbd512_mask(bits_as<c8v>(v), i32v{}, 0xffff));
}
[[gnu::always_inline]] inline i32v widen(s8v v) {
  return __builtin_ia32_pmovsxbd512_mask(bits_as<c8v>(v), i32v{}, 0xffff);
}
[[gnu::always_inline]] inline u16v narrow(u32v v) {
  return bits_as<u16v>(__builtin_ia32_pmovdw512_mask(bits_as<i32v>(v), c16v{}, 0xffff));
}
[[gnu::always_inline]] inline s8v narrow(i32v v) {
  return bits_as<s8v>(__builtin_ia32_pmovdb512_mask(v, c8v{}, 0xffff));
}
#else
[[gnu::always_inline]] inline u32v widen(u16v v) { return __builtin_convertvector(v, u32v); }
[[gnu::always_inline]] inline u32v widen(u8v v) {
  typedef u16 half __attribute__((vector_size(kLanes * 2)));
  return __builtin_convertvector(__builtin_convertvector(v, half), u32v);
}
[[gnu::always_inline]] inline i32v widen(s8v v) {
  typedef short half __attribute__((vector_size(kLanes * 2)));
  return __builtin_convertvector(__builtin_convertvector(v, half), i32v);
}
[[gnu::always_inline]] inline u16v narrow(u32v v) { return __builtin_convertvector(v, u16v); }
[[gnu::always_inline]] inline s8v narrow(i32v v) {
  typedef short half __attribute__((vector_size(kLanes * 2)));
  return __builtin_convertvector(__builtin_convertvector(v, half), s8v);
}
#endif

// The float with the value of each 16-bit pattern. Exponent and fraction move into place and a
// multiplication by a power of two corrects the bias, which handles subnormals too; exponent 31
// becomes exponent 255.
[[gnu::always_inline]] inline u32v float_bits(fp16, u32v h) {
  const f32v scaled = bits_as<f32v>((h & 0x7fffU) << 13) * 0x1p112F;
  const u32v special = bits_as<u32v>((h & 0x7c00U) == 0x7c00U) & 0x7f800000U;
  return bits_as<u32v>(scaled) | special | ((h & 0x8000U) << 16);
}
[[gnu::always_inline]] inline u32v float_bits(bf16, u32v h) { return h << 16; }
[[gnu::always_inline]] inline u32v float_bits(bf8, u32v b) { return float_bits(fp16{}, b << 8); }
[[gnu::always_inline]] inline u32v float_bits(fp8, u32v b) {
  const f32v scaled = bits_as<f32v>((b & 0x7fU) << 20) * 0x1p120F;
  const u32v special = bits_as<u32v>((b & 0x7fU) == 0x7fU) & 0x7fc00000U;
  return bits_as<u32v>(scaled) | special | ((b & 0x80U) << 24);
}

// Rounds to nearest even. A NaN keeps its sign and becomes quiet.
[[gnu::always_inline]] inline u32v round_bits(bf16, f32v x) {
  const u32v bits = bits_as<u32v>(x);
  const u32v rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const u32v is_nan = bits_as<u32v>(x != x);
  return (rounded & ~is_nan) | (((bits >> 16) | 0x40U) & is_nan);
}

// Rounds to nearest even. Normal results round by an integer addition at the lost bits; subnormal
// ones by adding 0.5, whose ulp is the subnormal spacing 2^-24.
[[gnu::always_inline]] inline u32v round_bits(fp16, f32v x) {
  const u32v bits = bits_as<u32v>(x);
  const u32v magnitude = bits & 0x7fffffffU;
  const u32v normal = (magnitude - 0x38000000U + 0xfffU + ((bits >> 13) & 1U)) >> 13;
  const u32v subnormal = bits_as<u32v>(bits_as<f32v>(magnitude) + 0.5F) - 0x3f000000U;
  const u32v is_small = bits_as<u32v>(magnitude < 0x38800000U);
  const u32v is_large = bits_as<u32v>(magnitude >= 0x477ff000U);
  const u32v is_nan = bits_as<u32v>(magnitude > 0x7f800000U);
  u32v result = (subnormal & is_small) | (normal & ~is_small);
  result = (result & ~is_large) | (is_large & 0x7c00U) | (is_nan & 0x200U);
  return result | ((bits >> 16) & 0x8000U);
}

// Since GCC 13 and Clang 16, the bf16 instructions have vectors of a bf16 type as operands.
#if defined(__AVX512BF16__) && defined(__clang__) && __clang_major__ >= 16
typedef __bf16 bf16_lane;
#elif defined(__AVX512BF16__) && !defined(__clang__) && __GNUC__ >= 13
typedef __bf16 bf16_lane;
#else
typedef short bf16_lane;
#endif

// The 16-bit patterns of bf16 and fp16, by one instruction if the machine has it. The instruction
// for bf16 treats subnormal floats as zero, like the one that multiplies bf16.
[[gnu::always_inline]] inline u16v narrow_bits(bf16 type, f32v x) {
#if defined(__AVX512BF16__) && defined(__clang__)
  typedef bf16_lane half __attribute__((vector_size(kLanes * 2)));
  return bits_as<u16v>(__builtin_ia32_cvtneps2bf16_512_mask(x, half{}, 0xffff));
#elif defined(__AVX512BF16__)
  return bits_as<u16v>(__builtin_ia32_cvtneps2bf16_v16sf(x));
#else
  return narrow(round_bits(type, x));
#endif
}
[[gnu::always_inline]] inline u16v narrow_bits(fp16 type, f32v x) {
#if defined(__AVX512F__)
  typedef short s16v __attribute__((vector_size(kVectorBytes / 2)));
  return bits_as<u16v>(__builtin_ia32_vcvtps2ph512_mask(x, 0, s16v{}, 0xffff));
#elif defined(__F16C__) && defined(__AVX2__)
  return bits_as<u16v>(__builtin_ia32_vcvtps2ph256(x, 0));
#else
  return narrow(round_bits(type, x));
#endif
}

// kLanes elements of less than 32 bits as floats.
template <class T>
[[gnu::always_inline]] inline f32v whole_float(const T* p) {
  if constexpr (is_int8<T>::value) {
    return __builtin_convertvector(widen(load<s8v>(p)), f32v);
  } else if constexpr (sizeof(T) == 2) {
    return bits_as<f32v>(float_bits(T{}, widen(load<u16v>(p))));
  } else {
    return bits_as<f32v>(float_bits(T{}, widen(load<u8v>(p))));
  }
}

// `count` elements (1 to kLanes) as floats; reads nothing past them.
template <class T>
[[gnu::always_inline]] inline f32v load_float(const T* p, int count) {
  if constexpr (sizeof(T) == 4) {
    const f32v v = count == kLanes ? load<f32v>(p) : load_first<f32v>(p, count);
    if constexpr (__is_same(T, int)) return __builtin_convertvector(bits_as<i32v>(v), f32v);
    return v;
  } else if (count == kLanes) {
    return whole_float(p);
  } else {
    const u32v raw = load_bytes(p, count * static_cast<int>(sizeof(T)));
    return whole_float(reinterpret_cast<const T*>(&raw));
  }
}

// x rounded to the nearest integer, ties to even, for |x| < 2^22.
[[gnu::always_inline]] inline f32v round_even(f32v x) {
  const f32v magic = splat(0x1.8p23F);
  f32v shifted = x + magic;
  asm("" : "+x"(shifted));  // keeps the compiler from removing the addition
  return shifted - magic;
}

[[gnu::always_inline]] inline f32v min(f32v a, f32v b) { return select(a < b, a, b); }
[[gnu::always_inline]] inline f32v max(f32v a, f32v b) { return select(a > b, a, b); }

// Stores the first `count` lanes, converted to T.
template <class T>
[[gnu::always_inline]] inline void store_float(T* p, f32v x, int count) {
  if constexpr (__is_same(T, float)) {
    if (count == kLanes) return store(p, x);
    store_first(p, x, count);
  } else if constexpr (is_int8<T>::value) {
    const f32v finite = select(x == x, x, f32v{});
    const f32v rounded = round_even(max(min(finite, splat(127.0F)), splat(-128.0F)));
    const s8v bytes = narrow(__builtin_convertvector(rounded, i32v));
    if (count == kLanes) return store(p, bytes);
    store_bytes(p, bytes, count);
  } else {
    const u16v halves = narrow_bits(T{}, x);
    if (count == kLanes) return store(p, halves);
    store_bytes(p, halves, count * 2);
  }
}

}  // namespace tessera::device
