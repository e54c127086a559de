// The layout `vectorized` of a cache: its tokens, copied so that their elements are neighbours.
#pragma once

#include "tessera/device/cpu/fmha/flash_pack.h"

namespace tessera::device {

// A run: 16 bytes.
typedef u32 run_words __attribute__((vector_size(16)));
template <class T>
inline constexpr int kRunLength = 16 / static_cast<int>(sizeof(T));

// As many bits as an element has.
template <int kSize>
struct RunLane {
  using type = u32;
};
template <>
struct RunLane<2> {
  using type = u16;
};
template <>
struct RunLane<1> {
  using type = u8;
};

// The halves of a and b, element by element in turn.
template <int kHalf, class V, int... I>
[[gnu::always_inline]] inline V zipped(V a, V b, Lanes<I...>) {
  constexpr int kLength = sizeof...(I);
  return __builtin_shufflevector(a, b, (kHalf * kLength / 2 + I / 2 + I % 2 * kLength)...);
}

// rows[i][j] <-> rows[j][i] of as many runs as one has elements: each step zips the first half of
// the rows with the second one.
template <int kLength, class V>
[[gnu::always_inline]] inline void transpose_runs(V (&rows)[kLength]) {
  constexpr typename LanesUpTo<kLength>::type kAll{};
#pragma GCC unroll 4
  for (int step = 1; step < kLength; step *= 2) {
    V next[kLength];
#pragma GCC unroll 16
    for (int i = 0; i < kLength / 2; ++i) {
      next[2 * i] = zipped<0>(rows[i], rows[i + kLength / 2], kAll);
      next[2 * i + 1] = zipped<1>(rows[i], rows[i + kLength / 2], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLength; ++i) rows[i] = next[i];
  }
}

// to[token][element] of keys whose elements lie in runs, `far` elements apart.
template <class T>
inline void copy_keys_of_runs(const PlacedTokens<T>& from, i64 count, i64 hdim, i64 far, T* to) {
  for (i64 run = 0; run < hdim / kRunLength<T>; ++run) {
    for (i64 i = 0; i < count; ++i) {
      store(to + i * hdim + run * kRunLength<T>, load<run_words>(from.token(i) + run * far));
    }
  }
}

// The same of values whose tokens lie in runs: whole runs of tokens are transposed.
template <class T>
inline void copy_values_of_runs(const PlacedTokens<T>& from, i64 count, i64 hdim, T* to) {
  constexpr int kLength = kRunLength<T>;
  typedef typename RunLane<sizeof(T)>::type lanes __attribute__((vector_size(16)));
  i64 i = 0;
  while (i < count) {
    const T* const token = from.token(i);
    const bool is_whole = from.places[i] % kLength == 0 && i + kLength <= count;
    i64 at = 0;
    for (; is_whole && at + kLength <= hdim; at += kLength) {
      lanes square[kLength];
#pragma GCC unroll 16
      for (int k = 0; k < kLength; ++k) square[k] = load<lanes>(token + (at + k) * kLength);
      transpose_runs(square);
#pragma GCC unroll 16
      for (int k = 0; k < kLength; ++k) store(to + (i + k) * hdim + at, square[k]);
    }
    const i64 tokens = is_whole ? kLength : 1;
    for (; at < hdim; ++at) {
      for (i64 k = 0; k < tokens; ++k) to[(i + k) * hdim + at] = token[at * kLength + k];
    }
    i += tokens;
  }
}

}  // namespace tessera::device
