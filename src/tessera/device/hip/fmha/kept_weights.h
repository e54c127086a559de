// Which weights dropout keeps. A counter of Philox has the random bytes of 16 keys. Lanes l and
// l + 32 draw the counter of 16 keys of a block of 32 each, and exchange the halves that the other
// lane's scores need.
#pragma once

#include "tessera/device/hip/lanes.h"

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

}  // namespace tessera::device
