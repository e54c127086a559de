// The gradients of any attention on the ordinary cores of a GPU: every mask, bias, stride and
// alignment, any heads of up to tile_k and hdim_v elements. Each gradient is added up by the block
// that owns it, in one order, so that equal operands give equal bits; scores are made again for
// each.
//
// Launch: blocks of 32 * wave_m threads with the bytes of fmha_backward_sizes() of dynamic shared
// memory. `prepare` comes first: grid {blocks of tile_m queries, query heads, batch}. `run` gives
// dk and dv: {blocks of 32 keys, key-value heads, batch}; `dq`: as `prepare`; `dbias`: {blocks of
// queries times blocks of keys, heads, batch} of the bias. A block takes further ones where a side
// of the grid is shorter.
#pragma once

#include "tessera/device/cuda/fmha/backward_rows.h"

namespace tessera::device {

template <class C>
class FmhaBackwardKernel : BackwardRows<C> {
  using Scores = BackwardRows<C>;
  using Scores::a;
  using Scores::batch;
  using Scores::g;
  using Scores::head;
  using Scores::kKeys;
  using Scores::kQueries;
  using Scores::lane;
  using Scores::s;
  using Scores::warp;
  using typename Scores::Four;
  using typename Scores::In;
  using typename Scores::Range;

  // Elements of a head that a block adds up at a time; longer heads take several passes.
  static constexpr int kLongest = C::kTileK > C::kHdimV ? C::kTileK : C::kHdimV;
  static constexpr int kTogether = kLongest > 256 ? 256 : kLongest;
  static constexpr int kParts = kTogether / 32;       // elements of a lane
  static constexpr int kOwnKeys = kKeys / C::kWaveM;  // of a warp
  static constexpr int kAll = (C::kTileK + 31) / 32;  // of a lane, of a whole head of q
  static_assert(kOwnKeys % 4 == 0, "weights are read four at a time");

  using Scores::Scores;

  static __device__ __forceinline__ unsigned char* shared() {
    extern __shared__ __align__(16) unsigned char fmha_memory[];
    return fmha_memory;
  }

  // ---- dk and dv ----

  struct KeySums {
    float dk[kOwnKeys][kParts], dv[kOwnKeys][kParts];
  };

