// Sums over vectors in memory, whole vectors only.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// Calls visit(i, lanes, number) for the vectors of `count` elements. Four at a time have the
// numbers 0 to 3, so that results side by side hide the latency of an instruction; the others have
// -1.
template <class Visit>
[[gnu::always_inline]] inline void for_each_vector(int count, Visit visit) {
  int i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) visit(i + j * kLanes, kLanes, j);
  }
  for (; i < count; i += kLanes) visit(i, count - i < kLanes ? count - i : kLanes, -1);
}

// The sum of term(i, v) over the same vectors.
template <class Term>
[[gnu::always_inline]] inline float sum_of_vectors(const float* x, int count, Term term) {
  f32v sums[4] = {};
  for_each_vector(count, [&](int i, int, int number) {
    f32v& sum = sums[number & 3];
    sum = sum + term(i, load<f32v>(x + i));
  });
  return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <int W, int... I>
[[gnu::always_inline]] inline float most_of_lanes(f32v v, Lanes<I...> all) {
  const f32v most = max(v, __builtin_shufflevector(v, v, (I ^ W)...));
  if constexpr (W > 1) return most_of_lanes<W / 2>(most, all);
  return most[0];
}

// The largest lane of the same vectors, NaN left out; -infinity where there is none.
[[gnu::always_inline]] inline float most_of_vectors(const float* x, int count) {
  const f32v none = splat(-__builtin_inff());
  f32v most[4] = {none, none, none, none};
  for_each_vector(count, [&](int i, int, int number) {
    f32v& all = most[number & 3];
    all = max(load<f32v>(x + i), all);
  });
  most[0] = max(max(most[0], most[1]), max(most[2], most[3]));
  return most_of_lanes<kLanes / 2>(most[0], AllLanes{});
}

// Gives the lanes behind x[count - 1] a value.
inline void pad_lanes(float* x, int count, float value) {
  for (int i = count; i % kLanes != 0; ++i) x[i] = value;
}

}  // namespace tessera::device
