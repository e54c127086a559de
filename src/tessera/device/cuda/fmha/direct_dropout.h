// Dropout in the general kernel of attention: a warp has 32 keys, one a lane, and some queries.
#pragma once

#include "tessera/device/fmha_dropout.h"

namespace tessera::device {

// A warp's queries, from `query` on, and the keys from `key` on, which is a multiple of 32.
struct DropoutBlock {
  i64 batch, head, query, key;
  i64 token;  // the first query's
  int lane;
};

// weights[32 * r] belongs to query r and this lane's key; bit r of `seen`: whether the query sees
// the key. 32 keys have two counters for each query: a lane makes the bits of one of them for all
// lanes, so that a warp needs one round for 16 queries.
template <int kQueries, bool kRandom>
__device__ __forceinline__ void drop_weights(const FmhaArguments& g, const DropoutBlock& b,
                                             u32 seen, float* weights) {
  const DropoutKey key = dropout_key(g);
  const u32 kept = static_cast<u32>(g.kept);
#pragma unroll 1
  for (int base = 0; base < kQueries; base += 16) {
    const DropoutRow row = dropout_row(g, b.batch, b.head, b.query + base + b.lane / 2);
    const PhiloxWords<u32> mine = dropout_words(key, row, b.key / kKeysOfCounter + b.lane % 2);
#pragma unroll 1
    for (int r = base; r < kQueries && r < base + 16; ++r) {
      const int source = (r - base) * 2 + b.lane / 16;
      u32 word = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 other = __shfl_sync(~0U, mine.w[i], source);
        if (b.lane % 16 / 4 == i) word = other;
      }
      const u32 byte = dropout_byte(word, b.lane);
      const bool is_seen = (seen >> r & 1) != 0;
      if (is_seen && byte >= kept) weights[32 * r] = 0;
      if constexpr (kRandom) {
        unsigned char* const to = random_row(g, b.batch, b.head, b.token + r) + b.key + b.lane;
        if (is_seen) *to = static_cast<unsigned char>(byte);
      }
    }
  }
}

}  // namespace tessera::device
