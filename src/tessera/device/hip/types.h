// Element types of HIP kernels, and their conversion to and from float. No header of HIP is needed:
// the words that it would define are here.
#pragma once

#include "tessera/device/integers.h"

#ifndef __device__
#define __device__ __attribute__((device))
#endif
#ifndef __shared__
#define __shared__ __attribute__((shared))
#endif
#ifndef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#endif

namespace tessera::device {

// Lanes of a wave: RDNA's kernels are compiled for waves of 32.
#if defined(__GFX11__) || defined(__GFX12__)
inline constexpr int kLanes = 32;
#else
inline constexpr int kLanes = 64;
#endif

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

template <class T, int kCount>
using Vec [[gnu::may_alias]] = T __attribute__((ext_vector_type(kCount)));
using Chunk = Vec<u32, 4>;  // 16 bytes of a line of an operand
using Float4 = Vec<float, 4>;

template <class To, class From>
__device__ __forceinline__ To bits(From from) {
  return __builtin_bit_cast(To, from);
}

// Storage types: they hold bits only, so that each dtype is a C++ type of its own. float and int
// are themselves.
struct tf32 {
  u32 bits;  // a float's bits; multiplication uses the upper 19
};
struct fp16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
// Floats of 8 bits: without infinity and negative zero on gfx942 (FNUZ), as the Open Compute
// Project defines them on gfx950 and elsewhere.
struct fp8 {  // E4M3
  u8 bits;
};
struct bf8 {  // E5M2
  u8 bits;
};
struct int8 {
  signed char value;
};

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;

template <bool kFirst, class First, class Second>
struct If {
  using Type = First;
};
template <class First, class Second>
struct If<false, First, Second> {
  using Type = Second;
};

template <int kBytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using Word = u8;
};
template <>
struct BitsOf<2> {
  using Word = u16;
};
template <>
struct BitsOf<4> {
  using Word = u32;
};
template <class T>
using WordBits = typename BitsOf<static_cast<int>(sizeof(T))>::Word;

// ---- to float, exactly ----

