// Copies of queries, keys and values in fp32, as the products of attention read them.
#pragma once

#include "tessera/device/cpu/fmha/flash_words.h"
#include "tessera/device/cpu/rows.h"

namespace tessera::device {

// Up to a vector of a token's elements, as floats; the lanes behind `count` are zero.
template <class T>
[[gnu::always_inline]] inline f32v load_elements(const T* p, i64 stride, int count) {
  if (stride == 1) return load_lanes(p, count);
  T together[kLanes] = {};
  for (int i = 0; i < count; ++i) together[i] = p[i * stride];
  return load_lanes(together, kLanes);
}

[[gnu::always_inline]] inline int lanes_left(i64 count) {
  return static_cast<int>(count < kLanes ? count : kLanes);
}

// Up to a vector of elements of 16 bits, in 32 bits each; the lanes behind `count` are zero.
template <class T>
[[gnu::always_inline]] inline u32v load_halves(const T* p, i64 stride, int count) {
  if (stride == 1 && count == kLanes) return widen(load<u16v>(p));
  T together[kLanes] = {};
  for (int i = 0; i < count; ++i) together[i] = p[i * stride];
  return widen(load<u16v>(together));
}

// Up to a vector of pairs of such elements, as words; elements behind `count` are zero.
template <class T>
[[gnu::always_inline]] inline u32v load_pairs(const T* p, i64 stride, int count) {
  if (stride == 1 && count == 2 * kLanes) return load<u32v>(p);
  T together[2 * kLanes] = {};
  for (int i = 0; i < count; ++i) together[i] = p[i * stride];
  return load<u32v>(together);
}

// Tokens of one head, each with its place: in elements from `data` on, where its first one lies.
template <class T>
struct PlacedTokens {
  const T* data;
  const i64* places;
  i64 element;
  const T* token(i64 i) const { return data + places[i]; }
  // Up to a vector of words of kPer elements from element `at` on.
  template <int kPer>
  [[gnu::always_inline]] u32v words(i64 i, i64 at, int count) const {
    const T* const p = token(i) + at * element;
    if constexpr (kPer == 2) return load_pairs(p, element, count);
    return bits_as<u32v>(load_elements(p, element, count));
  }
  // Up to a vector of words of the same element of kPer tokens, of which there are `count`.
  template <int kPer>
  [[gnu::always_inline]] u32v across(i64 i, i64 count, i64 at, int lanes) const {
    if constexpr (kPer == 1) return words<1>(i, at, lanes);
    const u32v first = load_halves(token(i) + at * element, element, lanes);
    if (i + 1 == count) return first;
    return first | load_halves(token(i + 1) + at * element, element, lanes) << 16;
  }
};

// to[i] = from[i] * factor; zeros up to a whole vector.
template <class T>
inline void copy_token(const T* from, i64 stride, i64 count, float factor, float* to) {
  for (i64 i = 0; i < count; i += kLanes) {
    store(to + i, load_elements(from + i * stride, stride, lanes_left(count - i)) * factor);
  }
}

// A query's row: scaled floats, or words of pairs with their bits, which are scaled after they were
// multiplied.
template <int kPer, class T>
inline void copy_query(const T* from, i64 stride, i64 count, bool in_place, float scale,
                       float* to) {
  if (kPer == 1 || in_place) return copy_token(from, stride, count, scale, to);
  if constexpr (kPer == 2) {
    for (i64 i = 0; i < count; i += 2 * kLanes, to += kLanes) {
      const i64 left = count - i;
      const int pairs = static_cast<int>(left < 2 * kLanes ? left : 2 * kLanes);
      store(to, load_pairs(from + i * stride, stride, pairs));
    }
  }
}

// Panels of kWidth keys: to[panel][word][key], with kPer elements in a word. Keys behind the last
// one are zero up to a whole vector, elements up to a whole word.
template <int kWidth, int kPer, class Keys>
void pack_keys(const Keys& keys, i64 count, i64 hdim, float* to) {
  const i64 depth = (hdim + kPer - 1) / kPer;
  for (i64 key = 0; key < count; key += kLanes) {
    float* const panel = to + key / kWidth * kWidth * depth + key % kWidth;
    for (i64 at = 0; at < depth; at += kLanes) {
      const i64 left = hdim - at * kPer;
      const int elements = static_cast<int>(left < kLanes * kPer ? left : kLanes * kPer);
      u32v square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        square[i] = u32v{};
        if (key + i >= count) continue;
        square[i] = keys.template words<kPer>(key + i, at * kPer, elements);
      }
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i < depth - at) store(panel + (at + i) * kWidth, square[i]);
      }
    }
  }
}

// Panels of kWidth elements: to[panel][word][element], with kPer keys in a word. Elements behind
// the last one are zero up to a whole vector, keys up to a whole word.
template <int kWidth, int kPer, class Values>
void pack_values(const Values& values, i64 count, i64 hdim, i64 room, float* to) {
  for (i64 first = 0; first < hdim; first += kWidth, to += room * kWidth) {
    for (i64 key = 0; key < count; key += kPer) {
      float* const row = to + key / kPer * kWidth;
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; i += kLanes) {
        const i64 left = hdim - first - i;
        if (left <= 0) continue;
        store(row + i, values.template across<kPer>(key, count, first + i, lanes_left(left)));
      }
    }
  }
}

}  // namespace tessera::device
