// Scores that are more than products times the scale, in a flash kernel of gradients: a soft cap, a
// bias and its gradient, ALiBi, dropout.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_block.h"
#include "tessera/device/cuda/math.h"
#include "tessera/device/cuda/vectors.h"
#include "tessera/device/fmha_dropout.h"

namespace tessera::device {

// Where a thread's scores lie: of a head and a sequence, from a query and a key on.
struct FlashScorePlace {
  i64 batch, head;
  int query, key, queries, keys;
};

// What a soft cap leaves of a score, and by what the score's gradient is to be multiplied for that.
struct FlashCapped {
  float score, slope;
};
template <class C>
__device__ __forceinline__ FlashCapped flash_capped(const FmhaArguments& g, float product) {
  const float x = product * g.scale;
  if constexpr (!C::kSoftCap) return {x, 1};
  // cap * tanh(x / cap), with an error of about 1e-7 cap.
  const float share =
      1.0F - 2.0F * reciprocal(exp2_fast(x * (2 * 1.44269504F) / g.soft_cap) + 1.0F);
  return {g.soft_cap * share, 1.0F - share * share};
}

// What is added to a score.
template <class C>
__device__ __forceinline__ float flash_added(const FmhaArguments& g, const FlashScorePlace& p,
                                             int down, int across) {
  if constexpr (C::kBias == FmhaBias::alibi) {
    const int distance = p.query + down + p.keys - p.queries - p.key - across;
    return -g.slopes[p.batch * g.slope_stride + p.head] * fabsf(static_cast<float>(distance));
  } else if constexpr (C::kBias == FmhaBias::elementwise) {
    if (p.query + down >= p.queries || p.key + across >= p.keys) return 0;
    const i64 place = p.batch * g.bias_stride[0] + p.head * g.bias_stride[1] +
                      (i64{p.query} + down) * g.bias_stride[2] +
                      (i64{p.key} + across) * g.bias_stride[3];
    return to_float(static_cast<const typename C::Bias*>(g.bias)[place]);
  } else {
    return 0;
  }
}

// A thread's scores of a warp with 16 keys and 32 queries: element i belongs to query i / 4 * 8 +
// i % 2 and to key i / 2 % 2 * 8, counted from the thread's first ones.
template <class C>
class FlashBends {
  static constexpr int kCount = 16;
  static constexpr int kQueries = kCount / 2;
  static constexpr bool kAdds = C::kBias != FmhaBias::none;

  const FmhaArguments& g;
  const int lane;
  FlashScorePlace place = {};
  float added[kAdds ? kCount : 1];
  float caps[C::kSoftCap ? kCount : 1];
  u32 kept[C::kDropout ? kQueries : 1];  // a bit for each key of the warp

  static constexpr __device__ __forceinline__ int down(int i) { return i / 4 * 8 + i % 2; }
  static constexpr __device__ __forceinline__ int across(int i) { return i / 2 % 2 * 8; }

  // A lane draws for one of the queries that four lanes share, and tells the others.
  __device__ __forceinline__ void draw() {
    const int own = lane / 4;
    const i64 query = place.query + own / 2 * 8 + own % 2;
    const PhiloxWords<u32> words =
        dropout_words(dropout_key(g), dropout_row(g, place.batch, place.head, query),
                      place.key / static_cast<int>(kKeysOfCounter));
    u32 bits = 0;
#pragma unroll
    for (int key = 0; key < static_cast<int>(kKeysOfCounter); ++key) {
      bits |= (dropout_byte(words, key) < static_cast<u32>(g.kept) ? 1U : 0U) << key;
    }
#pragma unroll
    for (int i = 0; i < kQueries; ++i) kept[i] = __shfl_sync(~0U, bits, i * 4 + lane % 4);
  }

  // All scores of a head, and where they share the slopes of all sequences, have one sum.
  __device__ __forceinline__ void add_slope(float* sums, const float (&gradients)[kCount]) const {
    const FmhaBiasSteps step = steps_of_dbias(sizes_of_dbias(g, C::kBias));
    const int first = place.query + place.keys - place.queries - place.key;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum -= gradients[i] * fabsf(static_cast<float>(first + down(i) - across(i)));
    }
    sum = sum_of_warp(sum);
    if (lane == 0) atomicAdd(sums + place.batch * step.of[0] + place.head * step.of[1], sum);
  }

 public:
  __device__ __forceinline__ FlashBends(const FmhaArguments& arguments, int of_warp)
      : g(arguments), lane(of_warp) {}

  // What the scores need besides products.
  __device__ __forceinline__ void fetch(const FlashScorePlace& at) {
    place = at;
    if constexpr (kAdds) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) added[i] = flash_added<C>(g, place, down(i), across(i));
    }
    if constexpr (C::kDropout) draw();
  }
  // Makes scores of products.
  __device__ __forceinline__ void bend(float (&scores)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const FlashCapped capped = flash_capped<C>(g, scores[i]);
      if constexpr (C::kSoftCap) caps[i] = capped.slope;
      scores[i] = capped.score + (kAdds ? added[kAdds ? i : 0] : 0.0F);
    }
  }
  // What dropout multiplies a weight with.
  __device__ __forceinline__ float factor(int i) const {
    if constexpr (!C::kDropout) return 1;
    const u32 bit = kept[C::kDropout ? i / 4 * 2 + i % 2 : 0] >> (lane / 4 + across(i)) & 1U;
    return bit != 0 ? dropout_scale(g) : 0.0F;
  }
  // The slope of the soft cap.
  __device__ __forceinline__ float cap(int i) const { return C::kSoftCap ? caps[i] : 1.0F; }

  // The gradients of scores are those of the bias. Where others share its elements, there are sums.
  __device__ __forceinline__ void store_dbias(void* dbias, float* sums,
                                              const float (&gradients)[kCount]) const {
    if constexpr (C::kBias == FmhaBias::alibi) return add_slope(sums, gradients);
    using Bias = typename C::Bias;
    const FmhaBiasSteps step = steps_of_dbias(sizes_of_dbias(g, C::kBias));
    const i64 first = place.batch * step.of[0] + place.head * step.of[1] +
                      place.query * step.of[2] + place.key * step.of[3];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (place.query + down(i) >= place.queries || place.key + across(i) >= place.keys) continue;
      const i64 at = first + down(i) * step.of[2] + across(i) * step.of[3];
      if (sums == nullptr) {
        static_cast<Bias*>(dbias)[at] = rounded<Bias>(gradients[i]);
      } else {
        atomicAdd(sums + at, gradients[i]);
      }
    }
  }
};

}  // namespace tessera::device
