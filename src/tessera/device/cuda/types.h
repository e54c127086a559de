// Element types of CUDA kernels and their conversion to and from float, two neighbours at a time.
#pragma once

#include "tessera/device/cuda/abi.h"

namespace tessera::device {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

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
struct fp8 {  // E4M3: S.1111.111 is NaN, there is no infinity
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

// The bits of one element, and of two neighbours in memory, the first one lowest.
template <int kBytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using Word = u8;
  using Pair = u16;
};
template <>
struct BitsOf<2> {
  using Word = u16;
  using Pair = u32;
};
template <>
struct BitsOf<4> {
  using Word = u32;
  using Pair = u64;
};
template <class T>
using WordBits = typename BitsOf<static_cast<int>(sizeof(T))>::Word;
template <class T>
using PairBits = typename BitsOf<static_cast<int>(sizeof(T))>::Pair;

// ---- to float, exactly ----

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(int x) { return static_cast<float>(x); }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(u32{x.bits} << 16); }
__device__ __forceinline__ float to_float(fp16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
__device__ __forceinline__ float to_float(int8 x) { return static_cast<float>(x.value); }

// The element with these bits, in the low end of the word.
template <class T>
__device__ __forceinline__ float float_of_bits(u32 bits) {
  if constexpr (kSame<T, float>) {
    return __uint_as_float(bits);
  } else if constexpr (kSame<T, int>) {
    return static_cast<float>(static_cast<int>(bits));
  } else if constexpr (kSame<T, int8>) {
    return to_float(int8{static_cast<signed char>(bits)});
  } else {
    return to_float(T{static_cast<decltype(T::bits)>(bits)});
  }
}

// ---- from float: to nearest, ties to even; NaN stays NaN ----

// Saturates; NaN becomes 0.
__device__ __forceinline__ u32 round_to_int8(float x) {
  int whole;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(whole) : "f"(x));
  return static_cast<u32>(max(-128, min(127, whole))) & 0xffU;
}

// Two floats as neighbours of type T.
template <class T>
__device__ __forceinline__ PairBits<T> round_pair(float x, float y) {
  if constexpr (kSame<T, float>) {
    return u64{__float_as_uint(y)} << 32 | __float_as_uint(x);
  } else if constexpr (kSame<T, int8>) {
    return static_cast<u16>(round_to_int8(y) << 8 | round_to_int8(x));
  } else if constexpr (kSame<T, bf16>) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
  } else {
    static_assert(kSame<T, fp16>, "outputs are float, fp16, bf16, int8 or int");
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
  }
}

// ---- two elements of a row in memory ----

template <class T>
__device__ __forceinline__ u32 first_of(PairBits<T> pair) {
  return static_cast<u32>(pair);
}
template <class T>
__device__ __forceinline__ u32 second_of(PairBits<T> pair) {
  return static_cast<u32>(u64{pair} >> (8 * sizeof(T)));
}

// Loads and stores two elements of T: as one word when that is aligned, otherwise one by one. The
// instructions are predicated, so that no branch keeps the loads of many pairs from running at
// once.
template <int kBytes>
struct PairAccess;

template <>
struct PairAccess<1> {
  static __device__ __forceinline__ u16 load(const void* p, int both, int first, int second) {
    u16 pair;
    asm("{\n.reg .pred b, f, s;\n.reg .b16 x, y;\n"
        "setp.ne.b32 b, %2, 0;\nsetp.ne.b32 f, %3, 0;\nsetp.ne.b32 s, %4, 0;\n"
        "mov.b16 x, 0;\nmov.b16 y, 0;\n"
        "@f ld.global.b8 x, [%1];\n@s ld.global.b8 y, [%1 + 1];\n"
        "shl.b16 y, y, 8;\nor.b16 %0, x, y;\n@b ld.global.b16 %0, [%1];\n}"
        : "=h"(pair)
        : "l"(p), "r"(both), "r"(first), "r"(second));
    return pair;
  }
  static __device__ __forceinline__ void store(void* p, u16 pair, int both, int first, int second) {
    asm volatile(
        "{\n.reg .pred b, f, s;\n.reg .b16 y;\n"
        "setp.ne.b32 b, %2, 0;\nsetp.ne.b32 f, %3, 0;\nsetp.ne.b32 s, %4, 0;\n"
        "shr.u16 y, %1, 8;\n"
        "@b st.global.b16 [%0], %1;\n@f st.global.b8 [%0], %1;\n@s st.global.b8 [%0 + 1], y;\n"
        "}" ::"l"(p),
        "h"(pair), "r"(both), "r"(first), "r"(second)
        : "memory");
  }
};

