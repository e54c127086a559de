// Words: the 32-bit units that packed operands are made of, and the instruction that multiplies two
// vectors of them. One word holds kPerWord consecutive elements of k.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// Each Math defines its accumulator vector, how many elements of k a word holds, and mac(acc, a,
// b): acc[lane] + the sum of a[lane] * b[lane] over the word.

// fp32 fused multiply-add; every floating type converts to it.
struct MathF32 {
  using Acc = f32v;
  static constexpr int kPerWord = 1;
  static constexpr bool kBiased = false;
  [[gnu::always_inline]] static Acc mac(Acc acc, u32v a, u32v b) {
    return bits_as<f32v>(a) * bits_as<f32v>(b) + acc;
  }
};

// int32 multiply-add on widened int8, for machines without a better instruction.
struct MathI32 {
  using Acc = i32v;
  static constexpr int kPerWord = 1;
  static constexpr bool kBiased = false;
  [[gnu::always_inline]] static Acc mac(Acc acc, u32v a, u32v b) {
    return acc + bits_as<i32v>(a) * bits_as<i32v>(b);
  }
};

#if defined(__AVX2__)
// Pairs of int16 (widened int8), summed into int32: exact.
struct MathI16 {
  using Acc = i32v;
  static constexpr int kPerWord = 2;
  static constexpr bool kBiased = false;
  [[gnu::always_inline]] static Acc mac(Acc acc, u32v a, u32v b) {
    typedef short i16v __attribute__((vector_size(kVectorBytes)));
    const i16v x = bits_as<i16v>(a);
    const i16v y = bits_as<i16v>(b);
#if defined(__AVX512BW__) && defined(__clang__)
    return acc + bits_as<i32v>(__builtin_ia32_pmaddwd512(x, y));
#elif defined(__AVX512BW__)
    return acc + bits_as<i32v>(__builtin_ia32_pmaddwd512_mask(x, y, i32v{}, 0xffff));
#else
    return acc + bits_as<i32v>(__builtin_ia32_pmaddwd256(x, y));
#endif
  }
};
#endif

#if defined(__AVX512BF16__)
// Pairs of bf16, summed into fp32; the instruction treats subnormals as zero.
struct MathBf16 {
  using Acc = f32v;
  static constexpr int kPerWord = 2;
  static constexpr bool kBiased = false;
  [[gnu::always_inline]] static Acc mac(Acc acc, u32v a, u32v b) {
#if defined(__clang__) && __clang_major__ < 16
    return __builtin_ia32_dpbf16ps_512(acc, bits_as<i32v>(a), bits_as<i32v>(b));
#else
    typedef bf16_lane bf16v __attribute__((vector_size(kVectorBytes)));
#if defined(__clang__)
    return __builtin_ia32_dpbf16ps_512(acc, bits_as<bf16v>(a), bits_as<bf16v>(b));
#else
    return __builtin_ia32_dpbf16ps_v16sf(acc, bits_as<bf16v>(a), bits_as<bf16v>(b));
#endif
#endif
  }
};
#endif

#if defined(__AVX512VNNI__)
// Fours of int8. The instruction takes an unsigned a, so 128 is added to a, and accumulators start
// from -128 * sum(b).
struct MathVnni {
  using Acc = i32v;
  static constexpr int kPerWord = 4;
  static constexpr bool kBiased = true;
  [[gnu::always_inline]] static Acc mac(Acc acc, u32v a, u32v b) {
#if defined(__clang__)
    return __builtin_ia32_vpdpbusd512(acc, bits_as<i32v>(a), bits_as<i32v>(b));
#else
    return __builtin_ia32_vpdpbusd_v16si(acc, bits_as<i32v>(a), bits_as<i32v>(b));
#endif
  }
};

// The same for an A that is read in place. B is packed and takes the 128, so that A's words need no
// change. Accumulators start from -128 * sum(a).
struct MathVnniB {
  using Acc = i32v;
  static constexpr int kPerWord = 4;
  static constexpr bool kBiased = false;
  [[gnu::always_inline]] static Acc mac(Acc acc, u32v a, u32v b) {
    return MathVnni::mac(acc, b, a);
  }
};
#endif

// Whether panels of B are biased.
template <class Math>
inline constexpr bool kBiasesB = false;
#if defined(__AVX512VNNI__)
template <>
inline constexpr bool kBiasesB<MathVnniB> = true;
#endif

// A word of an operand in place, at any address.
[[gnu::always_inline]] inline u32 load_word(const void* p) {
  u32 word;
  __builtin_memcpy(&word, p, sizeof(word));
  return word;
}

// One element of T, already widened to 32 bits, in the form that it has in a word.
template <class T, class Math>
[[gnu::always_inline]] inline u32v encode(u32v raw) {
  if constexpr (is_int8<T>::value) {
    if constexpr (Math::kPerWord == 4) return raw;
    const u32v extended = bits_as<u32v>(bits_as<i32v>(raw << 24) >> 24);
    return Math::kPerWord == 2 ? extended & 0xffffU : extended;
  } else if constexpr (Math::kPerWord == 2) {
    if constexpr (__is_same(T, bf16)) return raw;
    return float_bits(T{}, raw) >> 16;
  } else {
    return float_bits(T{}, raw);
  }
}

// kLanes words whose elements lie next to each other: word j holds p[j * kPerWord ...].
template <class T, class Math>
[[gnu::always_inline]] inline u32v load_words(const T* p) {
  constexpr int kBits = 32 / Math::kPerWord;
  if constexpr (sizeof(T) * Math::kPerWord == 4) {
    return load<u32v>(p);
  } else if constexpr (sizeof(T) == 2) {  // fp16 or bf16, one per word
    return encode<T, Math>(widen(load<u16v>(p)));
  } else if constexpr (Math::kPerWord == 2) {  // 8-bit pairs
    const u32v pair = widen(load<u16v>(p));
    return encode<T, Math>(pair & 0xffU) | (encode<T, Math>(pair >> 8) << kBits);
  } else {
    return encode<T, Math>(widen(load<u8v>(p)));
  }
}

// kLanes words whose lanes lie next to each other: word j holds p[j], p[j + stride], ...
template <class T, class Math>
[[gnu::always_inline]] inline u32v load_words_across(const T* p, i64 stride) {
  if constexpr (sizeof(T) == 4) {
    return load<u32v>(p);
  } else {
    constexpr int kBits = 32 / Math::kPerWord;
    u32v word{};
#pragma GCC unroll 4
    for (int u = 0; u < Math::kPerWord; ++u) {
      u32v raw;
      if constexpr (sizeof(T) == 2) {
        raw = widen(load<u16v>(p + u * stride));
      } else {
        raw = widen(load<u8v>(p + u * stride));
      }
      word |= encode<T, Math>(raw) << (u * kBits);
    }
    return word;
  }
}

// The words of the operand that is biased: 128 is added to every byte.
template <class Math, bool kHere>
[[gnu::always_inline]] inline u32v bias(u32v word) {
  if constexpr ((Math::kBiased || kBiasesB<Math>)&&kHere) return word ^ 0x80808080U;
  return word;
}

}  // namespace tessera::device
