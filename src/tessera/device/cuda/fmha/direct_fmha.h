// Any attention forward on the ordinary cores of a GPU: every mask, bias, stride and alignment,
// keys and values in pages of a cache, and any heads of up to tile_k and hdim_v elements. Keys go
// by in blocks of 32 through shared memory, with an online softmax in fp32.
//
// Launch: blocks of 32 * wave_m threads with fmha_direct_shared_bytes() of dynamic shared memory;
// grid {blocks of tile_m queries of the longest sequence, query heads, batch}. A block takes
// further tiles where a side of the grid is shorter.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/fmha/check_pages.h"
#include "tessera/device/cuda/fmha/direct_dropout.h"
#include "tessera/device/cuda/fmha/direct_scales.h"
#include "tessera/device/cuda/fmha/direct_sizes.h"
#include "tessera/device/cuda/fmha/key_range.h"
#include "tessera/device/cuda/fmha/lane_products.h"
#include "tessera/device/cuda/math.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

// For the scores a lane has one key, and all queries of its warp. For the sums over the values it
// has pairs of elements of v, 64 elements apart, and again all queries of its warp.
template <class C>
class FmhaKernel {
  using In = typename C::In;
  using Kv = typename C::Kv;
  using Out = typename C::Out;
  static constexpr int kKeys = C::kTileN;
  static constexpr int kQueries = C::kTileM / C::kWaveM;             // of a warp
  static constexpr int kPairs = (C::kHdimV + 63) / 64;               // of elements of v, of a lane
  static constexpr int kVector = 16 / static_cast<int>(sizeof(In));  // of queries
  static constexpr FmhaDirectSizes kSizes =
      fmha_direct_sizes(C::kTileM, C::kTileK, C::kHdimV, static_cast<int>(sizeof(Kv)));
  static_assert(kKeys == kFmhaDirectKeys, "a lane has one key of a block");
  static_assert(C::kTileM % C::kWaveM == 0, "warps have equally many queries");

  using Queries = TokenRows<In, C::kWaveM>;
  using Rows = TokenRows<Kv, C::kWaveM>;
  using Run = typename Rows::Run;
  using Range = FmhaKeyRange<kKeys>;
  using Four = FourFloats;

  const FmhaArguments& g;
  const FmhaSequence s;
  unsigned char* const memory;
  const i64 batch, head, head_kv;
  const int lane, warp;
  const i64 tile;                         // the block's first query
  const i64 first;                        // the warp's
  const int count;                        // of the warp's queries; 0 or less: there are none
  float most[kQueries], total[kQueries];  // of the scores; of the weights of this lane's keys
  float sums[kQueries][2 * kPairs];