  // Adds what the block's queries give this warp's keys, of the elements from `first` on.
  __device__ __forceinline__ void add_queries(int first, KeySums& sums) const {
#pragma unroll 1
    for (int row = 0; row < C::kTileM; ++row) {
      const float* const weights = this->weight_row(row) + warp * kOwnKeys;
      const float* const gradients = this->gradient_row(row) + warp * kOwnKeys;
      float q[kParts], dout[kParts];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int element = first + lane + 32 * i;
        q[i] = element < C::kTileK ? this->query_row(row)[element] : 0.0F;
        dout[i] = element < C::kHdimV ? this->dout_row(row)[element] : 0.0F;
      }
#pragma unroll
      for (int key = 0; key < kOwnKeys; key += 4) {
        const Four weight = *reinterpret_cast<const Four*>(weights + key);
        const Four gradient = *reinterpret_cast<const Four*>(gradients + key);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int i = 0; i < kParts; ++i) {
            sums.dk[key + k][i] += gradient.x[k] * q[i];
            sums.dv[key + k][i] += weight.x[k] * dout[i];
          }
        }
      }
    }
  }

  // Elements from `first` on of the gradient of a token of this warp's keys.
  __device__ __forceinline__ void store_key(void* base, const i64 (&stride)[kTokenStrides], i64 key,
                                            int first, i64 hdim, float by,
                                            const float (&sums)[kParts]) const {
    In* const to = this->template token<In>(base, stride, this->head_kv(), s.first_key + key);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int element = first + lane + 32 * i;
      if (element < hdim) to[element * stride[kTokenElement]] = rounded<In>(sums[i] * by);
    }
  }

  // All queries that see a key of the block from `key` on; `first` as above.
  __device__ __forceinline__ void add_heads(i64 key, int first, KeySums& sums) {
    const i64 group = g.heads / g.heads_kv, begin = this->head_kv() * group;
#pragma unroll 1
    for (i64 each = 0; each < group; ++each) {
      head = begin + each;
#pragma unroll 1
      for (i64 query = 0; query < s.queries; query += C::kTileM) {
        if (!this->range_of_block(query).has_some(key)) continue;
        __syncthreads();
        this->bring_queries(query);
        __syncthreads();
        this->read_rows(query);
        this->template compute<false>(query, key);
        __syncthreads();
        add_queries(first, sums);
      }
    }
    head = begin;
  }

  __device__ __forceinline__ void run_keys(i64 key) {
    __syncthreads();
    this->bring_keys(key);
#pragma unroll 1
    for (int first = 0; first < kLongest; first += kTogether) {
      if (first >= g.hdim && first >= g.hdim_v) break;
      KeySums sums = {};
      add_heads(key, first, sums);
#pragma unroll
      for (int i = 0; i < kOwnKeys; ++i) {
        const i64 own = key + warp * kOwnKeys + i;
        if (own >= s.keys) continue;
        store_key(a.dk, a.dk_stride, own, first, g.hdim, g.scale, sums.dk[i]);
        store_key(a.dv, a.dv_stride, own, first, g.hdim_v, 1.0F, sums.dv[i]);
      }
    }
  }

  // ---- dq ----

  // Adds what the block's keys give this warp's queries.
  __device__ __forceinline__ void add_keys(float (&sums)[kQueries][kAll]) const {
#pragma unroll 1
    for (int key = 0; key < kKeys; ++key) {
      float k[kAll];
#pragma unroll
      for (int i = 0; i < kAll; ++i) k[i] = to_float(this->key_row(key)[lane + 32 * i]);
#pragma unroll
      for (int r = 0; r < kQueries; ++r) {
        const float gradient = this->gradient_row(warp * kQueries + r)[key];
#pragma unroll
        for (int i = 0; i < kAll; ++i) sums[r][i] += gradient * k[i];
      }
    }
  }

  __device__ __forceinline__ void run_queries(i64 query) {
    float sums[kQueries][kAll] = {};
    __syncthreads();
    this->bring_queries(query);
    __syncthreads();
    this->read_rows(query);
    const Range seen = this->range_of_block(query);
#pragma unroll 1
    for (i64 key = 0; key < seen.end; key += kKeys) {
      if (!seen.has_some(key)) continue;
      __syncthreads();
      this->bring_keys(key);
      __syncthreads();
      this->template compute<false>(query, key);
      __syncwarp();
      add_keys(sums);
    }
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const i64 own = query + warp * kQueries + r;
      if (own >= s.queries) continue;
      In* const to = this->template token<In>(a.dq, a.dq_stride, head, s.first_query + own);
#pragma unroll
      for (int i = 0; i < kAll; ++i) {
        const int element = lane + 32 * i;
        if (element < g.hdim) {
          to[element * a.dq_stride[kTokenElement]] = rounded<In>(sums[r][i] * g.scale);
        }
      }
    }
  }

  // ---- dbias ----

  // Where the block's part of dbias begins in each dimension, and how far sums go from there: to
  // all indices of a dimension that dbias does not have.
  struct BiasTile {
    i64 begin[kTokenStrides], end[kTokenStrides];
  };

  // Adds the gradients of this lane's key and this warp's queries, block after block, each times
  // what its score has of the bias.
  __device__ __forceinline__ void add_biases(const BiasTile& t, float (&sums)[kQueries]) {
#pragma unroll 1
    for (batch = t.begin[0]; batch < t.end[0]; ++batch) {
      s = sequence_of<C::kLengths, FmhaPages::none>(g, batch);
#pragma unroll 1
      for (head = t.begin[1]; head < t.end[1]; ++head) {
#pragma unroll 1
        for (i64 query = t.begin[2]; query < t.end[2] && query < s.queries; query += C::kTileM) {
          const Range seen = this->range_of_block(query);
          __syncthreads();
          this->bring_queries(query);
          __syncthreads();
          this->read_rows(query);
#pragma unroll 1
          for (i64 key = t.begin[3]; key < t.end[3] && key < s.keys; key += kKeys) {
            if (!seen.has_some(key)) continue;
            __syncthreads();
            this->bring_keys(key);
            __syncthreads();
            this->template compute<true>(query, key);
#pragma unroll
            for (int r = 0; r < kQueries; ++r) {
              const int row = warp * kQueries + r;
              sums[r] +=
                  this->gradient_row(row)[lane] * bias_factor<C::kBias>(s, query + row, key + lane);
            }
          }
        }
      }
    }
  }

  // The sum of all queries of the block in every warp's first one.
  __device__ __forceinline__ void add_rows(float (&sums)[kQueries]) const {
    float all = 0;
#pragma unroll
    for (int r = 0; r < kQueries; ++r) all += sums[r];
    __syncthreads();
    this->gradient_row(warp)[lane] = all;
    __syncthreads();
    sums[0] = 0;
    for (int i = 0; i < C::kWaveM; ++i) sums[0] += this->gradient_row(i)[lane];
  }

  __device__ __forceinline__ void run_bias(const FmhaBiasSizes& sizes, const BiasTile& t) {
    float sums[kQueries] = {};
    add_biases(t, sums);
    const bool has_queries = sizes.of[2] > 1 || g.seqlen_q == 1;
    const bool has_keys = sizes.of[3] > 1 || g.seqlen_k == 1;
    if (!has_queries) add_rows(sums);
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      if (!has_keys) sums[r] = sum_of_warp(sums[r]);
      const i64 query = has_queries ? t.begin[2] + warp * kQueries + r : warp * kQueries + r;
      const i64 key = has_keys ? t.begin[3] + lane : lane;
      if (query >= sizes.of[2] || key >= sizes.of[3]) continue;
      const i64 at = offset_of_dbias(sizes, t.begin[0], t.begin[1], query, key);
      using Bias = typename FmhaDbias<C>::Type;
      static_cast<Bias*>(a.dbias)[at] = rounded<Bias>(sums[r]);
    }
  }

 public:
  static __device__ __forceinline__ void run(const DirectBackwardArguments& a) {
    const FmhaArguments& g = a.backward.forward;
    FmhaBackwardKernel kernel(a, shared());
#pragma unroll 1
    for (i64 batch = blockIdx.z; batch < g.batch; batch += gridDim.z) {
      kernel.batch = batch;
      kernel.s = sequence_of<C::kLengths, FmhaPages::none>(g, batch);
#pragma unroll 1
      for (i64 head_kv = blockIdx.y; head_kv < g.heads_kv; head_kv += gridDim.y) {
        kernel.head = head_kv * (g.heads / g.heads_kv);
#pragma unroll 1
        for (i64 key = i64{blockIdx.x} * kKeys; key < kernel.s.keys;
             key += i64{gridDim.x} * kKeys) {
          kernel.run_keys(key);
        }
      }
    }
  }

  // Calls visit(kernel, query) for each block of queries, which is this block's.
  template <class Visit>
  static __device__ __forceinline__ void for_each_block(const DirectBackwardArguments& a,
                                                        Visit visit) {
    const FmhaArguments& g = a.backward.forward;
    FmhaBackwardKernel kernel(a, shared());
#pragma unroll 1
    for (i64 batch = blockIdx.z; batch < g.batch; batch += gridDim.z) {
      kernel.batch = batch;
      kernel.s = sequence_of<C::kLengths, FmhaPages::none>(g, batch);
#pragma unroll 1
      for (i64 head = blockIdx.y; head < g.heads; head += gridDim.y) {
        kernel.head = head;
#pragma unroll 1
        for (i64 query = i64{blockIdx.x} * C::kTileM; query < kernel.s.queries;
             query += i64{gridDim.x} * C::kTileM) {
          visit(kernel, query);
        }
      }
    }
  }
  static __device__ __forceinline__ void prepare(const DirectBackwardArguments& a) {
    for_each_block(a, [](FmhaBackwardKernel& kernel, i64 query) { kernel.Scores::prepare(query); });
  }
  static __device__ __forceinline__ void dq(const DirectBackwardArguments& a) {
    for_each_block(a, [](FmhaBackwardKernel& kernel, i64 query) { kernel.run_queries(query); });
  }

  static __device__ __forceinline__ void dbias(const DirectBackwardArguments& a) {
    const FmhaArguments& g = a.backward.forward;
    const FmhaBiasSizes sizes = sizes_of_dbias(g, C::kBias);
    const i64 all[kTokenStrides] = {g.batch, g.heads, g.seqlen_q, g.seqlen_k};
    const i64 step[kTokenStrides] = {1, 1, C::kTileM, kKeys};
    const i64 key_blocks = sizes.of[3] > 1 ? (sizes.of[3] + kKeys - 1) / kKeys : sizes.of[3];
    const i64 query_blocks =
        sizes.of[2] > 1 ? (sizes.of[2] + C::kTileM - 1) / C::kTileM : sizes.of[2];
    FmhaBackwardKernel kernel(a, shared());
#pragma unroll 1
    for (i64 batch = blockIdx.z; batch < sizes.of[0]; batch += gridDim.z) {
#pragma unroll 1
      for (i64 head = blockIdx.y; head < sizes.of[1]; head += gridDim.y) {
#pragma unroll 1
        for (i64 block = blockIdx.x; block < query_blocks * key_blocks; block += gridDim.x) {
          const i64 at[kTokenStrides] = {batch, head, block / key_blocks * C::kTileM,
                                         block % key_blocks * kKeys};
          BiasTile t;
#pragma unroll
          for (int i = 0; i < kTokenStrides; ++i) {
            const bool is_shared = sizes.of[i] == 1 && all[i] != 1;
            t.begin[i] = is_shared ? 0 : at[i];
            t.end[i] = is_shared ? all[i] : at[i] + step[i];
          }
          kernel.run_bias(sizes, t);
        }
      }
    }
  }
};

}  // namespace tessera::device
