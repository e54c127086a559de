// Any attention forward on the ordinary lanes of a GPU: every mask, bias, stride and alignment,
// keys and values in pages of a cache, and any heads of up to tile_k and hdim_v elements. A wave
// goes through its queries' keys in blocks of its lanes, with an online softmax in fp32, and meets
// no other wave: keys and values come from memory, queries lie in LDS.
//
// Launch: workgroups of wave_m waves; grid {blocks of tile_m queries of the longest
// sequence, query heads, batch}. A workgroup takes further blocks where a side of the grid is
// shorter.
#pragma once

#include "tessera/device/hip/fmha/check_pages.h"
#include "tessera/device/hip/fmha/direct_sizes.h"
#include "tessera/device/hip/fmha/key_places.h"

namespace tessera::device {

// For the scores a lane has one key, and all queries of its wave. For the sums over the values it
// has elements of v, as far apart as a wave has lanes, and again all queries of its wave.
template <class C>
class DirectFmha {
  using In = typename C::In;
  using Kv = typename C::Kv;
  using Out = typename C::Out;
  static constexpr int kQueries = C::kTileM / C::kWaveM;            // of a wave
  static constexpr int kParts = (C::kHdimV + kLanes - 1) / kLanes;  // elements of v, of a lane
  static constexpr int kTogether = kParts > 4 ? 2 : 4;              // values under way
  static constexpr int kRow = hip_direct_row_bytes(C::kTileK);
  static constexpr bool kKeysDiffer = scales_keys(C::kQscale);
  static_assert(C::kTileN == kLanes, "a lane has one key of a block");
  static_assert(C::kTileM % C::kWaveM == 0, "waves have equally many queries");

  const FmhaSequence& s;
  Shared* const queries;  // of this wave
  const int batch, head, head_kv;
  const i64 first;  // query of the wave
  const int count;  // of the wave's queries
  const int lane;
  float most[kQueries], total[kQueries];  // of the scores; of the weights of this lane's keys
  float sums[kQueries][kParts];

  // The arguments begin with those of attention. Each function loads what it needs: there are more
  // of them than scalar registers.
  static __device__ __forceinline__ const FmhaArguments& arguments() {
    return fresh_arguments<FmhaArguments>();
  }

  __device__ __forceinline__ DirectFmha(const FmhaSequence& sequence, Shared* lds, int batch_index,
                                        int head_index, i64 first_query, int query_count)
      : s(sequence),
        queries(lds),
        batch(batch_index),
        head(head_index),
        head_kv(head_of_keys(arguments(), head)),
        first(first_query),
        count(query_count),
        lane(lane_of_wave()) {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      most[r] = minus_infinity();
      total[r] = 0;
#pragma unroll
      for (int i = 0; i < kParts; ++i) sums[r][i] = 0;
    }
  }

  // Rows of floats, times their factors; zeros behind a head's end and in place of queries that
  // are not there.
  __device__ __forceinline__ void bring_queries() const {
    const FmhaArguments& g = arguments();
#pragma unroll 1
    for (int r = 0; r < kQueries; ++r) {
      const bool is_there = r < count;
      const i64 query = is_there ? first + r : first;
      const In* const from =
          static_cast<const In*>(g.q) +
          token_place<C::kLengths>(g.q_stride, batch, head, s.first_query + query);
      const float by = query_factor<C::kQscale>(g, batch, head, query);
#pragma unroll 1
      for (int i = lane; i < kRow / 4; i += kLanes) {
        float x = 0;
        if (is_there && i < g.hdim) {
          x = by * widened(load_element(from + i * g.q_stride[kTokenElement]));
        }
        store_shared(queries + r * kRow + i * 4, x);
      }
    }
    wave_barrier();
  }

  // ---- scores ----

