// The gradients of scores on the ordinary lanes of a GPU: a wave's queries meet as many keys as
// it has lanes, or its keys as many queries. What the kernels of all gradients begin with.
#pragma once

#include "tessera/device/hip/fmha/backward_rows.h"

namespace tessera::device {

template <class C>
struct BackwardScores {
  using Rows = BackwardRows<C>;
  using In = typename C::In;
  using Head = TokenHead<In>;
  static constexpr int kRows = Rows::kRows;
  static_assert(C::kTileN == kLanes, "a lane has one token of a block");

  const Rows rows;
  const int lane;
  FmhaSequence s{};
  int batch = 0, head = 0;  // of queries

  static __device__ __forceinline__ const HipBackwardArguments& arguments() {
    return fresh_arguments<HipBackwardArguments>();
  }
  static __device__ __forceinline__ const FmhaArguments& forward() {
    return arguments().backward.forward;
  }

  __device__ __forceinline__ explicit BackwardScores(Shared* lds)
      : rows{lds}, lane(lane_of_wave()) {}

  __device__ __forceinline__ void set_sequence(int index) {
    batch = index;
    s = uniform_sequence<C::kLengths, FmhaPages::none>(forward(), index);
  }

  // ---- places ----

  __device__ __forceinline__ Head head_of(const void* base, const i64 (&stride)[kTokenStrides],
                                          int index, i64 first, i64 hdim) const {
    return {static_cast<const In*>(base) + token_place<C::kLengths>(stride, batch, index, first),
            stride[kToken], stride[kTokenElement], static_cast<int>(hdim)};
  }
  __device__ __forceinline__ int head_kv() const { return head_of_keys(forward(), head); }
  __device__ __forceinline__ Head queries() const {
    const FmhaArguments& g = forward();
    return head_of(g.q, g.q_stride, head, s.first_query, g.hdim);
  }
  __device__ __forceinline__ Head douts() const {
    const FmhaBackwardArguments& a = arguments().backward;
    return head_of(a.dout, a.dout_stride, head, s.first_query, a.forward.hdim_v);
  }
  __device__ __forceinline__ Head keys() const {
    const FmhaArguments& g = forward();
    return head_of(g.k, g.k_stride, head_kv(), s.first_key, g.hdim);
  }
  __device__ __forceinline__ Head values() const {
    const FmhaArguments& g = forward();
    return head_of(g.v, g.v_stride, head_kv(), s.first_key, g.hdim_v);
  }

  // What prepare() has left of a query.
  struct Query {
    float lse, log_sum, delta;
  };
  static __device__ __forceinline__ QueryRows rows_of_queries() {
    const HipBackwardArguments& all = arguments();
    char* const floats = static_cast<char*>(all.workspace) + kHipBackwardCounters;
    return rows_in(reinterpret_cast<float*>(floats), all.backward.forward, C::kLengths);
  }
  __device__ __forceinline__ i64 place_of(i64 query) const {
    return row_of_query(forward(), C::kLengths, batch, head, s.first_query + query);
  }
  __device__ __forceinline__ Query read(i64 query) const {
    const QueryRows from = rows_of_queries();
    const i64 at = place_of(query);
    return {load_element(from.lse + at), load_element(from.log_sum + at),
            load_element(from.delta + at)};
  }

  // ---- scores and their gradients ----

  // The product as the soft cap leaves it, and the score. Each step is rounded by itself, so that
  // equal products give equal bits wherever the function is compiled: a difference from lse is then
  // 0 where it should be.
  static __device__ __forceinline__ float capped_of(float product) {
    const FmhaArguments& g = forward();
    const float x = __builtin_fmaf(product, g.scale, 0.0F);
    if constexpr (!C::kSoftCap) return x;
    return __builtin_fmaf(g.soft_cap, tanh_fast(__builtin_fmaf(x, reciprocal(g.soft_cap), 0.0F)),
                          0.0F);
  }
  __device__ __forceinline__ float score_of(float capped, i64 query, i64 key) const {
    const FmhaArguments& g = forward();
    if constexpr (C::kBias == FmhaBias::elementwise) {
      using Bias = typename C::Bias;
      return capped + widened(load_element(static_cast<const Bias*>(g.bias) +
                                           batch * g.bias_stride[0] + head * g.bias_stride[1] +
                                           query * g.bias_stride[2] + key * g.bias_stride[3]));
    }
    if constexpr (C::kBias == FmhaBias::alibi) {
      const float slope = load_element(g.slopes + batch * g.slope_stride + head);
      return capped + __builtin_fmaf(alibi_of(1.0F, s, query, key), slope, 0.0F);
    }
    return capped;
  }