  __device__ __forceinline__ FmhaKernel(const FmhaArguments& arguments,
                                        const FmhaSequence& sequence, unsigned char* shared,
                                        i64 batch_index, i64 head_index, i64 first_query)
      : g(arguments),
        s(sequence),
        memory(shared),
        batch(batch_index),
        head(head_index),
        head_kv(head_index * arguments.heads_kv / arguments.heads),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        tile(first_query),
        first(first_query + warp * kQueries),
        count(static_cast<int>(clamped(s.queries - first, 0, kQueries))) {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      most[r] = minus_infinity();
      total[r] = 0;
#pragma unroll
      for (int i = 0; i < 2 * kPairs; ++i) sums[r][i] = 0;
    }
  }

  // ---- places ----

  // A head's first token in this sequence.
  template <class T>
  __device__ __forceinline__ T* tokens(const void* base, const i64 (&stride)[kTokenStrides],
                                       i64 head_index, i64 token) const {
    const i64 sequence = C::kLengths == FmhaLengths::packed ? 0 : batch * stride[kTokenBatch];
    return static_cast<T*>(const_cast<void*>(base)) + sequence + head_index * stride[kTokenHead] +
           token * stride[kToken];
  }

  __device__ __forceinline__ float* query_row(int row) const {
    return reinterpret_cast<float*>(memory + row * kSizes.query_row);
  }
  __device__ __forceinline__ Kv* key_row(int row) const {
    return reinterpret_cast<Kv*>(memory + kSizes.key_block + row * kSizes.key_row);
  }
  __device__ __forceinline__ Kv* value_row(int row) const {
    return reinterpret_cast<Kv*>(memory + kSizes.value_block + row * kSizes.value_row);
  }
  // The weights of this warp's query r.
  __device__ __forceinline__ float* weight_row(int r) const {
    return reinterpret_cast<float*>(memory + kSizes.weight_block) + (warp * kQueries + r) * kKeys;
  }

  // ---- tokens on their way to shared memory ----

  __device__ __forceinline__ void bring_queries() const {
    const Queries from = {{tokens<const In>(g.q, g.q_stride, head, s.first_query + tile),
                           g.q_stride[kToken], g.q_stride[kTokenElement]},
                          s.queries - tile,
                          static_cast<int>(g.hdim)};
    const auto widen = [this](int row, int element, const typename Queries::Run& run) {
      float* const to = query_row(row) + element;
      const i64 query = tile + row < s.queries ? tile + row : s.queries - 1;
      const float by = query_factor<C::kQscale>(g, batch, head, query);
#pragma unroll
      for (int i = 0; i < kVector; i += 4) {
        *reinterpret_cast<Four*>(to + i) = {{by * to_float(run.x[i]), by * to_float(run.x[i + 1]),
                                             by * to_float(run.x[i + 2]),
                                             by * to_float(run.x[i + 3])}};
      }
    };
    from.template bring<C::kTileM, C::kTileK>(lane, warp, widen);
    if constexpr (Rows::kVector > kVector) clear_behind();
  }
  // Products take runs of keys, which may have more elements than those of queries: zeros behind
  // the end of a head.
  __device__ __forceinline__ void clear_behind() const {
    const int last = static_cast<int>(g.hdim) - 1;
    const int from = (last / kVector + 1) * kVector;
    const int to = (last / Rows::kVector + 1) * Rows::kVector;
#pragma unroll 1
    for (int row = static_cast<int>(threadIdx.x); row < C::kTileM; row += 32 * C::kWaveM) {
#pragma unroll 1
      for (int i = from; i < to; i += 4) {
        *reinterpret_cast<Four*>(query_row(row) + i) = {{0, 0, 0, 0}};
      }
    }
  }
  // Keys, or values, of this sequence from `key` on.
  template <bool kOfKeys>
  __device__ __forceinline__ auto rows_from(i64 key) const {
    const int hdim = static_cast<int>(kOfKeys ? g.hdim : g.hdim_v);
    if constexpr (C::kPages != FmhaPages::none) {
      using Paged = PagedTokens<Kv, C::kCacheLayout, kOfKeys>;
      return TokenRows<Kv, C::kWaveM, Paged>{{g, s, head_kv, key}, s.keys - key, hdim};
    } else {
      const i64(&stride)[kTokenStrides] = kOfKeys ? g.k_stride : g.v_stride;
      const Kv* const first =
          tokens<const Kv>(kOfKeys ? g.k : g.v, stride, head_kv, s.first_key + key);
      return Rows{{first, stride[kToken], stride[kTokenElement]}, s.keys - key, hdim};
    }
  }
  __device__ __forceinline__ void bring_keys(i64 key) const {
    const auto from = rows_from<true>(key);
    from.template bring<kKeys, C::kTileK>(lane, warp, [this](int row, int element, const Run& run) {
      *reinterpret_cast<Run*>(key_row(row) + element) = run;
    });
  }
  // Whether what this thread brought has a NaN or an infinity.
  __device__ __forceinline__ bool bring_values(i64 key) const {
    const auto from = rows_from<false>(key);
    float zero = 0;
    const auto keep = [this, &zero](int row, int element, const Run& run) {
      *reinterpret_cast<Run*>(value_row(row) + element) = run;
#pragma unroll
      for (int i = 0; i < Rows::kVector; ++i) zero += to_float(run.x[i]) * 0.0F;
    };
    from.template bring<kKeys, C::kHdimV>(lane, warp, keep);
    return zero != 0;
  }

  // ---- scores ----

  // The score of a query and a key whose product times its factor is x.
  __device__ __forceinline__ float score(float x, i64 query, i64 key) const {
    if constexpr (C::kSoftCap) x = g.soft_cap * tanhf(x * (1.0F / g.soft_cap));
    if constexpr (C::kBias == FmhaBias::elementwise) {
      const i64 place = batch * g.bias_stride[0] + head * g.bias_stride[1] +
                        query * g.bias_stride[2] + key * g.bias_stride[3];
      x += to_float(static_cast<const typename C::Bias*>(g.bias)[place]);
    }
    if constexpr (C::kBias == FmhaBias::alibi) {
      x += alibi_of(g.slopes[batch * g.slope_stride + head], s, query, key);
    }
    return x;
  }

  // Makes scores of this lane's products times `by`, -inf where a query does not see the key. Bit r
  // of the result: whether query r does. Products go through shared memory, so that the loop need
  // not be unrolled: what it calls is long.
  __device__ __forceinline__ u32 score_all(bool whole, i64 key, float by,
                                           float (&x)[kQueries]) const {
    static_assert(kQueries <= 32, "a word has a bit for each query");
    u32 seen = 0;
#pragma unroll
    for (int r = 0; r < kQueries; ++r) weight_row(r)[lane] = x[r];
#pragma unroll 1
    for (int r = 0; r < count; ++r) {
      const i64 query = first + r;
      if (!whole && !keys_of<C::kMasked>(g, s, query).has(key)) continue;
      float& place = weight_row(r)[lane];
      place = score(place * by, query, key);
      seen |= 1U << r;
    }
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      x[r] = (seen >> r & 1) != 0 ? weight_row(r)[lane] : minus_infinity();
    }
    return seen;
  }

  // Adds a score to the softmax of query r and returns what the lane weighs its key with; the sums
  // so far are scaled to the new maximum. A NaN never becomes the maximum, but it makes the weight
  // NaN, and so does +inf.
  __device__ __forceinline__ float weigh(int r, float x) {
    const float top = fmaxf(most_of_warp(x), most[r]);
    const float offset = top == minus_infinity() ? 0.0F : top;
    const float weight = exp_fast(x - offset);
    if (top != most[r]) {
      const float factor = exp_fast(most[r] - offset);
      total[r] *= factor;
#pragma unroll
      for (int i = 0; i < 2 * kPairs; ++i) sums[r][i] *= factor;
      most[r] = top;
    }
    total[r] += weight;
    return weight;
  }

  // ---- sums over the values ----

  // Adds value `key` of the block to all sums. With kWild, keys that a query does not see are left
  // out: the block has values that are not finite, and 0 times such a value would be NaN.
  template <bool kWild>
  __device__ __forceinline__ void add_value(int key, const float (&weights)[kQueries]) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const auto v =
          *reinterpret_cast<const Neighbours<Kv, 2>*>(value_row(key) + 64 * i + 2 * lane);
      const float x = to_float(v.x[0]);
      const float y = to_float(v.x[1]);
