// The gradients of any attention on the ordinary lanes of a GPU: every mask, bias, stride and
// alignment, any heads of up to tile_k and hdim_v elements. Each gradient is added up by the wave
// that owns it, in one order, so that equal operands give equal bits; scores are made again for
// each. A wave meets no other wave.
//
// Launch: workgroups of wave_m waves. `prepare` comes first: grid {blocks of tile_m queries,
// query heads, batch}. `run` gives dk and dv: {blocks of tile_m keys, key-value heads, batch};
// `dq`: as `prepare`; `dbias`: {blocks of queries times blocks of as many keys as a wave has lanes,
// heads, batch} of the bias. A workgroup takes further blocks where a side of the grid is shorter.
#pragma once

#include "tessera/device/hip/fmha/backward_scores.h"

namespace tessera::device {

// Whether lse has the logarithm of the sum, so that kernels by MFMA need not read it.
template <class C>
inline constexpr bool kJoinsSums = false;
template <class C>
requires(C::kJoinsSums) inline constexpr bool kJoinsSums<C> = true;

template <class C>
class DirectBackward : BackwardScores<C> {
  using Scores = BackwardScores<C>;
  using Scores::arguments;
  using Scores::at_most;
  using Scores::batch;
  using Scores::bring_queries;
  using Scores::capped_of;
  using Scores::douts;
  using Scores::for_each_key;
  using Scores::forward;
  using Scores::gradient_of;
  using Scores::head;
  using Scores::head_of;
  using Scores::key_gradients;
  using Scores::keys;
  using Scores::kRows;
  using Scores::lane;
  using Scores::lane_token;
  using Scores::place_of;
  using Scores::queries;
  using Scores::read;
  using Scores::read_queries;
  using Scores::rows;
  using Scores::rows_of_queries;
  using Scores::s;
  using Scores::score_of;
  using Scores::sees;
  using Scores::set_sequence;
  using Scores::values;
  using typename Scores::Gradient;
  using typename Scores::Head;
  using typename Scores::In;
  using typename Scores::Query;
  using typename Scores::Rows;
  static constexpr int kParts = (C::kTileK + kLanes - 1) / kLanes;
  static constexpr int kPartsV = (C::kHdimV + kLanes - 1) / kLanes;

  using Scores::Scores;

  // ---- prepare ----

  // Adds this lane's key to its largest score and its sum of weights of each query.
  struct Sums {
    float most[kRows], total[kRows];
  };
  __device__ __forceinline__ void add_scores(i64 first, int count, i64 key, Sums& sums) const {
    float x[kRows];
    rows.template multiply<false>(keys(), lane_token(key, s.keys), x);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const i64 query = uniform_here(first) + r;
      if (r >= uniform_here(count) || !sees(query, key + lane)) continue;
      const float score = score_of(capped_of(x[r]), query, key + lane);
      const float top = __builtin_fmaxf(sums.most[r], score);
      if (top == minus_infinity()) continue;
      sums.total[r] = sums.total[r] * exp_fast(sums.most[r] - top) + exp_fast(score - top);
      sums.most[r] = top;
    }
  }