template <>
struct PairAccess<2> {
  static __device__ __forceinline__ u32 load(const void* p, int both, int first, int second) {
    u32 pair;
    asm("{\n.reg .pred b, f, s;\n.reg .b16 x, y;\n"
        "setp.ne.b32 b, %2, 0;\nsetp.ne.b32 f, %3, 0;\nsetp.ne.b32 s, %4, 0;\n"
        "mov.b16 x, 0;\nmov.b16 y, 0;\n"
        "@f ld.global.b16 x, [%1];\n@s ld.global.b16 y, [%1 + 2];\n"
        "mov.b32 %0, {x, y};\n@b ld.global.b32 %0, [%1];\n}"
        : "=r"(pair)
        : "l"(p), "r"(both), "r"(first), "r"(second));
    return pair;
  }
  static __device__ __forceinline__ void store(void* p, u32 pair, int both, int first, int second) {
    asm volatile(
        "{\n.reg .pred b, f, s;\n.reg .b16 x, y;\n"
        "setp.ne.b32 b, %2, 0;\nsetp.ne.b32 f, %3, 0;\nsetp.ne.b32 s, %4, 0;\n"
        "mov.b32 {x, y}, %1;\n"
        "@b st.global.b32 [%0], %1;\n@f st.global.b16 [%0], x;\n@s st.global.b16 [%0 + 2], y;\n"
        "}" ::"l"(p),
        "r"(pair), "r"(both), "r"(first), "r"(second)
        : "memory");
  }
};

template <>
struct PairAccess<4> {
  static __device__ __forceinline__ u64 load(const void* p, int both, int first, int second) {
    u64 pair;
    asm("{\n.reg .pred b, f, s;\n.reg .b32 x, y;\n"
        "setp.ne.b32 b, %2, 0;\nsetp.ne.b32 f, %3, 0;\nsetp.ne.b32 s, %4, 0;\n"
        "mov.b32 x, 0;\nmov.b32 y, 0;\n"
        "@f ld.global.b32 x, [%1];\n@s ld.global.b32 y, [%1 + 4];\n"
        "@b ld.global.v2.b32 {x, y}, [%1];\nmov.b64 %0, {x, y};\n}"
        : "=l"(pair)
        : "l"(p), "r"(both), "r"(first), "r"(second));
    return pair;
  }
  static __device__ __forceinline__ void store(void* p, u64 pair, int both, int first, int second) {
    asm volatile(
        "{\n.reg .pred b, f, s;\n.reg .b32 x, y;\n"
        "setp.ne.b32 b, %2, 0;\nsetp.ne.b32 f, %3, 0;\nsetp.ne.b32 s, %4, 0;\n"
        "mov.b64 {x, y}, %1;\n"
        "@b st.global.v2.b32 [%0], {x, y};\n"
        "@f st.global.b32 [%0], x;\n@s st.global.b32 [%0 + 4], y;\n}" ::"l"(p),
        "l"(pair), "r"(both), "r"(first), "r"(second)
        : "memory");
  }
};

// Reads the first `count` of two elements (none, one or both), as one word when `whole` is set.
// kWhole means that both exist and `whole` is set.
template <class T, bool kWhole = false>
__device__ __forceinline__ PairBits<T> load_pair(const T* p, int count, bool whole) {
  if constexpr (kWhole) return *reinterpret_cast<const PairBits<T>*>(p);
  const bool both = whole && count >= 2;
  return PairAccess<static_cast<int>(sizeof(T))>::load(p, both, count >= 1 && !both,
                                                       count >= 2 && !both);
}

// Writes the first `count` of two elements.
template <class T, bool kWhole = false>
__device__ __forceinline__ void store_pair(T* p, PairBits<T> pair, int count, bool whole) {
  if constexpr (kWhole) {
    *reinterpret_cast<PairBits<T>*>(p) = pair;
  } else {
    const bool both = whole && count >= 2;
    PairAccess<static_cast<int>(sizeof(T))>::store(p, pair, both, count >= 1 && !both,
                                                   count >= 2 && !both);
  }
}

// Whether rows of T with this address and distance can be read two elements at a time.
template <class T>
__device__ __forceinline__ bool pairs_aligned(const T* p, i64 ld) {
  return (reinterpret_cast<u64>(p) & (2 * sizeof(T) - 1)) == 0 && (ld & 1) == 0;
}

// ---- pieces of 16 bytes ----

// The 16 bytes from byte `skip` on, out of 32 bytes.
__device__ __forceinline__ void shift_chunk(const u32 (&from)[8], u32 skip, u32 (&to)[4]) {
  u32 by_two[6];
  u32 by_one[5];
#pragma unroll
  for (int i = 0; i < 6; ++i) by_two[i] = (skip & 8) != 0 ? from[i + 2] : from[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) by_one[i] = (skip & 4) != 0 ? by_two[i + 1] : by_two[i];
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __funnelshift_r(by_one[i], by_one[i + 1], (skip & 3) * 8);
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
