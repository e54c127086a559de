// What the roles of a flash kernel's block share: the places in shared memory, and which tile comes
// next.
#pragma once

#include "tessera/device/cuda/fmha/flash_arguments.h"
#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/tma_tile.h"
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

template <class C>
struct FlashBlock {
  using T = typename C::In;
  using Out = typename C::Out;
  static constexpr FmhaQscale kQscale = C::kQscale;
  // Numbers of 8 bits are multiplied as such for the scores only. Weights have 16 bits, and values
  // are converted to them, which is exact.
  static constexpr bool kConverts = sizeof(T) == 1;
  static constexpr int kConverters = 3;  // warps
  using Weight = typename If<kConverts, fp16, T>::Type;
  static constexpr int kConsumers = C::kWaveM;
  static constexpr int kKeys = C::kTileN;
  static constexpr int kStages = C::kStages;
  // Whether a score is more than a product times the scale.
  static constexpr bool kBends = C::kSoftCap || C::kBias != FmhaBias::none;
  // Whether biases are fetched before the products that they are added to: 3 consumers have no
  // registers for that.
  static constexpr bool kFetchesBias =
      C::kBias == FmhaBias::elementwise && sizeof(typename C::Bias) == 2 && kConsumers == 2;
  static constexpr FlashShape kShape = {kConsumers,       kKeys,
                                        C::kTileK,        C::kHdimV,
                                        kStages,          kBends || C::kDropout,
                                        kConverts,        scales_keys(kQscale),
                                        sizeof(Out) != 2, C::kPages != FmhaPages::none};
  static constexpr FlashSizes kSizes = flash_sizes(kShape);
  static constexpr int kBuffers = kSizes.query_buffers;
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  // Whether all sequences are equally long. A list of pages may cut the keys of each.
  static constexpr bool kEqual = C::kLengths == FmhaLengths::equal && !kPaged;
  static_assert(C::kTileM == kConsumers * kWgmmaRows, "a consumer has 64 queries");
  static_assert(kConsumers == 2 || kConsumers == 3, "consumers take turns");
  static_assert(kSizes.bytes <= kSharedLimit, "the block must fit into shared memory");
  static_assert(flash_registers_suffice(kConsumers, flash_registers(kShape),
                                        flash_fetch_registers(kShape)),
                "consumers would wait for registers");

  // Queries and keys lie in whole lines; what is behind a head in them is not multiplied.
  static constexpr int kPerLine = kLineBytes / static_cast<int>(sizeof(T));
  using Queries = OperandTile<T, kWgmmaRows, rounded_up(C::kTileK, kPerLine), true>;
  using Keys = OperandTile<T, kKeys, rounded_up(C::kTileK, kPerLine), true>;
  using Values = OperandTile<Weight, C::kHdimV, kKeys, false>;
  static_assert(Keys::kBytes <= kSizes.stage_bytes && Values::kBytes <= kSizes.stage_bytes,
                "a stage holds keys or values");

  u32 shared;

  __device__ __forceinline__ u32 stage(u32 index) const {
    return shared + kSizes.stages + index * kSizes.stage_bytes;
  }
  // Where the queries of a consumer lie. `buffer` counts the buffers of all consumers.
  __device__ __forceinline__ u32 queries(u32 buffer) const {
    return shared + buffer * kSizes.query_bytes;
  }
  __device__ __forceinline__ u32 place(u32 buffer) const {
    return shared + kSizes.places + buffer * kFlashPlaceBytes;
  }
  __device__ __forceinline__ u32 full(u32 index) const {
    return shared + kSizes.barriers + index * 8;
  }
  __device__ __forceinline__ u32 empty(u32 index) const { return full(kStages + index); }
  __device__ __forceinline__ u32 queries_full(u32 buffer) const {
    return full(2 * kStages + buffer);
  }
  __device__ __forceinline__ u32 queries_empty(u32 buffer) const {
    return queries_full(kConsumers * kBuffers + buffer);
  }

  // Values of 8 bits, which wait for conversion, and what is said of them.
  __device__ __forceinline__ u32 raw(u32 index) const {
    return shared + kSizes.raws + index * kSizes.raw_bytes;
  }
  __device__ __forceinline__ u32 raw_state(u32 index) const {
    return shared + kSizes.states + index * 8;
  }
  __device__ __forceinline__ u32 raw_full(u32 index) const {
    return queries_empty(kConsumers * kBuffers + index);
  }
  __device__ __forceinline__ u32 raw_empty(u32 index) const { return raw_full(kFlashRaws + index); }

  // Queries are released by each warp, because a warp reads them on its own when it repairs a
  // block.
  __device__ __forceinline__ void init() const {
    for (u32 i = 0; i < kStages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), kConsumers);
    }
    for (u32 i = 0; i < kConsumers * kBuffers; ++i) {
      barrier_init(queries_full(i), 1);
      barrier_init(queries_empty(i), 4);
    }
    if constexpr (kConverts) {
      for (u32 i = 0; i < kFlashRaws; ++i) {
        barrier_init(raw_full(i), 1);
        barrier_init(raw_empty(i), kConverters);
      }
    }
    for (u32 i = 0; i < kConsumers; ++i) {
      store_shared(shared + kSizes.flags + i * 8, 0, 0);
    }
    barrier_init_fence();
  }

  // ---- what a tile sees ----

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
  using Block = FlashBlock<C>;
  static constexpr bool kEqual = Block::kEqual;

  const FlashArguments& a;
  const int heads;
  int batch = 0;                                    // the sequence that was looked at last, and
  int begin = 0;                                    // its first tile
  typename FlashSequence<Block::kPaged>::Kept own;  // its lengths

  __device__ __forceinline__ auto sequence() const {
    return FlashSequence<Block::kPaged>::of(sequence_of<C::kLengths, C::kPages>(a.fmha, batch));
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
    tile.blocks = Block::end_block(a, tile);
    return true;
  }
};

}  // namespace tessera::device
