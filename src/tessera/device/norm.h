// What normalisations of every backend share: their arguments, and the statistics of a row, which
// threads, blocks and steps gather over parts of the row and then merge.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

enum class NormKind { softmax, rmsnorm, layernorm };

// The one argument of every normalisation. Plain C layout; a change here raises the family's ABI
// number. Strides count elements between rows.
struct NormArguments {
  i64 rows, columns;
  const void* in;
  const void* residual;  // added to `in`; the sum is stored and normalised
  const void* scale;     // one element for each column
  const void* shift;
  void* out;
  void* sum;
  i64 ld_in, ld_residual, ld_out, ld_sum;
  float epsilon;
  int is_aligned;   // GPU: every row of every operand begins at a multiple of 16 bytes
  void* workspace;  // GPU: where the statistics of the slices of all rows lie
};

// Of `count` elements. softmax: their maximum and the sum of exp(x - maximum). rmsnorm: the sum of
// their squares, in `second`. layernorm: their mean and the sum of (x - mean)^2.
struct NormStatistics {
  float count, first, second;
};

inline float infinity() {
  const float large = 3e38F;
  return large * large;
}

// What to subtract before exp(): of nothing but -inf the sum is 0, not NaN.
inline float offset_of(float most) { return most == -infinity() ? 0.0F : most; }

template <NormKind kKind>
inline NormStatistics no_statistics() {
  return {0, kKind == NormKind::softmax ? -infinity() : 0.0F, 0};
}

// The statistics of both parts together; `Math` is the backend's. layernorm: Chan, Golub and
// LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979, 2.1.
template <NormKind kKind, class Math>
inline NormStatistics merge(NormStatistics a, NormStatistics b) {
  const float count = a.count + b.count;
  if constexpr (kKind == NormKind::rmsnorm) {
    return {count, 0, a.second + b.second};
  } else if constexpr (kKind == NormKind::softmax) {
    const float most = a.first > b.first ? a.first : b.first;
    const float share_a = a.first == most ? a.second : a.second * Math::exp(a.first - most);
    const float share_b = b.first == most ? b.second : b.second * Math::exp(b.first - most);
    return {count, most, share_a + share_b};
  } else {
    if (b.count == 0) return a;
    const float share = b.count / count;
    const float distance = b.first - a.first;
    return {count, a.first + distance * share,
            a.second + b.second + distance * distance * a.count * share};
  }
}

// out = (x - offset) * factor, before scale and shift; softmax: exp(x - offset) * factor.
struct NormFactors {
  float offset, factor;
};

template <NormKind kKind, class Math>
inline NormFactors factors_of(NormStatistics s, i64 columns, float epsilon) {
  if constexpr (kKind == NormKind::softmax) return {s.first, 1.0F / s.second};
  return {s.first, Math::reciprocal_sqrt(s.second / static_cast<float>(columns) + epsilon)};
}

}  // namespace tessera::device
