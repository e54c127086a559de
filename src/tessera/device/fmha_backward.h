// The gradients of attention: what kernels of every backend and the reference share.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

// The one argument of every kernel of gradients. Plain C layout; a change here raises the family's
// ABI number (kAbi in src/tessera/families/fmha/fmha.h). Strides count elements.
struct FmhaBackwardArguments {
  FmhaArguments forward;  // out and lse are read
  const void* dout;
  const float* dlse;  // lies as lse does; null: lse has no gradient
  void *dq, *dk, *dv, *dbias;
  i64 dout_stride[kTokenStrides], dq_stride[kTokenStrides];
  i64 dk_stride[kTokenStrides], dv_stride[kTokenStrides];
};

// Where lse of a query lies. `token` counts through packed sequences.
inline i64 offset_of_lse(const FmhaArguments& g, i64 batch, i64 head, i64 token) {
  return batch * g.lse_stride[0] + head * g.lse_stride[1] + token * g.lse_stride[2];
}

// Whether the rounding of lse shows in exp(score - lse): a bias that hides keys by a large number
// makes scores of which lse has lost the logarithm of their sum.
inline constexpr float kFarLse = 4096;
inline bool is_far(float lse, float least = kFarLse, float most = 3.40282347e38F) {
  const float size = lse < 0 ? -lse : lse;
  return size >= least && size <= most;
}

// The gradient by lse of the query whose lse lies at `at`.
inline float dlse_at(const FmhaBackwardArguments& a, i64 at) {
  return a.dlse == nullptr ? 0.0F : a.dlse[at];
}

// What is known of the queries of all heads, an array of each: weights are
// exp(score - lse - log_sum), and delta is the product of dout and out, less the gradient by lse.
struct QueryRows {
  float *lse, *log_sum, *delta;
};
// Queries of a head, floats of all arrays, and the place of a query in each. `token` counts through
// packed sequences.
inline i64 queries_of_head(const FmhaArguments& g, FmhaLengths lengths) {
  return lengths == FmhaLengths::packed ? g.tokens_q : g.batch * g.seqlen_q;
}
inline i64 floats_of_rows(const FmhaArguments& g, FmhaLengths lengths) {
  return 3 * g.heads * queries_of_head(g, lengths);
}
inline QueryRows rows_in(float* floats, const FmhaArguments& g, FmhaLengths lengths) {
  const i64 rows = g.heads * queries_of_head(g, lengths);
  return {floats, floats + rows, floats + 2 * rows};
}
inline i64 row_of_query(const FmhaArguments& g, FmhaLengths lengths, i64 batch, i64 head,
                        i64 token) {
  const i64 before = lengths == FmhaLengths::packed ? 0 : batch * g.seqlen_q;
  return head * queries_of_head(g, lengths) + before + token;
}

// The queries [begin, end) that see a key.
struct FmhaQueries {
  i64 begin, end;
};
template <bool kMasked>
inline FmhaQueries queries_of(const FmhaArguments& g, const FmhaSequence& s, i64 key) {
  if constexpr (!kMasked) return {0, s.queries};
  const i64 diagonal = key - (g.at_end != 0 ? s.keys - s.queries : 0);
  const bool has_end = g.window_left >= 0 && key >= g.sink;
  const i64 begin = g.window_right < 0 ? 0 : clamped(diagonal - g.window_right, 0, s.queries);
  return {begin, has_end ? clamped(diagonal + g.window_left + 1, begin, s.queries) : s.queries};
}

// A score's gradient: `weight` is exp(score - lse), `kept` what dropout multiplies it with,
// `dweight` the product of dout and v, `delta` as above.
template <class T>
inline T score_gradient(T weight, T kept, T dweight, T delta) {
  return weight * (kept * dweight - delta);
}

// The slope of the soft cap where it gives `capped`.
template <class T, class Scalar>
inline T cap_gradient(T capped, Scalar soft_cap) {
  const T share = capped / soft_cap;
  return 1 - share * share;
}

// ---- the bias's gradient ----

// The type of dbias: of the bias, or of ALiBi's slopes.
template <class C, bool kOfSlopes = C::kBias == FmhaBias::alibi>
struct FmhaDbias {
  using Type = typename C::Bias;
};
template <class C>
struct FmhaDbias<C, true> {
  using Type = float;
};

// Sizes of dbias, {batch, head, query, key}: one index where all share the bias. A slope of ALiBi
// is shared by all queries and keys of its head.
struct FmhaBiasSizes {
  i64 of[kTokenStrides];
};
inline FmhaBiasSizes sizes_of_dbias(const FmhaArguments& g, FmhaBias bias) {
  if (bias == FmhaBias::alibi) return {{g.slope_stride == 0 ? 1 : g.batch, g.heads, 1, 1}};
  FmhaBiasSizes sizes = {{g.batch, g.heads, g.seqlen_q, g.seqlen_k}};
  for (int i = 0; i < kTokenStrides; ++i) {
    if (g.bias_stride[i] == 0 && sizes.of[i] > 1) sizes.of[i] = 1;
  }
  return sizes;
}
// The distances of its elements: 0 where there is one index.
struct FmhaBiasSteps {
  i64 of[kTokenStrides];
};
inline FmhaBiasSteps steps_of_dbias(const FmhaBiasSizes& sizes) {
  FmhaBiasSteps steps = {};
  i64 apart = 1;
  for (int i = kTokenStrides - 1; i >= 0; --i) {
    steps.of[i] = sizes.of[i] == 1 ? 0 : apart;
    apart *= sizes.of[i];
  }
  return steps;
}
// What the bias's element, or the slope, is multiplied with in a score.
template <FmhaBias kBias>
inline float bias_factor(const FmhaSequence& s, i64 query, i64 key) {
  return kBias == FmhaBias::alibi ? alibi_of(1.0F, s, query, key) : 1.0F;
}
inline i64 offset_of_dbias(const FmhaBiasSizes& sizes, i64 batch, i64 head, i64 query, i64 key) {
  return ((batch * sizes.of[1] + head) * sizes.of[2] + query) * sizes.of[3] + key;
}

}  // namespace tessera::device
