// What a flash kernel does with numbers of 8 bits besides converting values: their factors, and
// products once more. Where scores are products, references are in powers of 2 here, because the
// factors of a block of keys are its own and may be negative or 0.
#pragma once

#include "tessera/device/cuda/fmha/flash_rows.h"
#include "tessera/device/cuda/fmha/flash_tiles.h"
#include "tessera/device/fmha_scales.h"

namespace tessera::device {

// The factor of scores of 16-bit numbers, which is the scale.
template <class C, bool kHas = sizeof(typename C::In) == 1>
class FlashFactors {
  const float unit;

 public:
  __device__ __forceinline__ explicit FlashFactors(const FlashArguments& a)
      : unit((FlashSeen<C>::kBends ? 1.0F : a.fmha.scale) * 1.44269504F) {}
  // What turns scores that are compared into powers of 2.
  __device__ __forceinline__ float of_compared() const { return unit; }
  __device__ __forceinline__ float of_products() const { return unit; }
  __device__ __forceinline__ float of_sums() const { return 1; }
  __device__ __forceinline__ void open(const FlashArguments&, const FlashTile&) {}
  __device__ __forceinline__ void fetch(const FlashArguments&, int) {}
  template <int kSums, int kCount>
  __device__ __forceinline__ void turn(float (&)[kSums], float (&)[kCount], bool) {}
};

// The factors that a consumer needs. A block of keys has one factor of its keys and one of its
// values, and 64 queries have one: the problem's blocks are multiples of these.
template <class C>
class FlashFactors<C, true> {
  using Seen = FlashSeen<C>;
  static constexpr FmhaQscale kHow = C::kQscale;
  static constexpr bool kOfBlocks = scales_keys(kHow);
  static constexpr float kLeast = 0x1p-100F;  // what is less counts as 0

  float query = 0;           // of everything that all scores of the tile are multiplied by
  float key = 1, value = 1;  // of the block
  float unit = 1;            // what the sums are to be multiplied by
  int first = 0;             // the place of the head's first factor

  static __device__ __forceinline__ i64 place_of(const FmhaArguments& g, i64 batch, i64 head_kv,
                                                 i64 key_index) {
    return key_factor_place<kHow, FmhaPages::none>(g, FmhaSequence{}, batch, head_kv, key_index);
  }

 public:
  __device__ __forceinline__ explicit FlashFactors(const FlashArguments&) {}
  __device__ __forceinline__ float of_compared() const { return Seen::kBends ? 1.44269504F : 1.0F; }

  __device__ __forceinline__ void open(const FlashArguments& a, const FlashTile& tile) {
    const FmhaArguments& g = a.fmha;
    const float all = score_factor<kHow, typename C::In>(g) * (Seen::kBends ? 1.0F : 1.44269504F);
    const int last = max(0, Seen::queries_of(a, tile) - 1);
    query = all * query_factor<kHow>(g, tile.batch, tile.head, min(tile.row, last));
    if constexpr (kOfBlocks) {
      const int head_kv = tile.head / static_cast<int>(g.heads / g.heads_kv);
      first = static_cast<int>(place_of(g, tile.batch, head_kv, 0));
    }
  }

  // The factors of a block of keys arrive while the tensor cores multiply.
  __device__ __forceinline__ void fetch(const FlashArguments& a, int block) {
    if constexpr (kOfBlocks) {
      const i64 place = first + place_of(a.fmha, 0, 0, i64{max(0, block)} * C::kTileN);
      key = a.fmha.descale_k[place];
      value = a.fmha.descale_v[place];
    }
  }

  // What turns products into scores; in powers of 2 where nothing else changes them.
  __device__ __forceinline__ float of_products() const { return kOfBlocks ? query * key : query; }

  // Sums are kept in units of the factor of their last block.
  __device__ __forceinline__ float of_sums() const { return unit; }
  // A block's weights are to be added to the sums, or to replace them.
  template <int kSums, int kCount>
  __device__ __forceinline__ void turn(float (&sums)[kSums], float (&weights)[kCount], bool adds) {
    if constexpr (kOfBlocks) {
      // Votes tell the compiler that all threads go the same way.
      if (__any_sync(~0U, fabsf(value) < kLeast)) {  // a NaN stays one
#pragma unroll
        for (int i = 0; i < kCount; ++i) weights[i] *= 0.0F;
        if (!adds) unit = 1;
        return;
      }
      if (adds && __any_sync(~0U, value != unit)) {
        const float by = unit * reciprocal(value);
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] *= by;
      }
      unit = value;
    }
  }
};

// multiply_again() of numbers of 8 bits, as fp16. fragment(step, words) loads the queries' words
// for 32 elements.
template <int kHdim, class T, int kCount, class LoadFragment>
__device__ __forceinline__ void multiply_bytes_again(const FlashTokens<T>& keys, int lane,
                                                     LoadFragment fragment,
                                                     float (&scores)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) scores[i] = 0;
  const T* const first = keys.data + lane / 4 * keys.stride + lane % 4 * 4;
#pragma unroll 1
  for (int element = 0; element < kHdim; element += 32) {
    u32 words[4];
    fragment(element / 32, words);
    const Operand<T> upper(Fragment{{words[0], words[2]}});
    const Operand<T> lower(Fragment{{words[1], words[3]}});
    const bool has_first = element < keys.hdim;
    const bool has_second = element + 16 < keys.hdim;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const T* const key = first + i * 2 * keys.stride + element;
      Fragment bytes = {{0, 0}};
      if (has_first) bytes.chunk[0] = *reinterpret_cast<const u32*>(key);
      if (has_second) bytes.chunk[1] = *reinterpret_cast<const u32*>(key + 16);
      const Operand<T> b(bytes);
      float sums[4] = {scores[i], scores[i + 1], scores[i + 2], scores[i + 3]};
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        mma<fp16>(sums, upper.words[part], lower.words[part], b.words[part]);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[i + e] = sums[e];
    }
  }
}

}  // namespace tessera::device