  // The products of this lane's key and all queries.
  __device__ __forceinline__ void multiply(i64 key, float (&x)[kQueries]) const {
    const FmhaArguments& g = arguments();
    const KeyPlaces<C> keys{g, s, batch, head_kv};
    const Kv* const token = keys.key(key);
    const int hdim = static_cast<int>(g.hdim);
#pragma unroll
    for (int r = 0; r < kQueries; ++r) x[r] = 0;
    const bool is_whole = keys.has_neighbours() && hdim % 4 == 0 && four_aligned(token);
    if (lanes_with(!is_whole) == 0) {
#pragma unroll 4
      for (int i = 0; i < hdim; i += 4) add_four(load_four(token + keys.element(i)), i, x);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < hdim; i += 4) {
      Float4 k = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j < hdim) k[j] = widened(load_element(token + keys.element(i + j)));
      }
      add_four(k, i, x);
    }
  }
  __device__ __forceinline__ void add_four(const Float4& k, int element,
                                           float (&x)[kQueries]) const {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const Float4 q = load_shared<Float4>(queries + r * kRow + element * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[r] += q[j] * k[j];
    }
  }

  // The score of a query and a key whose product times its factor is x.
  __device__ __forceinline__ float score_of(float x, i64 query, i64 key) const {
    const FmhaArguments& g = arguments();
    if constexpr (C::kSoftCap) x = g.soft_cap * tanh_fast(x * reciprocal(g.soft_cap));
    if constexpr (C::kBias == FmhaBias::elementwise) {
      using Bias = typename C::Bias;
      x += widened(load_element(static_cast<const Bias*>(g.bias) + batch * g.bias_stride[0] +
                                head * g.bias_stride[1] + query * g.bias_stride[2] +
                                key * g.bias_stride[3]));
    }
    if constexpr (C::kBias == FmhaBias::alibi) {
      x += alibi_of(load_element(g.slopes + batch * g.slope_stride + head), s, query, key);
    }
    return x;
  }

  // Adds a score to the softmax of query r and returns what the lane weighs its key with; the sums
  // so far are scaled to the new maximum. A NaN never becomes the maximum, but it makes the weight
  // NaN, and so does +inf.
  __device__ __forceinline__ float weigh(int r, float x) {
    const float top = __builtin_fmaxf(most_of_lanes(x), most[r]);
    const float offset = top == minus_infinity() ? 0.0F : top;
    const float weight = exp_fast(x - offset);
    if (lanes_with(top != most[r]) != 0) {  // the same in all lanes
      const float factor = exp_fast(most[r] - offset);
      total[r] *= factor;
#pragma unroll
      for (int i = 0; i < kParts; ++i) sums[r][i] *= factor;
      most[r] = top;
    }
    total[r] += weight;
    return weight;
  }

  // What stands in place of the weight of a key that a query does not see. Weights are finite or
  // NaN, times factors of any sign.
  static __device__ __forceinline__ float unseen() { return minus_infinity(); }
  static __device__ __forceinline__ bool is_unseen(float weight) {
    return C::kMasked && bits<u32>(weight) == bits<u32>(minus_infinity());
  }

  // ---- dropout ----

  // A block of keys has some counters for each query: a lane makes the bits of one for all lanes.
  __device__ __forceinline__ void drop(i64 from, float (&weights)[kQueries]) const {
    const FmhaArguments& g = arguments();
    constexpr int kCounters = kLanes / static_cast<int>(kKeysOfCounter);  // of a query
    static_assert(kQueries * kCounters <= kLanes, "a wave has a lane for each counter");
    const i64 here = uniform_here(first);
    const int rows = uniform_here(count);
    const int own = not_ahead(lane);  // else the comparisons below stay in scalar registers
    const DropoutKey key = dropout_key(g);
    const u32 kept = static_cast<u32>(g.kept);
    const DropoutRow row = dropout_row(g, batch, head, here + lane / kCounters);
    const PhiloxWords<u32> mine = dropout_words(key, row, from / kKeysOfCounter + lane % kCounters);
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      u32 word = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 other = from_lane(mine.w[i], r * kCounters + lane / 16);
        if (own % 16 / 4 == i) word = other;
      }
      const u32 byte = dropout_byte(word, lane);
      const bool is_seen = !is_unseen(weights[r]);
      if (byte >= kept && is_seen) weights[r] = 0;
      if constexpr (C::kRandom) {
        if (!is_seen || r >= rows || from + lane >= s.keys) continue;
        u8* const to = random_row(g, batch, head, s.first_query + here + r) + from + lane;
        store_element(to, static_cast<u8>(byte));
      }
    }
  }

  // ---- sums over the values ----

  // Adds the values of a block of keys, of which a lane knows the place and the weights of one.
  // Keys that a query does not see are left out: 0 times an infinity would be NaN.
  __device__ __forceinline__ void add_values(i64 place, int keys,
                                             const float (&weights)[kQueries]) {
    const FmhaArguments& g = arguments();
    i64 own[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const i64 element = lane + i * kLanes;
      own[i] = (element < g.hdim_v ? element : g.hdim_v - 1) * g.v_stride[kTokenElement];
    }
#pragma unroll 1
    for (int key = 0; key < keys; key += kTogether) {
      float v[kTogether][kParts];
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        const Kv* const from = static_cast<const Kv*>(g.v) + number_of(place, key + t);
#pragma unroll
        for (int i = 0; i < kParts; ++i) v[t][i] = widened(load_element(from + own[i]));
      }
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
#pragma unroll
        for (int r = 0; r < kQueries; ++r) {
          const float weight = number_of(weights[r], key + t);
          if (is_unseen(weight)) continue;
#pragma unroll
          for (int i = 0; i < kParts; ++i) sums[r][i] += weight * v[t][i];
        }
      }
    }
  }

  // The block of keys from `from` on. Lanes behind the last key have that one, unseen.
  __device__ __forceinline__ void add_block(i64 from) {
    const i64 here = uniform_here(first), end = uniform_here(s.keys);
    const i64 own = from + lane, key = own < end ? own : end - 1;
    const int rows = uniform_here(count);
    float x[kQueries], weights[kQueries];
    multiply(key, x);
    float by = score_factor<C::kQscale, In>(arguments()), of_value = 1;
    if constexpr (kKeysDiffer) {
      const FmhaArguments& g = arguments();
      const i64 factor = key_factor_place<C::kQscale, C::kPages>(g, s, batch, head_kv, key);
      by *= load_element(g.descale_k + factor);
      of_value = load_element(g.descale_v + factor);
    }
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const i64 query = here + r;
      const bool sees =
          r < rows && own < end && keys_of<C::kMasked>(arguments(), s, query).has(own);
      float score = minus_infinity();
      if (sees) score = score_of(x[r] * by, query, own);
      const float weight = weigh(r, score);
      weights[r] = C::kMasked && !sees ? unseen() : weight * of_value;
    }
    if constexpr (C::kDropout) drop(from, weights);
    add_values(KeyPlaces<C>{arguments(), s, batch, head_kv}.value(key),
               static_cast<int>(end - from < kLanes ? end - from : kLanes), weights);
  }

  // ---- results ----

  __device__ __forceinline__ void store() const {
    const FmhaArguments& g = arguments();
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      if (r >= count) return;
      const float all = sum_of_lanes(total[r]);
      // 0 where there is no key, or no key with a finite score.
      const float by = all == 0 ? 0.0F : (C::kDropout ? dropout_scale(g) : 1.0F) / all;
      const i64 token = s.first_query + first + r;
      Out* const out =
          static_cast<Out*>(g.out) + token_place<C::kLengths>(g.out_stride, batch, head, token);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const i64 element = lane + i * kLanes;
        if (element >= g.hdim_v) continue;
        const float x = scaled_result<C::kQscale, Out>(g, by == 0 ? 0.0F : sums[r][i] * by);
        store_element(out + element * g.out_stride[kTokenElement], rounded<Out>(x));
      }
      if (C::kLse && not_ahead(lane) == 0) {
        float* const lse =
            g.lse + batch * g.lse_stride[0] + head * g.lse_stride[1] + token * g.lse_stride[2];
        store_element(lse, all == 0 ? minus_infinity() : most[r] + log_fast(all));
      }
    }
  }

  __device__ __forceinline__ void run_wave() {
    bring_queries();
    for_each_key_block<kLanes>(seen_keys<C::kMasked>(arguments(), s, first, first + count - 1),
                               [this](i64 key) { add_block(key); });
    store();
    wave_barrier();  // the next block's queries take the place of these
  }

 public:
  static __device__ __forceinline__ void run(const HipFmhaArguments&) {
    __shared__
        __attribute__((aligned(16))) static u8 memory[hip_direct_lds_bytes(C::kTileM, C::kTileK)];
    if (C::kPages != FmhaPages::none && has_bad_page(arguments())) return;
    const int wave = wave_of_block();
    Shared* const queries = (Shared*)memory + wave * kQueries * kRow;
    const auto counts = [] {
      const HipFmhaArguments& all = fresh_arguments<HipFmhaArguments>();
      const FmhaArguments& g = all.attention;
      return BlockCounts{g.batch, g.heads, (g.seqlen_q + C::kTileM - 1) / C::kTileM, all.grid};
    };
    for_each_block(counts, [&](int batch, int head, int index) {
      const FmhaSequence s = uniform_sequence<C::kLengths, C::kPages>(arguments(), batch);
      // With a mask the last queries see most: they begin first.
      const i64 tile = C::kMasked ? counts().blocks - 1 - index : index;
      const i64 first = tile * C::kTileM + wave * kQueries;
      const i64 left = s.queries - first;
      if (left <= 0) return;
      const int count = static_cast<int>(left < kQueries ? left : kQueries);
      DirectFmha(s, queries, batch, head, first, count).run_wave();
    });
  }

  static __device__ __forceinline__ void check(const HipFmhaArguments&) {
    check_pages<C::kLengths, C::kPages>(arguments());
  }
};

}  // namespace tessera::device
