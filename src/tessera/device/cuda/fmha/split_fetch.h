// How a team of attention with split keys fetches a block of keys and values, wherever they lie,
// with the factors of keys of 8 bits.
#pragma once

#include "tessera/device/cuda/fmha/split_ring.h"
#include "tessera/device/cuda/fmha/split_tile.h"
#include "tessera/device/cuda/fmha/split_work.h"

namespace tessera::device {

// With pages the lanes of a warp look up where the tokens of the next block lie while a block is
// multiplied: the answers take as long as keys from memory. When they fetch they tell each other.
template <class C>
class SplitFetch {
  using Tile = SplitTile<C>;
  using Kv = typename C::Kv;
  static constexpr int kKeys = C::kTileN, kThreads = 32 * C::kWaveM;
  static constexpr int kOwn = (kKeys + 31) / 32;          // tokens that a lane looks up
  static constexpr int kAsked = kKeys < 32 ? kKeys : 32;  // lanes with tokens of their own
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(Kv));
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  static constexpr bool kHasFactors = Tile::kKeyFactors;
  static constexpr SplitSizes kSizes = split_sizes(split_shape_of<C>());

 public:
  using Copy = SplitCopy<Kv, kKeys, C::kTileK, kThreads>;

 private:
  const Tile& tile;
  const FmhaArguments& g;
  const Copy keys, values;
  const int thread, lane;
  int entry[kOwn], token[kOwn];  // of page_table, and of the page

  // Whether a block lies in one page: then it is as tokens at equal distances are.
  __device__ __forceinline__ bool is_whole() const {
    return !kPaged || tile.has_whole_blocks(kKeys);
  }

  __device__ __forceinline__ int page_of(int e) const {
    const int last = static_cast<int>(g.num_pages) - 1;
    return e < 0 ? 0 : e > last ? last : e;
  }

  // ---- tokens that lie in several pages ----

  template <bool kOfKeys>
  __device__ __forceinline__ const Kv* head() const {
    const i64(&stride)[kTokenStrides] = kOfKeys ? g.k_stride : g.v_stride;
    return tile.template cache<kOfKeys>() + tile.head_kv * stride[kTokenHead];
  }
  // Where this lane's token number i lies behind the head's first one, in pieces of 16 bytes.
  __device__ __forceinline__ u32 place(const i64 (&stride)[kTokenStrides], int i) const {
    const i64 elements = page_of(entry[i]) * stride[kTokenBatch] + token[i] * stride[kToken];
    return static_cast<u32>(elements / kPiece);
  }

  __device__ __forceinline__ void fetch_pieces(u32 to, int first) const {
    const Kv* const k = head<true>();
    const Kv* const v = head<false>();
    u32 places[kOwn], value_places[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      places[i] = place(g.k_stride, i);
      value_places[i] = place(g.v_stride, i);
    }
#pragma unroll
    for (int i = 0; i < Copy::kCopies; ++i) {
      const int at = i * Copy::kAtOnce;
      const int from = at % 32 + keys.first_row();
      const u64 key = __shfl_sync(~0U, places[at / 32], from);
      const u64 value = __shfl_sync(~0U, value_places[at / 32], from);
      keys.fetch_token(to, i, first, k + key * kPiece);
      values.fetch_token(to + kSizes.block, i, first, v + value * kPiece);
    }
  }

  // ---- factors ----

  // Those of the keys, and behind them those of the values. The first warp of a team brings them.
  __device__ __forceinline__ void fetch_factors(u32 to, int first) const {
    if (thread >= 32) return;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int index = lane + 32 * i;
      if (kKeys < 32 && index >= kKeys) return;
      const int key = first + index;
      const i64 at = factor_place(key, i);
      const int bytes = key < static_cast<int>(tile.s.keys) ? 4 : 0;
      copy_async<4>(to + 4 * index, g.descale_k + at, bytes);
      copy_async<4>(to + 4 * (kKeys + index), g.descale_v + at, bytes);
    }
  }
  // As key_factor_place() has it, with the page that this lane has looked up.
  __device__ __forceinline__ i64 factor_place(int key, int i) const {
    if constexpr (!kHasFactors) return 0;
    if constexpr (kPaged && C::kQscale != FmhaQscale::per_block) {
      const i64 row = page_of(entry[i]) * g.heads_kv + tile.head_kv;
      return C::kQscale == FmhaQscale::per_token ? row * g.page_size + token[i] : row;
    }
    const int last = static_cast<int>(tile.s.keys) - 1;
    return key_factor_place<C::kQscale, FmhaPages::none>(g, tile.s, tile.batch, tile.head_kv,
                                                         key < last ? key : last);
  }

 public:
  // `thread` of the team.
  __device__ __forceinline__ SplitFetch(const Tile& of_tile, int of_thread)
      : tile(of_tile),
        g(of_tile.g),
        keys(static_cast<int>(g.hdim), of_tile.s.keys, of_thread),
        values(static_cast<int>(g.hdim_v), of_tile.s.keys, of_thread),
        thread(of_thread),
        lane(of_thread % 32) {}

  // Asks for the pages of the block from key `first` on. The tokens behind the last one take the
  // place of that one.
  __device__ __forceinline__ void look_up(int first) {
    if constexpr (kPaged) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int key = min(first + lane % kAsked + 32 * i, static_cast<int>(tile.s.keys) - 1);
        const FmhaSlot slot = slot_of(g, key);
        entry[i] = g.page_table[tile.s.first_key + slot.entry];
        token[i] = static_cast<int>(slot.token);
      }
    }
  }

  // Fetches the block that was looked up to a stage.
  __device__ __forceinline__ void fetch(u32 to, int first) const {
    if constexpr (kHasFactors) fetch_factors(to + 2 * kSizes.block, first);
    if (is_whole()) {
      const i64 page = kPaged ? page_of(entry[0]) : 0;
      keys.fetch(to, tile.template strided<true>(first, page), first);
      values.fetch(to + kSizes.block, tile.template strided<false>(first, page), first);
      return;
    }
    if (tile.template paged<true>().aligned() && tile.template paged<false>().aligned()) {
      return fetch_pieces(to, first);
    }
    keys.fetch_elements(to, tile.template paged<true>(), first);
    values.fetch_elements(to + kSizes.block, tile.template paged<false>(), first);
  }
};

}  // namespace tessera::device
