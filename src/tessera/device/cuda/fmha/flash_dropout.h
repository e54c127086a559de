// Dropout in a flash kernel, on wgmma's accumulators: a thread has keys 8 * j + lane % 4 * 2 and
// the next one of two rows, and the four lanes of a row share the counters of its keys.
#pragma once

#include "tessera/device/fmha_dropout.h"

namespace tessera::device {

// A block's weights that are dropped. A lane makes the random bits of every fourth counter. It
// keeps 16 of a counter's 128 bits, one for each key, so that the lanes tell each other one word.
template <int kKeys>
class FlashDropout {
  static constexpr int kParts = kKeys / static_cast<int>(kKeysOfCounter);  // counters of a row
  static_assert(kParts % 4 == 0, "four lanes share the counters evenly");
  static constexpr u32 kHigh = 0x80808080U;  // the upper bit of each byte
  u32 dropped[2][kParts / 4];

  // The upper bit of a byte: whether the byte is at least 256 - margin, the sum's carry.
  // `margins` has the margin in each byte.
  static __device__ __forceinline__ u32 carries(u32 bytes, u32 margins) {
    const u32 sums = (bytes & ~kHigh) + (margins & ~kHigh);
    return ((bytes & margins) | ((bytes | margins) & sums)) & kHigh;
  }
  // Each byte is 255 where its selected byte has the upper bit, else 0.
  static __device__ __forceinline__ u32 spread(u32 bits, u32 bytes) {
    u32 mask;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(mask) : "r"(bits), "r"(bytes));
    return mask;
  }

 public:
  // Draws for the rows `row` and row + 8, and for the keys from `first` on. Bit 7 - w of byte b
  // stands for key 4 * w + b of a counter.
  __device__ __forceinline__ void draw(const FmhaArguments& g, const DropoutRow& row, int first,
                                       int lane) {
    const DropoutKey key = dropout_key(g);
    const u32 margins = static_cast<u32>(256 - g.kept) * 0x01010101U;
#pragma unroll
    for (int i = 0; i < kParts / 4; ++i) {
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        const DropoutRow own = {row.query + 8 * x, row.head};
        const PhiloxWords<u32> words =
            dropout_words(key, own, first / static_cast<int>(kKeysOfCounter) + 4 * i + lane % 4);
        dropped[x][i] = carries(words.w[0], margins) | carries(words.w[1], margins) >> 1 |
                        carries(words.w[2], margins) >> 2 | carries(words.w[3], margins) >> 3;
      }
    }
  }

  // Makes dropped weights 0. weights[i] belongs to keys 8 * (i / 2) + lane % 4 * 2 and the next
  // one in 16 bits each, of row i % 2.
  __device__ __forceinline__ void drop(u32* weights, int lane) const {
    const u32 bytes =
        lane % 2 == 0 ? 0x9988U : 0xBBAAU;  // the bytes of the lane's two keys, twice each
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        const u32 bits = __shfl_sync(~0U, dropped[x][part / 4], lane / 4 * 4 + part % 4)
                         << (lane % 4 / 2);
        weights[part * 4 + x] &= ~spread(bits, bytes);
        weights[part * 4 + x + 2] &= ~spread(bits << 2, bytes);
      }
    }
  }
};

}  // namespace tessera::device
