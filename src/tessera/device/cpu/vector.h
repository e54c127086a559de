// Vectors of 32-bit lanes as wide as the compile flags allow, on GCC's and Clang's vector
// extensions: loads, stores of a part, and the transpose of a square of words.
#pragma once

#include "tessera/device/cpu/abi.h"

namespace tessera::device {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
inline constexpr int kLanes = kVectorBytes / 4;

typedef float f32v __attribute__((vector_size(kVectorBytes)));
typedef int i32v __attribute__((vector_size(kVectorBytes)));
typedef u32 u32v __attribute__((vector_size(kVectorBytes)));
typedef u16 u16v __attribute__((vector_size(kVectorBytes / 2)));
typedef u8 u8v __attribute__((vector_size(kVectorBytes / 4)));
typedef signed char s8v __attribute__((vector_size(kVectorBytes / 4)));

// The same vector at any address and over any type.
template <class V>
struct Anywhere {
  typedef V type __attribute__((aligned(1), may_alias));
};

template <class V>
[[gnu::always_inline]] inline V load(const void* p) {
  return *static_cast<const typename Anywhere<V>::type*>(p);
}

template <class V>
[[gnu::always_inline]] inline void store(void* p, V v) {
  *static_cast<typename Anywhere<V>::type*>(p) = v;
}

// The same bits as another type of the same size.
template <class To, class From>
[[gnu::always_inline]] inline To bits_as(From from) {
  return (To)from;  // between vectors a cast keeps the bits
}

[[gnu::always_inline]] inline f32v splat(float x) { return x - f32v{}; }
[[gnu::always_inline]] inline i32v splat(int x) { return x - i32v{}; }
[[gnu::always_inline]] inline u32v splat(u32 x) { return x - u32v{}; }

[[gnu::always_inline]] inline f32v select(i32v mask, f32v yes, f32v no) { return mask ? yes : no; }

#if !defined(__AVX512F__) && defined(__AVX2__)
// All ones in the first `count` lanes.
[[gnu::always_inline]] inline i32v first_lanes(int count) {
  i32v lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < splat(count);
}
#endif

// Loads the first `count` 32-bit lanes; the others are zero. Touches no other memory.
template <class V>
[[gnu::always_inline]] inline V load_first(const void* p, int count) {
#if defined(__AVX512F__)
  const u16 mask = static_cast<u16>((1U << count) - 1U);
  return bits_as<V>(__builtin_ia32_loadups512_mask(static_cast<const float*>(p), f32v{}, mask));
#elif defined(__AVX2__)
  return bits_as<V>(__builtin_ia32_maskloadps256(static_cast<const f32v*>(p), first_lanes(count)));
#else
  V v{};
  __builtin_memcpy(&v, p, static_cast<unsigned long>(count) * 4);
  return v;
#endif
}

template <class V>
[[gnu::always_inline]] inline void store_first(void* p, V v, int count) {
#if defined(__AVX512F__)
  const u16 mask = static_cast<u16>((1U << count) - 1U);
  __builtin_ia32_storeups512_mask(static_cast<float*>(p), bits_as<f32v>(v), mask);
#elif defined(__AVX2__)
  __builtin_ia32_maskstoreps256(static_cast<f32v*>(p), first_lanes(count), bits_as<f32v>(v));
#else
  __builtin_memcpy(p, &v, static_cast<unsigned long>(count) * 4);
#endif
}

// Lane numbers as a parameter pack, to name the lanes of a shuffle.
template <int... I>
struct Lanes {};
template <int N, int... I>
struct LanesUpTo : LanesUpTo<N - 1, N - 1, I...> {};
template <int... I>
struct LanesUpTo<0, I...> {
  using type = Lanes<I...>;
};
using AllLanes = typename LanesUpTo<kLanes>::type;

template <int... I>
[[gnu::always_inline]] inline i32v lane_numbers(Lanes<I...>) {
  return i32v{I...};
}

// Loads the first `bytes` bytes, at most a vector; the others are zero. Touches no other memory.
// This is faster than memcpy() with a size unknown to the compiler, which stores small pieces and
// then loads them as a vector.
[[gnu::always_inline]] inline u32v load_bytes(const void* p, int bytes) {
  const int words = bytes / 4;
  const u32v whole = load_first<u32v>(p, words);
  if (bytes % 4 == 0) return whole;
  const auto* rest = static_cast<const u8*>(p) + words * 4;
  u32 last = rest[0];
  if (bytes % 4 > 1) last |= u32{rest[1]} << 8;
  if (bytes % 4 > 2) last |= u32{rest[2]} << 16;
  return whole | (splat(last) & bits_as<u32v>(lane_numbers(AllLanes{}) == splat(words)));
}

// Stores the first `bytes` bytes of a vector of any width.
template <class V>
[[gnu::always_inline]] inline void store_bytes(void* p, V v, int bytes) {
  u32v wide{};
  __builtin_memcpy(&wide, &v, sizeof(v));
  const int words = bytes / 4;
  store_first(p, wide, words);
  auto* to = static_cast<u8*>(p);
  const auto* from = reinterpret_cast<const u8*>(&v);
  for (int i = words * 4; i < bytes; ++i) to[i] = from[i];
}

// Adds halves to halves. Each lane becomes the sum of the lanes whose numbers differ only in bits
// up to W.
template <int W, class V, int... I>
[[gnu::always_inline]] inline V fold_lanes(V v, Lanes<I...> all) {
  const V folded = v + __builtin_shufflevector(v, v, (I ^ W)...);
  if constexpr (W > 1) {
    return fold_lanes<W / 2>(folded, all);
  } else {
    return folded;
  }
}
template <class V>
[[gnu::always_inline]] inline auto sum_of_lanes(V v) {
  return fold_lanes<kLanes / 2>(v, AllLanes{})[0];
}

// One exchange of the transpose: blocks of W lanes swap between rows a and b.
template <int W, int... I>
[[gnu::always_inline]] inline void exchange(u32v& a, u32v& b, Lanes<I...>) {
  const u32v low = __builtin_shufflevector(a, b, ((I & W) ? kLanes + I - W : I)...);
  const u32v high = __builtin_shufflevector(a, b, ((I & W) ? kLanes + I : I + W)...);
  a = low;
  b = high;
}

// rows[i][j] <-> rows[j][i] for a square of kLanes x kLanes words (Eklundh's exchange network).
template <int W = kLanes / 2>
[[gnu::always_inline]] inline void transpose(u32v (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & W) == 0) exchange<W>(rows[i], rows[i + W], AllLanes{});
  }
  if constexpr (W > 1) transpose<W / 2>(rows);
}

}  // namespace tessera::device