  // What dropout multiplies a weight with.
  __device__ __forceinline__ float kept(i64 query, i64 key) const {
    if constexpr (!C::kDropout) return 1;
    const FmhaArguments& g = forward();
    const auto words =
        dropout_words(dropout_key(g), dropout_row(g, batch, head, query), key / kKeysOfCounter);
    const u32 select = static_cast<u32>(key) % kKeysOfCounter / 4;
    u32 word = words.w[0];
#pragma unroll
    for (u32 i = 1; i < 4; ++i) word = select == i ? words.w[i] : word;
    return dropout_byte(word, key) < static_cast<u32>(g.kept) ? dropout_scale(g) : 0.0F;
  }

  // A weight times what dropout multiplies it with, and the gradients of its score and of what the
  // soft cap was given.
  struct Gradient {
    float weight, of_score, of_product;
  };
  __device__ __forceinline__ Gradient gradient_of(float product, float dweight, i64 query, i64 key,
                                                  const Query& of) const {
    const float capped = capped_of(product);
    const float weight = exp_fast(score_of(capped, query, key) - of.lse - of.log_sum);
    const float by = kept(query, key);
    const float of_score = score_gradient(weight, by, dweight, of.delta);
    const float slope = C::kSoftCap ? cap_gradient(capped, forward().soft_cap) : 1.0F;
    return {weight * by, of_score, of_score * slope};
  }
  __device__ __forceinline__ bool sees(i64 query, i64 key) const {
    return query < s.queries && key < s.keys && keys_of<C::kMasked>(forward(), s, query).has(key);
  }

  // Calls visit(key) for each block of keys that one of `count` queries sees.
  template <class Visit>
  __device__ __forceinline__ void for_each_key(i64 first, int count, const Visit& visit) const {
    for_each_key_block<kLanes>(seen_keys<C::kMasked>(forward(), s, first, first + count - 1),
                               visit);
  }
  static __device__ __forceinline__ int at_most(i64 left, int most) {
    return static_cast<int>(left < most ? left : most);
  }
  __device__ __forceinline__ i64 lane_token(i64 first, i64 count) const {
    return first + lane < count ? first + lane : count - 1;
  }

  // This wave's rows are queries.
  __device__ __forceinline__ void bring_queries(i64 first, int count) const {
    wave_barrier();
    rows.template bring<false>(queries(), first, count);
    rows.template bring<true>(douts(), first, count);
    wave_barrier();
  }

  // The gradients of this lane's key of the block from `key` on, of the scores or of the products.
  template <bool kOfScores>
  __device__ __forceinline__ void key_gradients(i64 first, int count, i64 key,
                                                const Query (&of)[kRows],
                                                float (&gradients)[kRows]) const {
    float x[kRows], y[kRows];
    rows.template multiply<false>(keys(), lane_token(key, s.keys), x);
    rows.template multiply<true>(values(), lane_token(key, s.keys), y);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      gradients[r] = 0;
      const i64 query = uniform_here(first) + r;
      if (r >= uniform_here(count) || !sees(query, key + lane)) continue;
      if (of[r].lse == minus_infinity()) continue;
      const Gradient found = gradient_of(x[r], y[r], query, key + lane, of[r]);
      gradients[r] = kOfScores ? found.of_score : found.of_product;
    }
  }
  __device__ __forceinline__ void read_queries(i64 first, int count, Query (&of)[kRows]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) of[r] = read(first + (r < count ? r : 0));
  }
};

}  // namespace tessera::device
