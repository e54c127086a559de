// Sums over vectors in memory, whole vectors only.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

// The sum of term(v) over the vectors of x[0 .. count), the last one with what lies behind. Four
// sums side by side hide the latency of an addition.
template <class Term>
[[gnu::always_inline]] inline float sum_of_vectors(const float* x, int count, Term term) {
  f32v sums[4] = {};
  int i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) sums[j] = sums[j] + term(load<f32v>(x + i + j * kLanes));
  }
  for (; i < count; i += kLanes) sums[0] = sums[0] + term(load<f32v>(x + i));
  return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// The largest lane of the same vectors, NaN left out; -infinity where there is none.
[[gnu::always_inline]] inline float most_of_vectors(const float* x, int count) {
  f32v all = splat(-__builtin_inff());
  for (int i = 0; i < count; i += kLanes) all = max(load<f32v>(x + i), all);
  float most = all[0];
  for (int i = 1; i < kLanes; ++i) most = all[i] > most ? all[i] : most;
  return most;
}

// Gives the lanes behind x[count - 1] a value.
inline void pad_lanes(float* x, int count, float value) {
  for (int i = count; i % kLanes != 0; ++i) x[i] = value;
}

}  // namespace tessera::device
