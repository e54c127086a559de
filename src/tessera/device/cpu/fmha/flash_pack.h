// Copies of queries, keys and values in fp32, as the products of attention read them.
#pragma once

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

// The tokens of one head: `data` is the first one's first element.
template <class T>
struct Tokens {
  const T* data;
  i64 stride, element;
  const T* token(i64 i) const { return data + i * stride; }
  [[gnu::always_inline]] f32v load(i64 i, i64 at, int count) const {
    return load_elements(token(i) + at * element, element, count);
  }
};

// to[i] = from[i] * factor; zeros up to a whole vector.
template <class T>
inline void copy_token(const T* from, i64 stride, i64 count, float factor, float* to) {
  for (i64 i = 0; i < count; i += kLanes) {
    store(to + i, load_elements(from + i * stride, stride, lanes_left(count - i)) * factor);
  }
}

// Panels of kWidth keys: to[panel][element][key]. Keys behind the last one are zero.
template <int kWidth, class Keys>
inline void pack_keys(const Keys& keys, i64 count, i64 hdim, i64 room, float* to) {
  for (i64 key = 0; key < room; key += kLanes) {
    float* const panel = to + key / kWidth * kWidth * hdim + key % kWidth;
    for (i64 at = 0; at < hdim; at += kLanes) {
      const int elements = lanes_left(hdim - at);
      u32v square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        square[i] = u32v{};
        if (key + i >= count) continue;
        square[i] = bits_as<u32v>(keys.load(key + i, at, elements));
      }
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i < elements) store(panel + (at + i) * kWidth, square[i]);
      }
    }
  }
}

// Panels of kWidth elements: to[panel][key][element]. Elements behind the last one are zero.
template <int kWidth, class Values>
inline void pack_values(const Values& values, i64 count, i64 hdim, i64 room, float* to) {
  for (i64 first = 0; first < hdim; first += kWidth, to += room * kWidth) {
    for (i64 key = 0; key < count; ++key) {
      float* const row = to + key * kWidth;
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; i += kLanes) {
        const i64 left = hdim - first - i;
        const f32v x = left <= 0 ? f32v{} : values.load(key, first + i, lanes_left(left));
        store(row + i, x);
      }
    }
  }
}

}  // namespace tessera::device