// The 8-bit float with these bits, of an exponent of kExponent bits. With FNUZ the bias is one
// higher and 0x80 is the only NaN.
template <int kExponent>
__device__ __forceinline__ float eight_bits_to_float(u32 x) {
#if defined(__gfx942__)
  constexpr bool kFnuz = true;
#else
  constexpr bool kFnuz = false;
#endif
  constexpr int kMantissa = 7 - kExponent;
  constexpr int kBias = (1 << (kExponent - 1)) - (kFnuz ? 0 : 1);
  const u32 rest = x & 0x7fU;
  const u32 sign = (x & 0x80U) << 24;
  // The exponent of a float, or of a subnormal one, is put right by a multiplication.
  const float scale = bits<float>(static_cast<u32>(254 - kBias) << 23);
  const float magnitude = bits<float>(rest << (23 - kMantissa)) * scale;
  float y = bits<float>(bits<u32>(magnitude) | sign);
  if constexpr (kFnuz) {
    if (x == 0x80U) y = bits<float>(0x7fc00000U);
  } else if constexpr (kExponent == 4) {
    if (rest == 0x7fU) y = bits<float>(sign | 0x7fc00000U);
  } else {
    if (rest >= 0x7cU) y = bits<float>(sign | (rest == 0x7cU ? 0x7f800000U : 0x7fc00000U));
  }
  return y;
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(int x) { return static_cast<float>(x); }
__device__ __forceinline__ float to_float(tf32 x) { return bits<float>(x.bits); }
__device__ __forceinline__ float to_float(bf16 x) { return bits<float>(u32{x.bits} << 16); }
__device__ __forceinline__ float to_float(fp16 x) { return bits<_Float16>(x.bits); }
__device__ __forceinline__ float to_float(int8 x) { return static_cast<float>(x.value); }
__device__ __forceinline__ float to_float(fp8 x) { return eight_bits_to_float<4>(x.bits); }
__device__ __forceinline__ float to_float(bf8 x) { return eight_bits_to_float<5>(x.bits); }

// ---- from float: to nearest, ties to even; NaN stays NaN ----

__device__ __forceinline__ u32 round_to_bf16(float x) {
#if __clang_major__ >= 18
  return bits<u16>(static_cast<__bf16>(x));
#else
  const u32 b = bits<u32>(x);
  return x != x ? b >> 16 | 0x40U : (b + 0x7fffU + (b >> 16 & 1U)) >> 16;
#endif
}

// Saturates; NaN becomes 0.
__device__ __forceinline__ u32 round_to_int8(float x) {
  x = x < -128.0F ? -128.0F : x;
  x = x > 127.0F ? 127.0F : x;
  x = x == x ? x : 0.0F;
  return static_cast<u32>(static_cast<int>(__builtin_rintf(x))) & 0xffU;
}

// The bits of the element, in the low end of the word.
template <class T>
__device__ __forceinline__ u32 round_to(float x) {
  if constexpr (kSame<T, float>) {
    return bits<u32>(x);
  } else if constexpr (kSame<T, int8>) {
    return round_to_int8(x);
  } else if constexpr (kSame<T, bf16>) {
    return round_to_bf16(x);
  } else {
    static_assert(kSame<T, fp16>, "outputs are float, fp16, bf16, int8 or int");
    return bits<u16>(static_cast<_Float16>(x));
  }
}

// The element with these bits, in the low end of the word.
template <class T>
__device__ __forceinline__ float float_of_bits(u32 word) {
  return to_float(bits<T>(static_cast<WordBits<T>>(word)));
}

// ---- four neighbours of a row ----

template <class T>
using Quad = Vec<u32, static_cast<int>(sizeof(T))>;  // their bits, the first one lowest

template <class T>
__device__ __forceinline__ u32 bits_of(const Quad<T>& quad, int index) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  return quad[index / kPerWord] >> (index % kPerWord * 8 * static_cast<int>(sizeof(T)));
}
template <class T>
__device__ __forceinline__ Float4 floats_of(const Quad<T>& quad) {
  Float4 x;
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = float_of_bits<T>(bits_of<T>(quad, i));
  return x;
}
template <class T>
__device__ __forceinline__ Quad<T> round_quad(const Float4& x) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  Quad<T> quad;
#pragma unroll
  for (int word = 0; word < static_cast<int>(sizeof(T)); ++word) {
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      all |= round_to<T>(x[word * kPerWord + i]) << (i * 8 * static_cast<int>(sizeof(T)));
    }
    quad[word] = all;
  }
  return quad;
}

// The first `count` of four elements, the others zero; as one word when `whole` is set.
template <class T>
__device__ __forceinline__ Quad<T> load_quad(const T* p, int count, bool whole) {
  if (whole && count >= 4) return *reinterpret_cast<const Quad<T>*>(p);
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  Quad<T> quad = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i >= count) continue;
    const u32 word = bits<WordBits<T>>(p[i]);
    quad[i / kPerWord] |= word << (i % kPerWord * 8 * static_cast<int>(sizeof(T)));
  }
  return quad;
}
template <class T>
__device__ __forceinline__ void store_quad(T* p, const Quad<T>& quad, int count, bool whole) {
  if (whole && count >= 4) {
    *reinterpret_cast<Quad<T>*>(p) = quad;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) p[i] = bits<T>(static_cast<WordBits<T>>(bits_of<T>(quad, i)));
  }
}
// Whether rows of T with this address and distance can be accessed four elements at a time.
template <class T>
__device__ __forceinline__ bool quads_aligned(const T* p, i64 ld) {
  return (bits<u64>(p) & (4 * sizeof(T) - 1)) == 0 && (ld & 3) == 0;
}

// ---- batches ----

// The first element of a batch's matrix. With in_array, the operand is an array of pointers to the
// matrices.
template <class T>
__device__ __forceinline__ const T* matrix_of(const void* operand, i64 batch_stride, i64 batch,
                                              bool in_array) {
  if (in_array) return static_cast<const T* const*>(operand)[batch];
  return static_cast<const T*>(operand) + batch * batch_stride;
}

}  // namespace tessera::device
