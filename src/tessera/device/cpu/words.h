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

#if defined(__AVX512BW__)
typedef u16 word_pairs __attribute__((vector_size(kVectorBytes)));
typedef u8 byte_pairs __attribute__((vector_size(kVectorBytes / 2)));
[[gnu::always_inline]] inline word_pairs widen(byte_pairs v) {
#if defined(__clang__)
  return __builtin_convertvector(v, word_pairs);
#else
  typedef char c32v __attribute__((vector_size(kVectorBytes / 2)));
  typedef short i16v __attribute__((vector_size(kVectorBytes)));
  return bits_as<word_pairs>(
      __builtin_ia32_pmovzxbw512_mask(bits_as<c32v>(v), i16v{}, 0xffffffffU));
#endif
}

// Elements of a table by the low bits of numbers.
[[gnu::always_inline]] inline word_pairs entries(word_pairs table, word_pairs numbers) {
  typedef short i16v __attribute__((vector_size(kVectorBytes)));
  const i16v from = bits_as<i16v>(table), at = bits_as<i16v>(numbers);
#if defined(__clang__)
  return bits_as<word_pairs>(__builtin_ia32_permvarhi512(from, at));
#else
  return bits_as<word_pairs>(__builtin_ia32_permvarhi512_mask(from, at, i16v{}, 0xffffffffU));
#endif
}

// The bf16 of fp8 or bf8, each in 16 bits: exponent and fraction move into place, and the bias is
// added. What is below the least normal number comes from a table.
template <class T>
[[gnu::always_inline]] inline word_pairs pairs_of(word_pairs x) {
  constexpr bool kIsFp8 = __is_same(T, fp8);
  constexpr u16 kBias = (kIsFp8 ? 120 : 112) << 7, kShift = kIsFp8 ? 4 : 5;
  constexpr u16 kNormal = kIsFp8 ? 0x78 : 0x7c, kSpecial = kIsFp8 ? 0x7f : 0x7c;
  constexpr u16 kNone = kIsFp8 ? 0x7fc0 : 0x7f80;  // infinity, to which NaN add bits
  constexpr word_pairs kSmall =
      kIsFp8 ? word_pairs{0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60}
             : word_pairs{0, 0x3780, 0x3800, 0x3840};
  const word_pairs number = x & 0x7f;
  const word_pairs usual = (number << kShift) + kBias;
  const word_pairs finite = (number & kNormal) == 0 ? entries(kSmall, number) : usual;
  const word_pairs bits = number >= kSpecial ? finite | kNone : finite;
  return bits | ((x & 0x80) << 8);
}
#endif

// kLanes words whose elements lie next to each other: word j holds p[j * kPerWord ...].
template <class T, class Math>
[[gnu::always_inline]] inline u32v load_words(const T* p) {
  constexpr int kBits = 32 / Math::kPerWord;
  if constexpr (sizeof(T) * Math::kPerWord == 4) {
    return load<u32v>(p);
  } else if constexpr (sizeof(T) == 2) {  // fp16 or bf16, one per word
    return encode<T, Math>(widen(load<u16v>(p)));
#if defined(__AVX512BW__)
  } else if constexpr (Math::kPerWord == 2 && !is_int8<T>::value) {
    return bits_as<u32v>(pairs_of<T>(widen(load<byte_pairs>(p))));
#endif
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
