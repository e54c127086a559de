// The gradients of scores on the ordinary cores of a GPU: some queries of a block meet 32 keys in
// shared memory. What the kernels of all gradients begin with.
#pragma once

#include "tessera/device/cuda/fmha/backward_sizes.h"
#include "tessera/device/cuda/fmha/direct_backward_arguments.h"
#include "tessera/device/cuda/fmha/key_range.h"
#include "tessera/device/cuda/fmha/lane_products.h"
#include "tessera/device/cuda/math.h"
#include "tessera/device/fmha_backward.h"
#include "tessera/device/fmha_dropout.h"

namespace tessera::device {

// A block of kTileM queries of one head and a block of keys of the key-value head that it shares. A
// warp has kQueries of the queries, and a lane of it one key.
template <class C>
struct BackwardScores {
  using In = typename C::In;
  static constexpr int kKeys = C::kTileN;
  static constexpr int kQueries = C::kTileM / C::kWaveM;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(In));
  static constexpr FmhaBackwardSizes kSizes =
      fmha_backward_sizes(C::kTileM, C::kTileK, C::kHdimV, static_cast<int>(sizeof(In)));
  static_assert(kKeys == kFmhaDirectKeys, "a lane has one key of a block");
  static_assert(C::kTileM % C::kWaveM == 0, "warps have equally many queries");

  using Rows = TokenRows<In, C::kWaveM>;
  using Run = typename Rows::Run;
  using Range = FmhaKeyRange<kKeys>;
  using Four = FourFloats;

  const FmhaBackwardArguments& a;
  const FmhaArguments& g;
  unsigned char* const memory;
  const int lane, warp;
  FmhaSequence s{};
  i64 batch = 0, head = 0;
  QueryRows rows;
  float lse[kQueries], log_sum[kQueries], delta[kQueries];  // of the warp's queries

  __device__ __forceinline__ BackwardScores(const DirectBackwardArguments& arguments,
                                            unsigned char* shared)
      : a(arguments.backward),
        g(arguments.backward.forward),
        memory(shared),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        rows(rows_in(
            reinterpret_cast<float*>(static_cast<char*>(arguments.workspace) + kCounterBytes), g,
            C::kLengths)) {}

  // ---- places ----

  __device__ __forceinline__ i64 head_kv() const { return head * g.heads_kv / g.heads; }

  // A head of a token, which counts through packed sequences.
  template <class T>
  __device__ __forceinline__ T* token(const void* base, const i64 (&stride)[kTokenStrides],
                                      i64 head_index, i64 index) const {
    const i64 sequence = C::kLengths == FmhaLengths::packed ? 0 : batch * stride[kTokenBatch];
    return static_cast<T*>(const_cast<void*>(base)) + sequence + head_index * stride[kTokenHead] +
           index * stride[kToken];
  }
  __device__ __forceinline__ float* query_row(int row) const {
    return reinterpret_cast<float*>(memory + row * kSizes.query_row);
  }
  __device__ __forceinline__ float* dout_row(int row) const {
    return reinterpret_cast<float*>(memory + kSizes.dout_block + row * kSizes.dout_row);
  }
  __device__ __forceinline__ In* key_row(int row) const {
    return reinterpret_cast<In*>(memory + kSizes.key_block + row * kSizes.key_row);
  }
  __device__ __forceinline__ In* value_row(int row) const {
    return reinterpret_cast<In*>(memory + kSizes.value_block + row * kSizes.value_row);
  }
  __device__ __forceinline__ float* weight_row(int row) const {
    return reinterpret_cast<float*>(memory + kSizes.weight_block) + row * kKeys;
  }
  __device__ __forceinline__ float* gradient_row(int row) const {
    return reinterpret_cast<float*>(memory + kSizes.gradient_block) + row * kKeys;
  }

  // The keys that the block of queries from `first` on sees.
  __device__ __forceinline__ Range range_of_block(i64 first) const {
    const i64 end = first + C::kTileM < s.queries ? first + C::kTileM : s.queries;
    return key_range<C::kMasked, kKeys>(g, s, first, end - 1);
  }

  // ---- tokens on their way to shared memory ----

  __device__ __forceinline__ Rows rows_of(const void* base, const i64 (&stride)[kTokenStrides],
                                          i64 head_index, i64 index, i64 left, i64 hdim) const {
    return {
        {token<const In>(base, stride, head_index, index), stride[kToken], stride[kTokenElement]},
        left,
        static_cast<int>(hdim)};
  }

  template <int kHdim, class Row>
  __device__ __forceinline__ void bring_floats(const Rows& from, Row row_of) const {
    from.template bring<C::kTileM, kHdim>(
        lane, warp, [row_of](int row, int element, const Run& run) {
          float* const to = row_of(row) + element;
#pragma unroll
          for (int i = 0; i < kVector; i += 4) {
            *reinterpret_cast<Four*>(to + i) = {{to_float(run.x[i]), to_float(run.x[i + 1]),
                                                 to_float(run.x[i + 2]), to_float(run.x[i + 3])}};
          }
        });
  }

  // The block of queries from `first` on, and dout of each.
  __device__ __forceinline__ void bring_queries(i64 first) const {
    const i64 left = s.queries - first, at = s.first_query + first;
    bring_floats<C::kTileK>(rows_of(g.q, g.q_stride, head, at, left, g.hdim),
                            [this](int row) { return query_row(row); });
    bring_floats<C::kHdimV>(rows_of(a.dout, a.dout_stride, head, at, left, g.hdim_v),
                            [this](int row) { return dout_row(row); });
  }

