// Which weights dropout keeps. A counter of Philox has the random bytes of 16 keys. Lanes l and
// l + 32 draw the counter of 16 keys of a block of 32 each, and exchange the halves that the other
// lane's scores need.
#pragma once

#include "tessera/device/hip/lanes.h"
#include "tessera/device/hip/memory.h"

#if defined(__HIP__)
#pragma clang force_cuda_host_device begin
#endif
#include "tessera/device/fmha_dropout.h"
#if defined(__HIP__)
#pragma clang force_cuda_host_device end
#endif

namespace tessera::device {

// A word that is the same in all lanes, in a scalar register.
__device__ __forceinline__ u32 same_in_all(u32 x) {
  return static_cast<u32>(__builtin_amdgcn_readfirstlane(static_cast<int>(x)));
}

// x where the bit is set, else 0; no scalar register takes part.
__device__ __forceinline__ float where_set(float x, u32 word, int bit) {
  return bits<float>(bits<u32>(x) & (0U - (word >> bit & 1U)));
}

// All are kept.
struct AllWeights {
  __device__ __forceinline__ void draw(int) {}
  __device__ __forceinline__ float kept(float weight, int) const { return weight; }
};

class KeptWeights {
 public:
  __device__ __forceinline__ KeptWeights(const DropoutKey& k, int kept_bytes,
                                         const DropoutRow& dropout_row, int tile_key, int lane)
      : key(k),
        bytes_kept(static_cast<u32>(kept_bytes)),
        row(dropout_row),
        first_key(tile_key),
        group(lane / 32),
        other(lane ^ 32) {}

  // Draws for block `block` of 32 keys.
  __device__ __forceinline__ void draw(int block) {
    const i64 part = (first_key + block * 32) / kKeysOfCounter + group;
    // The compiler would keep the keys of all rounds in scalar registers.
    DropoutKey fresh = key;
    asm volatile("" : "+s"(fresh.low), "+s"(fresh.high));
    const PhiloxWords<u32> drawn = dropout_words(fresh, row, part);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 low = drawn.w[2 * i], high = drawn.w[2 * i + 1];
      const u32 own = group != 0 ? high : low;
      const u32 others = from_lane(group != 0 ? low : high, other);
      words[i] = group != 0 ? others : own;
      words[2 + i] = group != 0 ? own : others;
    }
  }
  // The weight of score `number` of the block, or 0.
  __device__ __forceinline__ float kept(float weight, int number) const {
    const u32 byte = words[number / 4] >> number % 4 * 8 & 255U;
    return byte < bytes_kept ? weight : 0.0F;
  }

 private:
  DropoutKey key;
  u32 bytes_kept;
  DropoutRow row;
  int first_key, group, other;
  u32 words[4];  // of keys 0..3, 8..11, 16..19 and 24..27 past 4 * group
};

// The same where a lane has one of 32 keys, and its scores are those of queries. Each lane draws
// the counter of one query and 16 keys; the wave then tells key by key which queries keep it.
class KeptQueries {
 public:
  // `first_key` is the wave's first key, a multiple of 32, `first_query` the tile's first query.
  __device__ __forceinline__ KeptQueries(const DropoutKey& k, int kept_bytes, i64 dropout_head,
                                         int first_query, int first_key, int wave_lane)
      : key(k),
        bytes_kept(static_cast<u32>(kept_bytes)),
        head(dropout_head),
        query(first_query),
        part(first_key / static_cast<int>(kKeysOfCounter)),
        lane(wave_lane) {}

  // Draws for block `block` of 32 queries.
  __device__ __forceinline__ void draw(int block) {
    DropoutKey fresh = key;
    asm volatile("" : "+s"(fresh.low), "+s"(fresh.high));
    const DropoutRow row = {query + block * 32 + lane % 32, head};
    const PhiloxWords<u32> drawn = dropout_words(fresh, row, part + lane / 32);
    // The compiler would keep all comparisons with it in scalar registers.
    const int fresh_lane = not_ahead(lane);
    const int own = fresh_lane % 16;
    const bool second = fresh_lane / 16 % 2 != 0;
    u32 queries = 0;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const u32 byte = drawn.w[k / 4] >> k % 4 * 8 & 255U;
      const u64 kept_by = __builtin_amdgcn_ballot_w64(byte < bytes_kept);
      const u32 low = static_cast<u32>(kept_by), high = static_cast<u32>(kept_by >> 32);
      const u32 of_part = second ? high : low;
      queries = own == k ? of_part : queries;
    }
    bits_kept = queries >> lane / 32 * 4;
  }
  __device__ __forceinline__ float kept(float weight, int number) const {
    return where_set(weight, bits_kept, number / 4 * 8 + number % 4);
  }

 private:
  DropoutKey key;
  u32 bytes_kept;
  i64 head;
  int query, part, lane;
  u32 bits_kept;  // of queries 0..31 past 4 * group
};

}  // namespace tessera::device
