// The second level of sums of a flash kernel with products of 8 bits. The tensor cores keep about
// 14 bits of such sums and cut off the rest: values whose mean is not 0 lose about 1% by 1024 keys,
// and more by more. So every few blocks a consumer adds its sums to sums in shared memory and
// begins anew.
#pragma once

#include "tessera/device/cuda/fmha/flash8_block.h"
#include "tessera/device/cuda/types.h"

namespace tessera::device {

// A thread's sums, in pieces of 16 bytes that lie side by side for the threads of a warp: 4 sums in
// fp32, or 8 in bf16 where there is no room for that.
template <class C>
class Flash8Sums {
  using Block = Flash8Block<C>;
  static constexpr int kSums = C::kHdimV / 2;
  static constexpr bool kShort = Block::kSizes.sum_size == 2;
  static constexpr int kPerPiece = kShort ? 8 : 4;
  static constexpr int kAtATime = 32;
  static constexpr int kPieceBytes = 32 * 16;  // of a warp

  const u32 at;

  __device__ __forceinline__ void load(int piece, float* x) const {
    const u32 from = at + piece * kPieceBytes;
    if constexpr (kShort) {
      u32 words[4];
      load_words(from, words);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[2 * i] = __uint_as_float(words[i] << 16);
        x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
      }
    } else {
      load_floats(from, x);
    }
  }
  __device__ __forceinline__ void store(int piece, const float* x) const {
    const u32 to = at + piece * kPieceBytes;
    if constexpr (kShort) {
      u32 words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = round_pair<bf16>(x[2 * i], x[2 * i + 1]);
      store_words(to, words);
    } else {
      store_floats(to, x);
    }
  }

  static __device__ __forceinline__ float scaled(float sum, float unit) {
    return scales_keys(C::kQscale) ? sum * unit : sum;
  }
  // A few are loaded before the first of them is used.
  __device__ __forceinline__ void add_floats(const float (&sums)[kSums], float unit) const {
#pragma unroll
    for (int first = 0; first < kSums; first += kAtATime) {
      float x[kAtATime];
#pragma unroll
      for (int i = 0; i < kAtATime; ++i) x[i] = 0;
      if (has_some) {
#pragma unroll
        for (int i = 0; i < kAtATime; i += kPerPiece) load((first + i) / kPerPiece, &x[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtATime; ++i) x[i] += scaled(sums[first + i], unit);
#pragma unroll
      for (int i = 0; i < kAtATime; i += kPerPiece) store((first + i) / kPerPiece, &x[i]);
    }
  }
  __device__ __forceinline__ void add_pairs(const float (&sums)[kSums], float unit) const {
#pragma unroll
    for (int first = 0; first < kSums; first += kAtATime) {
      u32 pairs[kAtATime / kPerPiece][4];
#pragma unroll
      for (int i = 0; i < kAtATime / 2; ++i) pairs[i / 4][i % 4] = 0;
      if (has_some) {
#pragma unroll
        for (int i = 0; i < kAtATime / kPerPiece; ++i) {
          load_words(at + (first / kPerPiece + i) * kPieceBytes, pairs[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtATime / 2; ++i) {
        const float* const s = &sums[first + 2 * i];
        const u32 more = round_pair<bf16>(scaled(s[0], unit), scaled(s[1], unit));
        pairs[i / 4][i % 4] = add_bf16(pairs[i / 4][i % 4], more);
      }
#pragma unroll
      for (int i = 0; i < kAtATime / kPerPiece; ++i) {
        store_words(at + (first / kPerPiece + i) * kPieceBytes, pairs[i]);
      }
    }
  }

 public:
  bool has_some = false;

  __device__ __forceinline__ Flash8Sums(const Block& block, int group, int warp, int lane)
      : at(block.sums(group, warp) + static_cast<u32>(lane) * 16) {}

  // Adds sums times their unit.
  __device__ __forceinline__ void add(const float (&sums)[kSums], float unit) {
    if (!has_some) {
      stores_wait_read<0>();  // only lane 0 has stores to wait for, from the same place
      __syncwarp();
    }
    kShort ? add_pairs(sums, unit) : add_floats(sums, unit);
    has_some = true;
  }

  // The sums of the rows' two halves have new references.
  __device__ __forceinline__ void scale(const float (&factor)[2]) const {
    if (!has_some) return;
#pragma unroll
    for (int piece = 0; piece < kSums / kPerPiece; ++piece) {
      float x[kPerPiece];
      load(piece, x);
#pragma unroll
      for (int i = 0; i < kPerPiece; ++i) x[i] *= factor[i / 2 % 2];
      store(piece, x);
    }
  }

  // Adds them to the last sums, which are multiplied by their unit; the unit is 1 then.
  __device__ __forceinline__ void give(float (&sums)[kSums], float& unit) {
    if (!has_some) return;
#pragma unroll
    for (int piece = 0; piece < kSums / kPerPiece; ++piece) {
      float x[kPerPiece];
      load(piece, x);
#pragma unroll
      for (int i = 0; i < kPerPiece; ++i) {
        float& sum = sums[piece * kPerPiece + i];
        sum = scaled(sum, unit) + x[i];
      }
    }
    unit = 1;
    has_some = false;
  }
};

}  // namespace tessera::device
