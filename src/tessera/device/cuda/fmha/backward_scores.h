// The gradients of scores on the ordinary cores of a GPU: some queries of a block meet 32 keys in
// shared memory. What the kernels of all gradients begin with.
#pragma once

#include "tessera/device/cuda/fmha/backward_sizes.h"
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
  float lse[kQueries], delta[kQueries];  // of the warp's queries

  __device__ __forceinline__ BackwardScores(const FmhaBackwardArguments& arguments,
                                            unsigned char* shared)
      : a(arguments),
        g(arguments.forward),
        memory(shared),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32) {}

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

  // Of the block of queries from `first` on.
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

  // lse and delta = <dout, out> of this warp's queries of the block, which was brought.
  __device__ __forceinline__ void read_sums(i64 first) {
#pragma unroll 1
    for (int r = 0; r < kQueries; ++r) {
      const int row = warp * kQueries + r;
      float sum = 0, logarithm = minus_infinity();
      if (first + row < s.queries) {
        const i64 at = s.first_query + first + row;
        const In* const out = token<const In>(g.out, g.out_stride, head, at);
        for (int i = lane; i < static_cast<int>(g.hdim_v); i += 32) {
          sum += dout_row(row)[i] * to_float(out[i * g.out_stride[kTokenElement]]);
        }
        logarithm = g.lse[offset_of_lse(g, batch, head, at)];
      }
      sum = sum_of_warp(sum);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        if (i == r) delta[i] = sum, lse[i] = logarithm;
      }
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
  __device__ __forceinline__ Gradient gradient_of(float product, float dweight, i64 query, i64 key,
                                                  float logarithm, float sum) const {
    float capped = product * g.scale;
    if constexpr (C::kSoftCap) capped = g.soft_cap * tanhf(capped / g.soft_cap);
    const float weight = exp_fast(capped + bias_of(query, key) - logarithm);
    const float by = kept(query, key);
    const float of_score = score_gradient(weight, by, dweight, sum);
    const float slope = C::kSoftCap ? cap_gradient(capped, g.soft_cap) : 1.0F;
    return {weight * by, of_score, of_score * slope};
  }

  // Fills this warp's rows of weights and gradients: of the queries of the block from `first` on
  // and the block of keys from `key` on. Gradients are those of the products, or of the scores.
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
      float logarithm = minus_infinity(), sum = 0;
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        if (i == r) logarithm = lse[i], sum = delta[i];
      }
      Gradient found = {0, 0, 0};
      const bool is_seen = query < s.queries && key + lane < s.keys &&
                           keys_of<C::kMasked>(g, s, query).has(key + lane);
      if (is_seen && logarithm != minus_infinity()) {
        found = gradient_of(weight_row(row + r)[lane], gradient_row(row + r)[lane], query,
                            key + lane, logarithm, sum);
      }
      weight_row(row + r)[lane] = found.weight;
      gradient_row(row + r)[lane] = kOfScores ? found.of_score : found.of_product;
    }
  }
};

}  // namespace tessera::device
