// Scores that are more than products times the scale: a soft cap, a bias, ALiBi.
#pragma once

#include "tessera/device/cuda/fmha/flash_block.h"
#include "tessera/device/cuda/math.h"
#include "tessera/device/cuda/types.h"

namespace tessera::device {

// One of two numbers in a word.
template <class T>
__device__ __forceinline__ float half_of(u32 word, int which) {
  T x;
  x.bits = static_cast<u16>(which == 0 ? word : word >> 16);
  return to_float(x);
}

// Scores of two rows, `row` and 8 further on, and of the keys from `key` on. Rows count from the
// consumer's first.
template <class C>
class FlashScores {
  const FmhaArguments& g;
  const int query, key;
  const int queries, keys;
  const float cap, unit;  // unit: of products, in powers of 2 with a cap
  // Products of 8 bits come multiplied by the scale and their factors.
  static constexpr bool kIsScaled = FlashBlock<C>::kConverts;
  float slope = 0;
  int distance = 0;  // from the query's diagonal to `key`
  const typename C::Bias* bias = nullptr;

 public:
  __device__ __forceinline__ FlashScores(const FlashArguments& a, const FlashTile& tile, int row,
                                         int first_key)
      : g(a.fmha),
        query(tile.row + row),
        key(first_key),
        queries(FlashSeen<C>::queries_of(a, tile)),
        keys(FlashSeen<C>::keys_of(a, tile)),
        cap(g.soft_cap),
        unit(C::kSoftCap ? (kIsScaled ? 1.0F : g.scale) * (2 * 1.44269504F) / cap
                         : (kIsScaled ? 1.0F : g.scale)) {
    if constexpr (C::kBias == FmhaBias::alibi) {
      slope = g.slopes[tile.batch * g.slope_stride + tile.head];
      distance = query + keys - queries - key;
    }
    if constexpr (C::kBias == FmhaBias::elementwise) {
      bias = static_cast<const typename C::Bias*>(g.bias) + tile.batch * g.bias_stride[0] +
             tile.head * g.bias_stride[1] + query * g.bias_stride[2] + key * g.bias_stride[3];
    }
  }

  // The score of the row that is `down` further on and the key that is `across` further on. Their
  // product is x.
  __device__ __forceinline__ float score(float x, int down, int across) const {
    x *= unit;
    // cap * tanh(score / cap), with an error of about 1e-7 cap.
    if constexpr (C::kSoftCap) x = cap - 2.0F * cap * reciprocal(exp2_fast(x) + 1.0F);
    if constexpr (C::kBias == FmhaBias::alibi) {
      x -= slope * fabsf(static_cast<float>(distance + down - across));
    }
    if constexpr (C::kBias == FmhaBias::elementwise && !FlashBlock<C>::kFetchesBias) {
      if (has(down, across)) {
        x += to_float(bias[down * g.bias_stride[2] + across * g.bias_stride[3]]);
      }
    }
    return x;
  }

  // The biases of a block in types of two bytes: pairs of keys, of one row and then of the other.
  template <int kCount>
  __device__ __forceinline__ void fetch(u32 (&pairs)[kCount]) const {
    const u64 places = reinterpret_cast<u64>(bias) | static_cast<u64>(g.bias_stride[2]) * 2;
    const bool is_plain = g.bias_stride[3] == 1 && places % 4 == 0 && has(8, kCount * 4 - 8 + 1);
    if (__all_sync(~0U, is_plain)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        pairs[i] = *reinterpret_cast<const u32*>(bias + i % 2 * 8 * g.bias_stride[2] + i / 2 * 8);
      }
    } else {
      const typename C::Bias* p = bias;
#pragma unroll
      for (int i = 0; i < kCount; i += 2, p += 8 * g.bias_stride[3]) {
        pairs[i] = pair(p, 0, i * 4);
        pairs[i + 1] = pair(p + 8 * g.bias_stride[2], 8, i * 4);
      }
    }
  }

 private:
  __device__ __forceinline__ u32 pair(const typename C::Bias* p, int down, int across) const {
    const u32 low = has(down, across) ? p[0].bits : 0;
    const u32 high = has(down, across + 1) ? p[g.bias_stride[3]].bits : 0;
    return low | high << 16;
  }
  // The tile that ends a block's work has no keys: its block is the one before the first. Without a
  // sign its keys are behind the last one.
  __device__ __forceinline__ bool has(int down, int across) const {
    return query + down < queries && static_cast<u32>(key + across) < static_cast<u32>(keys);
  }
};

}  // namespace tessera::device