  // lse is rounded: where it is far from zero, it may have lost the sum's logarithm. Then scores
  // are added up again, and their maximum and the sum's logarithm are kept apart.
  __device__ __forceinline__ void renew(i64 first, int count, Query (&of)[kRows]) const {
    Sums sums;
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums.most[r] = minus_infinity(), sums.total[r] = 0;
    for_each_key(first, count, [&](i64 key) { add_scores(first, count, key, sums); });
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float most = sums.most[r], top = most_of_lanes(most);
      const float share = most == minus_infinity() ? 0.0F : exp_fast(most - top);
      const float all = sum_of_lanes(sums.total[r] * share);
      if (!is_far(of[r].lse)) continue;
      of[r].lse = top;
      of[r].log_sum = top == minus_infinity() ? 0.0F : log_fast(all);
      if constexpr (kJoinsSums<C>) of[r].lse += of[r].log_sum, of[r].log_sum = 0;
    }
  }

  __device__ __forceinline__ void prepare_queries(i64 first, int count) const {
    bring_queries(first, count);
    Query of[kRows];
    bool far = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const FmhaArguments& g = forward();
      const i64 token = s.first_query + first + (r < count ? r : 0);
      const Head out = head_of(g.out, g.out_stride, head, token, g.hdim_v);
      float sum = 0;
#pragma unroll 1
      for (int i = lane; i < out.hdim; i += kLanes) {
        sum += load_shared<float>(rows.template row<true>(r) + i * 4) *
               widened(load_element(out.first + i * out.element));
      }
      const i64 place = offset_of_lse(g, batch, head, token);
      of[r] = {load_element(g.lse + place), 0,
               sum_of_lanes(sum) - dlse_at(arguments().backward, place)};
      far = far || is_far(of[r].lse);
    }
    if (lanes_with(far) != 0) renew(first, count, of);
    const QueryRows to = rows_of_queries();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= count || lane != 0) continue;
      const i64 at = place_of(first + r);
      store_element(to.lse + at, of[r].lse);
      store_element(to.log_sum + at, of[r].log_sum);
      store_element(to.delta + at, of[r].delta);
    }
  }

  // ---- dq ----

  __device__ __forceinline__ void dq_of(i64 first, int count) const {
    float sums[kRows][kParts] = {};
    Query of[kRows];
    bring_queries(first, count);
    read_queries(first, count, of);
    for_each_key(first, count, [&](i64 key) {
      float gradients[kRows];
      this->template key_gradients<false>(first, count, key, of, gradients);
      Rows::template add<kParts>(keys(), key, at_most(s.keys - key, kLanes), gradients, sums);
    });
    const FmhaBackwardArguments& a = arguments().backward;
    const Head to = head_of(a.dq, a.dq_stride, head, s.first_query, a.forward.hdim);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= count) continue;
      Rows::template store<kParts>(const_cast<In*>(to.at(first + r)), to.element, to.hdim,
                                   forward().scale, sums[r]);
    }
  }

  // ---- dk and dv ----

  struct KeySums {
    float dk[kRows][kParts], dv[kRows][kPartsV];
  };

  // Adds what the block of queries from `query` on gives this wave's keys; a lane has a query.
  __device__ __forceinline__ void add_queries(i64 key, int count, i64 query, KeySums& sums) const {
    float x[kRows], y[kRows], weights[kRows], gradients[kRows];
    const i64 own = lane_token(query, s.queries);
    rows.template multiply<false>(queries(), own, x);
    rows.template multiply<true>(douts(), own, y);
    const Query of = read(own);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      weights[r] = gradients[r] = 0;
      const i64 here = uniform_here(key) + r;
      if (r >= uniform_here(count) || !sees(query + lane, here)) continue;
      if (of.lse == minus_infinity()) continue;
      const Gradient found = gradient_of(x[r], y[r], own, here, of);
      weights[r] = found.weight, gradients[r] = found.of_product;
    }
    const int together = at_most(s.queries - query, kLanes);
    Rows::template add<kParts>(queries(), query, together, gradients, sums.dk);
    Rows::template add<kPartsV>(douts(), query, together, weights, sums.dv);
  }

  __device__ __forceinline__ void dk_dv_of(int of_keys, i64 key, int count) {
    KeySums sums = {};
    const int group =
        static_cast<int>(static_cast<u32>(forward().heads) / static_cast<u32>(forward().heads_kv));
    head = of_keys * group;
    wave_barrier();
    rows.template bring<false>(keys(), key, count);
    rows.template bring<true>(values(), key, count);
    wave_barrier();
#pragma unroll 1
    for (int each = 0; each < group; ++each) {
      head = of_keys * group + each;
#pragma unroll 1
      for (i64 query = 0; query < s.queries; query += kLanes) {
        const i64 last = query + at_most(s.queries - query, kLanes) - 1;
        if (!seen_keys<C::kMasked>(forward(), s, query, last).has_some(key, count)) continue;
        add_queries(key, count, query, sums);
      }
    }
    const FmhaBackwardArguments& a = arguments().backward;
    const Head dk = head_of(a.dk, a.dk_stride, of_keys, s.first_key, a.forward.hdim);
    const Head dv = head_of(a.dv, a.dv_stride, of_keys, s.first_key, a.forward.hdim_v);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= count) continue;
      Rows::template store<kParts>(const_cast<In*>(dk.at(key + r)), dk.element, dk.hdim,
                                   forward().scale, sums.dk[r]);
      Rows::template store<kPartsV>(const_cast<In*>(dv.at(key + r)), dv.element, dv.hdim, 1.0F,
                                    sums.dv[r]);
    }
  }

  // ---- dbias ----

  // Where this wave's part of dbias begins in each dimension, and how far sums go from there: to
  // all indices of a dimension that dbias does not have. They wait in vector registers: scalar ones
  // are short.
  struct BiasTile {
    int first[kTokenStrides], past[kTokenStrides];
    __device__ __forceinline__ int begin(int i) const { return uniform(first[i]); }
    __device__ __forceinline__ int end(int i) const { return uniform(past[i]); }
  };

  // Adds the gradients of this lane's key and this wave's queries, block after block, each times
  // what its score has of the bias.
  __device__ __forceinline__ void add_biases(const BiasTile& t, float (&sums)[kRows]) {
#pragma unroll 1
    for (int index = t.begin(0); index < t.end(0); ++index) {
      set_sequence(index);
#pragma unroll 1
      for (head = t.begin(1); head < t.end(1); ++head) {
        const i64 end = t.end(2) < s.queries ? t.end(2) : s.queries;
#pragma unroll 1
        for (i64 query = t.begin(2); query < end; query += kRows) {
          add_bias_block(t, query, at_most(end - query, kRows), sums);
        }
      }
    }
  }
  __device__ __forceinline__ void add_bias_block(const BiasTile& t, i64 query, int count,
                                                 float (&sums)[kRows]) const {
    Query of[kRows];
    const SeenKeys seen = seen_keys<C::kMasked>(forward(), s, query, query + count - 1);
    bring_queries(query, count);
    read_queries(query, count, of);
#pragma unroll 1
    for (i64 key = t.begin(3); key < t.end(3) && key < s.keys; key += kLanes) {
      if (!seen.has_some(key, kLanes)) continue;
      float gradients[kRows];
      this->template key_gradients<true>(query, count, key, of, gradients);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r] += gradients[r] * bias_factor<C::kBias>(s, query + r, key + lane);
      }
    }
  }

  __device__ __forceinline__ void dbias_of(const BiasTile& t) {
    float sums[kRows] = {};
    add_biases(t, sums);
    const FmhaBiasSizes sizes = sizes_of_dbias(forward(), C::kBias);
    const bool has_queries = sizes.of[2] > 1 || forward().seqlen_q == 1;
    const bool has_keys = sizes.of[3] > 1 || forward().seqlen_k == 1;
    if (!has_queries) {
#pragma unroll
      for (int r = 1; r < kRows; ++r) sums[0] += sums[r];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = has_keys ? sums[r] : sum_of_lanes(sums[r]);
      const i64 query = has_queries ? t.begin(2) + r : r;
      const i64 key = has_keys ? t.begin(3) + lane : lane;
      if (query >= sizes.of[2] || key >= sizes.of[3]) continue;
      using Bias = typename FmhaDbias<C>::Type;
      const i64 at = offset_of_dbias(sizes, t.begin(0), t.begin(1), query, key);
      store_element(static_cast<Bias*>(arguments().backward.dbias) + at, rounded<Bias>(sum));
    }
  }

  static __device__ __forceinline__ i64 blocks_of(i64 count, i64 each) {
    return (count + each - 1) / each;
  }
  static __device__ __forceinline__ Shared* own_memory() {
    __shared__ __attribute__((aligned(16))) static u8 memory[C::kWaveM * Rows::kBytes];
    return (Shared*)memory + wave_of_block() * Rows::kBytes;
  }

  // Calls visit(kernel, query, count) for each of this wave's blocks of queries.
  template <class Visit>
  static __device__ __forceinline__ void for_each_query(const Visit& visit) {
    Shared* const memory = own_memory();
    const auto counts = [] {
      const HipBackwardArguments& all = arguments();
      const FmhaArguments& g = all.backward.forward;
      return BlockCounts{g.batch, g.heads, blocks_of(g.seqlen_q, C::kTileM), all.queries};
    };
    for_each_block(counts, [&](int batch, int head, int block) {
      DirectBackward kernel(memory);
      kernel.set_sequence(batch);
      kernel.head = head;
      const i64 first = i64{block} * C::kTileM + wave_of_block() * kRows;
      if (first < kernel.s.queries) visit(kernel, first, at_most(kernel.s.queries - first, kRows));
    });
  }

 public:
  static __device__ __forceinline__ void prepare(const HipBackwardArguments&) {
    for_each_query([](const DirectBackward& kernel, i64 first, int count) {
      kernel.prepare_queries(first, count);
    });
  }
  static __device__ __forceinline__ void dq(const HipBackwardArguments&) {
    for_each_query(
        [](const DirectBackward& kernel, i64 first, int count) { kernel.dq_of(first, count); });
  }

  static __device__ __forceinline__ void run(const HipBackwardArguments&) {
    Shared* const memory = own_memory();
    const auto counts = [] {
      const HipBackwardArguments& all = arguments();
      const FmhaArguments& g = all.backward.forward;
      return BlockCounts{g.batch, g.heads_kv, blocks_of(g.seqlen_k, C::kTileM), all.keys};
    };
    for_each_block(counts, [&](int batch, int head_kv, int block) {
      DirectBackward kernel(memory);
      kernel.set_sequence(batch);
      const i64 key = i64{block} * C::kTileM + wave_of_block() * kRows;
      if (key < kernel.s.keys) {
        kernel.dk_dv_of(head_kv, key, at_most(kernel.s.keys - key, kRows));
      }
    });
  }

  static __device__ __forceinline__ void dbias(const HipBackwardArguments&) {
    Shared* const memory = own_memory();
    const auto sizes_here = [] { return sizes_of_dbias(forward(), C::kBias); };
    const auto key_blocks = [](const FmhaBiasSizes& sizes) {
      return sizes.of[3] > 1 ? blocks_of(sizes.of[3], kLanes) : sizes.of[3];
    };
    const auto counts = [&] {
      const FmhaBiasSizes sizes = sizes_here();
      const i64 query_blocks = sizes.of[2] > 1 ? blocks_of(sizes.of[2], C::kTileM) : sizes.of[2];
      return BlockCounts{sizes.of[0], sizes.of[1], query_blocks * key_blocks(sizes),
                         arguments().biases};
    };
    for_each_block(counts, [&](int batch, int head, int block) {
      const FmhaBiasSizes sizes = sizes_here();
      const FmhaArguments& g = forward();
      const i64 all[kTokenStrides] = {g.batch, g.heads, g.seqlen_q, g.seqlen_k};
      const i64 step[kTokenStrides] = {1, 1, kRows, kLanes};
      const int wave = wave_of_block();
      const i64 across = key_blocks(sizes);
      const i64 at[kTokenStrides] = {batch, head, block / across * C::kTileM + wave * kRows,
                                     block % across * kLanes};
      // Queries that have no element of their own are one wave's.
      if (sizes.of[2] == 1 && wave != 0) return;
      BiasTile t;
#pragma unroll
      for (int i = 0; i < kTokenStrides; ++i) {
        const bool is_shared = sizes.of[i] == 1 && all[i] != 1;
        t.first[i] = not_ahead(static_cast<int>(is_shared ? 0 : at[i]));
        t.past[i] = not_ahead(static_cast<int>(is_shared ? all[i] : at[i] + step[i]));
      }
      DirectBackward(memory).dbias_of(t);
    });
  }
};

}  // namespace tessera::device
