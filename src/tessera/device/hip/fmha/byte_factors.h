// What scores and values of 8 bits are multiplied by. Queries have a factor each, or all have one.
// Blocks of keys have one of their keys and one of their values, of which a wave meets one at a
// time: the problem's blocks hold whole tiles of its keys. Sums are kept in units of the factor of
// their last block of values.
#pragma once

#include "tessera/device/hip/fmha/tile_place.h"

namespace tessera::device {

// Config has In, Kv, kPages and kQscale.
template <class C>
class ByteFactors {
  static constexpr FmhaQscale kHow = C::kQscale;
  static constexpr float kLeast = 0x1p-100F;  // what is less counts as 0

 public:
  static constexpr bool kAny = sizeof(typename C::Kv) == 1;
  static constexpr bool kOfTiles = scales_keys(kHow) && kHow != FmhaQscale::per_head;

  __device__ __forceinline__ void begin(const FmhaArguments& g, const TilePlace<C>& place) {
    const i64 head_kv = place.head_kv(g);
    if constexpr (kHow == FmhaQscale::per_tensor) value = *g.descale_v;
    if constexpr (kHow == FmhaQscale::per_head) {
      key = g.descale_k[head_kv];
      value = g.descale_v[head_kv];
    }
    if constexpr (kOfTiles && C::kPages == FmhaPages::none) {
      first = not_ahead(static_cast<int>((place.batch * g.heads_kv + head_kv) * g.blocks_k));
    }
    if constexpr (kOfTiles && C::kPages != FmhaPages::none) {
      first = not_ahead(static_cast<int>(place.sequence.first_key));
      head = not_ahead(static_cast<int>(head_kv));
    }
  }
  // What products of a row are scores by, besides what belongs to a tile of keys, and times `more`.
  __device__ __forceinline__ void begin_row(const FmhaArguments& g, const TilePlace<C>& place,
                                            int block, int row, float more) {
    const int own = place.up_to_last(g, row);
    rows[block] =
        score_factor<kHow, typename C::In>(g) * (kHow == FmhaQscale::per_head ? key : 1.0F) *
        query_factor<kHow>(g, place.batch, place.head_of(g, own), place.query_of(g, own)) * more;
  }

  // The factors of the keys that the wave multiplies next.
  __device__ __forceinline__ void fetch(int key_index) {
    if constexpr (kOfTiles) {
      const FmhaArguments& g = fresh_arguments<MfmaFmhaArguments>().fmha;
      const u32 at = static_cast<u32>(__builtin_amdgcn_readfirstlane(key_index));
      i64 factor = __builtin_amdgcn_readfirstlane(first);
      if constexpr (C::kPages == FmhaPages::none) {
        factor += at / static_cast<u32>(g.block_k);
      } else {
        const int page = g.page_table[factor + at / static_cast<u32>(g.page_size)];
        factor = page_in_cache(g, page) * g.heads_kv + __builtin_amdgcn_readfirstlane(head);
      }
      key = g.descale_k[factor];
      value = g.descale_v[factor];
    }
  }
  // Makes scores of the products of a block of rows.
  template <class Sum, int kKeyBlocks>
  __device__ __forceinline__ void multiply(int block, Sum (&scores)[kKeyBlocks]) const {
    if constexpr (!kAny) return;
    const float by = kOfTiles ? rows[block] * key : rows[block];
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) scores[b] *= by;
  }

  // Turns sums into those in units of the tile's values. Weights of values that count as 0 do too.
  template <int kBlocks, int kHeads, int kChunks, class Sum>
  __device__ __forceinline__ void turn(Sum (&sums)[kBlocks][kHeads],
                                       Chunk (&weights)[kBlocks][kChunks]) {
    if constexpr (!kOfTiles) return;
    if (__builtin_amdgcn_ballot_w64(__builtin_fabsf(value) < kLeast) != 0) {  // a NaN stays one
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
        for (int i = 0; i < kChunks; ++i) weights[m][i] = 0;
      }
    } else if (__builtin_amdgcn_ballot_w64(value != unit) != 0) {
      const float by = unit * reciprocal(value);
      unit = value;
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
        for (int d = 0; d < kHeads; ++d) sums[m][d] *= by;
      }
    }
  }
  // What sums are multiplied by at last.
  __device__ __forceinline__ float of_sums() const { return kOfTiles ? unit : value; }

 private:
  float key = 1, value = 1;  // of all, of the head, or of the tile
  float rows[C::kBlocks];
  float unit = 1;
  int first = 0, head = 0;
};

}  // namespace tessera::device
