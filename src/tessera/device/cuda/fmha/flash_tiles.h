// The tiles of a flash kernel: which comes next, what a tile is told, and which keys its queries
// see.
#pragma once

#include "tessera/device/cuda/fmha/flash_arguments.h"
#include "tessera/device/cuda/ptx.h"
#include "tessera/device/fmha_scales.h"

namespace tessera::device {

// Queries of one head and one sequence, and the end of the blocks of keys that they see: at least
// 1, or 0 where there are no more tiles. The rest is told only where sequences have lengths of
// their own: how many queries and keys the sequence has, and where these begin. With pages,
// first_key is the place of the sequence's first entry in page_table.
struct FlashTile {
  int row, head, batch, blocks;
  int queries, keys, first_query, first_key;
};

// What follows from the configuration for every tile.
template <class C>
struct FlashSeen {
  static constexpr int kKeys = C::kTileN;
  // Whether a score is more than a product times the scale.
  static constexpr bool kBends = C::kSoftCap || C::kBias != FmhaBias::none;
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  // Whether all sequences are equally long. A list of pages may cut the keys of each.
  static constexpr bool kEqual = C::kLengths == FmhaLengths::equal && !kPaged;

  static __device__ __forceinline__ int queries_of(const FlashArguments& a, const FlashTile& t) {
    return kEqual ? static_cast<int>(a.fmha.seqlen_q) : t.queries;
  }
  static __device__ __forceinline__ int keys_of(const FlashArguments& a, const FlashTile& t) {
    return kEqual ? static_cast<int>(a.fmha.seqlen_k) : t.keys;
  }
  static __device__ __forceinline__ int diagonal(const FlashArguments& a, const FlashTile& t) {
    return kEqual || a.fmha.at_end == 0 ? 0 : t.keys - t.queries;
  }

  // The end of the blocks of keys that the tile's queries see.
  static __device__ __forceinline__ int end_block(const FlashArguments& a, const FlashTile& t) {
    int blocks = (keys_of(a, t) + kKeys - 1) / kKeys;
    if (C::kMasked) {
      const int last = min(t.row + C::kTileM, queries_of(a, t)) - 1;
      const int seen = last + a.right + diagonal(a, t);  // keys of the last query
      blocks = min(blocks, (seen + kKeys - 1) / kKeys);
    }
    return C::kMasked || !kEqual ? max(1, blocks) : blocks;
  }
  // The first block that some query from `row` on sees.
  static __device__ __forceinline__ int first_block(const FlashArguments& a, const FlashTile& t,
                                                    int row) {
    if (!C::kMasked) return 0;
    return max(0, min((row + a.left + diagonal(a, t)) / kKeys, t.blocks - 1));
  }
};

// What is kept of a sequence: 32 bits of each number where fetching needs the registers.
template <bool kShort>
struct FlashSequence {
  using Kept = FmhaSequence;
  static __device__ __forceinline__ Kept of(const FmhaSequence& s) { return s; }
};
template <>
struct FlashSequence<true> {
  struct Kept {
    int queries, keys, first_query, first_key;
  };
  static __device__ __forceinline__ Kept of(const FmhaSequence& s) {
    return {static_cast<int>(s.queries), static_cast<int>(s.keys), static_cast<int>(s.first_query),
            static_cast<int>(s.first_key)};
  }
};

// The tiles of all heads and sequences, in the order in which blocks take them: section by section,
// and within a section from the last queries of all its heads on, which see most keys with a mask.
// Where sequences have lengths of their own, one sequence follows the other.
template <class C>
class FlashTiles {
  using Seen = FlashSeen<C>;
  static constexpr bool kEqual = Seen::kEqual;

  const FlashArguments& a;
  const int heads;
  int batch = 0;                                   // the sequence that was looked at last, and
  int begin = 0;                                   // its first tile
  typename FlashSequence<Seen::kPaged>::Kept own;  // its lengths

  __device__ __forceinline__ auto sequence() const {
    return FlashSequence<Seen::kPaged>::of(sequence_of<C::kLengths, C::kPages>(a.fmha, batch));
  }
  static __device__ __forceinline__ int tiles_of(i64 queries) {
    return static_cast<int>((queries + C::kTileM - 1) / C::kTileM);
  }

  // Tile `index` of `pairs` heads with `down_tiles` tiles each: its row and its head.
  __device__ __forceinline__ FlashTile place(int index, int pairs, int down_tiles) const {
    const int per_section = a.section * down_tiles;
    const int section = index / per_section;
    const int rest = index - section * per_section;
    const int width = min(a.section, pairs - section * a.section);
    const int down = rest / width;
    const int pair = section * a.section + rest - down * width;
    return {(down_tiles - 1 - down) * C::kTileM, pair, 0, 0, 0, 0, 0, 0};
  }

 public:
  __device__ __forceinline__ explicit FlashTiles(const FlashArguments& arguments)
      : a(arguments), heads(static_cast<int>(arguments.fmha.heads)) {
    if constexpr (!kEqual) own = sequence();
  }

  // Tile `index`, which is above those that were asked for before; false: there is none.
  __device__ __forceinline__ bool find(int index, FlashTile& tile) {
    if constexpr (kEqual) {
      if (index >= a.tiles) return false;
      tile = place(index, heads * static_cast<int>(a.fmha.batch), a.query_tiles);
      tile.batch = tile.head / heads;
      tile.head -= tile.batch * heads;
    } else {
#pragma unroll 1
      while (index - begin >= heads * tiles_of(own.queries)) {
        begin += heads * tiles_of(own.queries);
        if (++batch >= a.fmha.batch) return false;
        own = sequence();
      }
      tile = place(index - begin, heads, tiles_of(own.queries));
      tile.batch = batch;
      tile.queries = static_cast<int>(own.queries), tile.keys = static_cast<int>(own.keys);
      tile.first_query = static_cast<int>(own.first_query);
      tile.first_key = static_cast<int>(own.first_key);
    }
    tile.blocks = Seen::end_block(a, tile);
    return true;
  }
};

}  // namespace tessera::device
