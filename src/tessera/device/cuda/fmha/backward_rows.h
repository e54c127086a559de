// What the gradients of scores on the ordinary cores of a GPU need of each query, computed once:
// what its scores are compared with, and delta.
#pragma once

#include "tessera/device/cuda/fmha/backward_scores.h"

namespace tessera::device {

template <class C>
struct BackwardRows : BackwardScores<C> {
  using Scores = BackwardScores<C>;
  using Scores::a;
  using Scores::batch;
  using Scores::delta;
  using Scores::g;
  using Scores::head;
  using Scores::kKeys;
  using Scores::kQueries;
  using Scores::lane;
  using Scores::log_sum;
  using Scores::lse;
  using Scores::s;
  using Scores::Scores;
  using Scores::warp;
  using typename Scores::In;
  using typename Scores::Range;

  // lse and delta = <dout, out> - dlse of this warp's queries of the block, which was brought.
  // Whether one of them has an lse far from zero.
  __device__ __forceinline__ bool read(i64 first) {
    bool far = false;
#pragma unroll 1
    for (int r = 0; r < kQueries; ++r) {
      const int row = warp * kQueries + r;
      float sum = 0, logarithm = minus_infinity(), subtracted = 0;
      if (first + row < s.queries) {
        const i64 at = s.first_query + first + row;
        const In* const out = this->template token<const In>(g.out, g.out_stride, head, at);
        for (int i = lane; i < static_cast<int>(g.hdim_v); i += 32) {
          sum += this->dout_row(row)[i] * to_float(out[i * g.out_stride[kTokenElement]]);
        }
        const i64 place = offset_of_lse(g, batch, head, at);
        logarithm = g.lse[place], subtracted = dlse_at(a, place);
      }
      sum = sum_of_warp(sum) - subtracted;
      far = far || is_far(logarithm);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        if (i == r) delta[i] = sum, lse[i] = logarithm, log_sum[i] = 0;
      }
    }
    return far;
  }

  // Adds this lane's key of the block from `key` on to its largest score and its sum of weights of
  // each of the warp's queries.
  __device__ __forceinline__ void add_keys(i64 first, i64 key, float (&most)[kQueries],
                                           float (&total)[kQueries]) const {
    float x[kQueries];
    const int row = warp * kQueries;
    multiply_rows(this->query_row(row), Scores::kSizes.query_row, this->key_row(lane),
                  static_cast<int>(g.hdim), x);
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const i64 query = first + row + r;
      if (!this->sees(query, key + lane)) continue;
      const float score = this->score_of(this->capped_of(x[r]), query, key + lane);
      const float top = fmaxf(most[r], score);
      if (top == minus_infinity()) continue;
      total[r] = total[r] * exp_fast(most[r] - top) + exp_fast(score - top);
      most[r] = top;
    }
  }

  // lse is rounded: where it is far from zero, it may have lost the sum's logarithm. Then scores
  // are added up again, and their maximum and the sum's logarithm are kept apart.
  __device__ __forceinline__ void renew(i64 first) {
    float most[kQueries], total[kQueries];
#pragma unroll
    for (int r = 0; r < kQueries; ++r) most[r] = minus_infinity(), total[r] = 0;
    const Range seen = this->range_of_block(first);
#pragma unroll 1
    for (i64 key = 0; key < seen.end; key += kKeys) {
      if (!seen.has_some(key)) continue;
      __syncthreads();
      this->bring_keys(key);
      __syncthreads();
      add_keys(first, key, most, total);
    }
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const float top = most_of_warp(most[r]);
      const float all =
          sum_of_warp(most[r] == minus_infinity() ? 0.0F : total[r] * exp_fast(most[r] - top));
      if (!is_far(lse[r])) continue;
      lse[r] = top;
      log_sum[r] = top == minus_infinity() ? 0.0F : logf(all);
    }
  }

  __device__ __forceinline__ void keep(i64 first) const {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const i64 query = first + warp * kQueries + r;
      if (query >= s.queries || lane != 0) continue;
      const i64 at = this->row_of(query);
      this->rows.lse[at] = lse[r], this->rows.log_sum[at] = log_sum[r];
      this->rows.delta[at] = delta[r];
    }
  }

  // The block of queries from `first` on.
  __device__ __forceinline__ void prepare(i64 first) {
    __syncthreads();
    this->bring_queries(first);
    __syncthreads();
    if (__syncthreads_or(read(first)) != 0) renew(first);
    keep(first);
  }
};

}  // namespace tessera::device
