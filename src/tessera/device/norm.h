// What normalisations of every backend share: their arguments, and the statistics of a row, which
// threads, blocks and steps gather over parts of the row and then merge.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

enum class NormKind { softmax, rmsnorm, layernorm, silu_mul, gelu_mul, gelu_tanh_mul, copy };

// Kinds whose results each follow their own elements of `in` alone.
constexpr bool is_elementwise(NormKind kind) { return kind >= NormKind::silu_mul; }
// Kinds that multiply one half of `in` by a function of the other half.
constexpr bool is_gated(NormKind kind) { return is_elementwise(kind) && kind != NormKind::copy; }

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
  const float* out_scale;
  float* out_scales;
  i64 row_of_scales, block_of_scales;  // elements from one to the next
  i64 staged_bytes;  // GPU: of shared memory for each matrix, whose rows lie without gaps; or 0
};

// What shares a scale of an output of 8 bits.
enum class NormQuant { none, tensor, row, block };
inline constexpr int kQuantBlock = 128;  // columns

// What elements are divided by whose greatest magnitude is `most`; `largest` is the type's.
inline float quant_scale(float most, float largest) {
  return most < 0x1p-100F ? 1.0F : most / largest;
}

// What is known about `count` elements. softmax: their maximum and the sum of exp(x - maximum).
// rmsnorm: the sum of their squares, in `second`. layernorm: their mean and the sum of
// (x - mean)^2.
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
    const float distance = b.first - a.first, move = distance * share;
    // In this order: the square of a distance from no elements may be no float.
    return {count, a.first + move, a.second + b.second + distance * a.count * move};
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

// ---- rows whose squares overflow or vanish ----

// Squares have twice the exponents of a float. A row whose squares have no good sum in fp32 is read
// again, times a power of two with which they have.
inline constexpr float kLargeRows = 0x1p-84F;
inline constexpr float kUsualRows = 1.0F;
inline constexpr float kSmallRows = 0x1p100F;

// The statistics of a row, or a slice of one, times `power`.
struct ScaledStatistics {
  NormStatistics of;
  float power;
};

// What to multiply `columns` columns by. Beside a mean that is not small, so small a variance comes
// of rounding alone.
inline float power_for(NormStatistics s, i64 columns, float epsilon) {
  const float variance = s.second / static_cast<float>(columns > 0 ? columns : 1) + epsilon;
  if (!(variance < infinity())) return kLargeRows;
  const bool is_small = variance < 0x1p-90F && s.first < 0x1p-10F && s.first > -0x1p-10F;
  return is_small ? kSmallRows : kUsualRows;
}

// The statistics of all slices, in their order, times `power`.
template <NormKind kKind, class Math>
inline NormStatistics merged_slices(const ScaledStatistics* slices, int count, float power) {
  NormStatistics all = no_statistics<kKind>();
  for (int i = 0; i < count; ++i) {
    const float share = power / slices[i].power;
    NormStatistics s = slices[i].of;
    s.first *= share;
    s.second = s.second * share * share;  // in this order: share squared may be no float
    all = merge<kKind, Math>(all, s);
  }
  return all;
}

// The same times the largest power of any slice with which their sum is finite. Usual slices may
// have a sum that is not.
template <NormKind kKind, class Math>
inline ScaledStatistics rescaled_slices(const ScaledStatistics* slices, int count) {
  float power = kSmallRows;
  for (int i = 0; i < count; ++i) power = slices[i].power < power ? slices[i].power : power;
  for (;;) {
    const NormStatistics all = merged_slices<kKind, Math>(slices, count, power);
    if (all.second < infinity() || power == kLargeRows) return {all, power};
    power = power == kSmallRows ? kUsualRows : kLargeRows;
  }
}

// out = (x * power - offset) * factor. Large rows are multiplied by more than their statistics
// were, so that no element vanishes that is not far below the others.
struct ScaledFactors {
  float power, offset, factor;
};

template <class Math>
inline ScaledFactors scaled_factors_of(const ScaledStatistics& s, i64 columns, float epsilon) {
  const float scaled = epsilon * s.power * s.power;
  const float least = epsilon > 0 ? 0x1p-126F : 0.0F;  // no division by zero where there was none
  const float variance =
      s.of.second / static_cast<float>(columns) + (scaled > least ? scaled : least);
  const float more = s.power == kLargeRows ? 0x1p40F : 1.0F;
  return {s.power * more, s.of.first * more, Math::reciprocal_sqrt(variance) / more};
}

}  // namespace tessera::device