#pragma unroll
      for (int r = 0; r < kQueries; ++r) {
        if (kWild && is_unseen<C::kQscale>(weights[r])) continue;
        sums[r][2 * i] += weights[r] * x;
        sums[r][2 * i + 1] += weights[r] * y;
      }
    }
  }

  __device__ __forceinline__ void add_values(bool wild) {
    float weights[4][kQueries];
    if (wild) {
#pragma unroll 1
      for (int key = 0; key < kKeys; ++key) {
#pragma unroll
        for (int r = 0; r < kQueries; ++r) weights[0][r] = weight_row(r)[key];
        add_value<true>(key, weights[0]);
      }
      return;
    }
#pragma unroll 1
    for (int key = 0; key < kKeys; key += 4) {
#pragma unroll
      for (int r = 0; r < kQueries; ++r) {
        const Four four = *reinterpret_cast<const Four*>(weight_row(r) + key);
#pragma unroll
        for (int k = 0; k < 4; ++k) weights[k][r] = four.x[k];
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) add_value<false>(key + k, weights[k]);
    }
  }

  // The block of keys from `from` on.
  __device__ __forceinline__ void add_block(const Range& range, i64 from, bool wild) {
    constexpr bool kPlain = !C::kSoftCap && C::kBias == FmhaBias::none;
    const bool whole = range.has_all(from);
    const LaneFactors by =
        lane_factors<C::kQscale, C::kPages, In>(g, s, batch, head_kv, from + lane);
    float x[kQueries];
    const Kv* const mine = key_row(lane);
    multiply_rows(query_row(warp * kQueries), kSizes.query_row, mine, static_cast<int>(g.hdim), x);
    u32 seen = ~0U;
    if (kPlain && whole && count == kQueries) {
#pragma unroll
      for (int r = 0; r < kQueries; ++r) x[r] *= by.score;
    } else {
      seen = score_all(whole, from + lane, by.score, x);
    }
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const float weight = weigh(r, x[r]);
      const bool is_left_out = wild && (seen >> r & 1) == 0;
      weight_row(r)[lane] = is_left_out ? unseen<C::kQscale>() : weight * by.value;
    }
    if constexpr (C::kDropout) {
      drop_weights<kQueries, C::kRandom>(g, {batch, head, first, from, s.first_query + first, lane},
                                         seen, weight_row(0) + lane);
    }
    __syncwarp();
    add_values(wild);
  }

  // ---- results ----

  __device__ __forceinline__ void store_row(int r, float factor) const {
    Out* const out = tokens<Out>(g.out, g.out_stride, head, s.first_query + first + r);
    const i64 stride = g.out_stride[kTokenElement];
    const bool aligned = pairs_aligned(out, 0);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int element = 64 * i + 2 * lane;
      const int left = static_cast<int>(g.hdim_v) - element;
      // The factor is 0 where there is no key, or no key with a finite score.
      const auto result = [&](float sum) {
        return scaled_result<C::kQscale, Out>(g, factor == 0 ? 0.0F : sum * factor);
      };
      const float x = result(sums[r][2 * i]), y = result(sums[r][2 * i + 1]);
      if (stride == 1) {
        store_pair(out + element, round_output<Out>(x, y), left, aligned);
      } else {
        if (left > 0) out[element * stride] = rounded_output<Out>(x);
        if (left > 1) out[(element + 1) * stride] = rounded_output<Out>(y);
      }
    }
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      if (r >= count) return;
      const float all = sum_of_warp(total[r]);
      store_row(r, all == 0 ? 0.0F : (C::kDropout ? dropout_scale(g) : 1.0F) / all);
      if (C::kLse && lane == 0) {
        g.lse[batch * g.lse_stride[0] + head * g.lse_stride[1] +
              (s.first_query + first + r) * g.lse_stride[2]] =
            all == 0 ? minus_infinity() : most[r] + logf(all);
      }
    }
  }

  __device__ __forceinline__ void run_tile() {
    const i64 last = (tile + C::kTileM < s.queries ? tile + C::kTileM : s.queries) - 1;
    const Range all = key_range<C::kMasked, kKeys>(g, s, tile, last);
    const Range mine =
        key_range<C::kMasked, kKeys>(g, s, first, first + (count > 0 ? count - 1 : 0));
    const i64 begin = all.begin / kKeys * kKeys;
    bring_queries();
    i64 key = all.sink > 0 ? 0 : begin;
#pragma unroll 1
    while (key < all.end) {
      __syncthreads();
      bring_keys(key);
      const bool wild = __syncthreads_or(bring_values(key)) != 0;
      if (count > 0 && mine.has_some(key)) add_block(mine, key, wild);
      key += kKeys;
      if (key >= all.sink && key < begin) key = begin;
    }
    store();
    __syncthreads();  // the next tile's queries take the place of these
  }

 public:
  static __device__ __forceinline__ void run(const FmhaArguments& g) {
    extern __shared__ __align__(16) unsigned char fmha_memory[];
    if (C::kPages != FmhaPages::none && has_bad_page(g)) return;
    const i64 tiles = (g.seqlen_q + C::kTileM - 1) / C::kTileM;
#pragma unroll 1
    for (i64 batch = blockIdx.z; batch < g.batch; batch += gridDim.z) {
      const FmhaSequence s = sequence_of<C::kLengths, C::kPages>(g, batch);
#pragma unroll 1
      for (i64 head = blockIdx.y; head < g.heads; head += gridDim.y) {
#pragma unroll 1
        for (i64 index = blockIdx.x; index < tiles; index += gridDim.x) {
          // With a mask the last queries see most: they begin first.
          const i64 tile = (C::kMasked ? tiles - 1 - index : index) * C::kTileM;
          if (tile < s.queries) FmhaKernel(g, s, fmha_memory, batch, head, tile).run_tile();
        }
      }
    }
  }

  static __device__ __forceinline__ void check(const FmhaArguments& g) {
    check_pages<C::kLengths, C::kPages>(g);
  }
};

}  // namespace tessera::device