  __device__ __forceinline__ void bring_keys(i64 first) const {
    const i64 left = s.keys - first, at = s.first_key + first;
    rows_of(g.k, g.k_stride, head_kv(), at, left, g.hdim)
        .template bring<kKeys, C::kTileK>(lane, warp, [this](int row, int element, const Run& run) {
          *reinterpret_cast<Run*>(key_row(row) + element) = run;
        });
    rows_of(g.v, g.v_stride, head_kv(), at, left, g.hdim_v)
        .template bring<kKeys, C::kHdimV>(lane, warp, [this](int row, int element, const Run& run) {
          *reinterpret_cast<Run*>(value_row(row) + element) = run;
        });
  }

  __device__ __forceinline__ i64 row_of(i64 query) const {
    return row_of_query(g, C::kLengths, batch, head, s.first_query + query);
  }

  // What prepare() has left of this warp's queries of the block from `first` on.
  __device__ __forceinline__ void read_rows(i64 first) {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const i64 query = first + warp * kQueries + r;
      const bool is_there = query < s.queries;
      const i64 at = is_there ? row_of(query) : 0;
      lse[r] = is_there ? rows.lse[at] : minus_infinity();
      log_sum[r] = is_there ? rows.log_sum[at] : 0.0F;
      delta[r] = is_there ? rows.delta[at] : 0.0F;
    }
  }

  // ---- scores and their gradients ----

  __device__ __forceinline__ float bias_of(i64 query, i64 key) const {
    if constexpr (C::kBias == FmhaBias::elementwise) {
      const i64 place = batch * g.bias_stride[0] + head * g.bias_stride[1] +
                        query * g.bias_stride[2] + key * g.bias_stride[3];
      return to_float(static_cast<const typename C::Bias*>(g.bias)[place]);
    } else if constexpr (C::kBias == FmhaBias::alibi) {
      return alibi_of(g.slopes[batch * g.slope_stride + head], s, query, key);
    } else {
      return 0;
    }
  }

  // What dropout multiplies a weight with.
  __device__ __forceinline__ float kept(i64 query, i64 key) const {
    if constexpr (!C::kDropout) return 1;
    const auto words =
        dropout_words(dropout_key(g), dropout_row(g, batch, head, query), key / kKeysOfCounter);
    return dropout_byte(words, key) < static_cast<u32>(g.kept) ? dropout_scale(g) : 0.0F;
  }

  // A weight times what dropout multiplies it with, and the gradients of its score and of what the
  // soft cap was given.
  struct Gradient {
    float weight, of_score, of_product;
  };
  struct Query {
    float lse, log_sum, delta;
  };
  // The product as the soft cap leaves it, and the score. Each step is rounded, so that equal
  // products give equal bits wherever the function is compiled: a difference from lse is then 0
  // where it should be.
  __device__ __forceinline__ float capped_of(float product) const {
    const float x = __fmul_rn(product, g.scale);
    return C::kSoftCap ? __fmul_rn(g.soft_cap, tanhf(x / g.soft_cap)) : x;
  }
  __device__ __forceinline__ float score_of(float capped, i64 query, i64 key) const {
    return __fadd_rn(capped, bias_of(query, key));
  }
  __device__ __forceinline__ Gradient gradient_of(float product, float dweight, i64 query, i64 key,
                                                  const Query& of) const {
    const float capped = capped_of(product);
    const float weight = exp_fast(score_of(capped, query, key) - of.lse - of.log_sum);
    const float by = kept(query, key);
    const float of_score = score_gradient(weight, by, dweight, of.delta);
    const float slope = C::kSoftCap ? cap_gradient(capped, g.soft_cap) : 1.0F;
    return {weight * by, of_score, of_score * slope};
  }

  __device__ __forceinline__ bool sees(i64 query, i64 key) const {
    return query < s.queries && key < s.keys && keys_of<C::kMasked>(g, s, query).has(key);
  }

  // Fills this warp's rows of weights and gradients, for the block of queries from `first` on
  // and the block of keys from `key` on. The gradients belong to the products, or to the scores.
  template <bool kOfScores>
  __device__ __forceinline__ void compute(i64 first, i64 key) {
    float x[kQueries], y[kQueries];
    const int row = warp * kQueries;
    multiply_rows(query_row(row), kSizes.query_row, key_row(lane), static_cast<int>(g.hdim), x);
    multiply_rows(dout_row(row), kSizes.dout_row, value_row(lane), static_cast<int>(g.hdim_v), y);
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      weight_row(row + r)[lane] = x[r], gradient_row(row + r)[lane] = y[r];
    }
    // What the loop calls is long, so that it is not unrolled; its operands are in shared memory.
#pragma unroll 1
    for (int r = 0; r < kQueries; ++r) {
      const i64 query = first + row + r;
      Query of = {minus_infinity(), 0, 0};
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        if (i == r) of = {lse[i], log_sum[i], delta[i]};
      }
      Gradient found = {0, 0, 0};
      if (sees(query, key + lane) && of.lse != minus_infinity()) {
        found = gradient_of(weight_row(row + r)[lane], gradient_row(row + r)[lane], query,
                            key + lane, of);
      }
      weight_row(row + r)[lane] = found.weight;
      gradient_row(row + r)[lane] = kOfScores ? found.of_score : found.of_product;
    }
  }
};

}  // namespace tessera::device
