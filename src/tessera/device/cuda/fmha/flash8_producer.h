// The thread of a flash kernel with products of 8 bits that fetches: the queries of each tile, and
// its blocks of keys and values from the last to the first.
#pragma once

#include "tessera/device/cuda/fmha/flash8_turn.h"
#include "tessera/device/cuda/fmha/flash_counters.h"

namespace tessera::device {

// The values of a block follow the keys of the next one, across tiles too, because the consumers
// multiply the two together. No values come before the first keys, and no keys before the last
// values: such a stage is passed on as it is.
template <class C>
class Flash8Producer {
  using Block = Flash8Block<C>;
  using Seen = FlashSeen<C>;
  static constexpr int kKeys = C::kTileN;

  // Where the keys of a head begin, and how many it has.
  struct Head {
    int head, batch, first, keys;
  };

  const FlashArguments& a;
  const Block block;
  Ring<Block::kStages> ring;
  Ring<Block::kBuffers> buffers;
  Ring<Block::kRaws> raws;

  template <class Tile>
  static __device__ __forceinline__ void load(const CudaTensorMap* map, TmaTarget target, int row,
                                              Head of) {
    barrier_expect(target.barrier, Tile::kBytes);
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      tma_load<false>(target,
                      TmaBox<4>{map, {slab * kLineBytes, of.first + row, of.head, of.batch}});
      target.to += Tile::kSlabBytes;
    }
  }

  // Fills the next stage with a block, or passes it on. Other blocks read keys and values, too.
  __device__ __forceinline__ void put_keys(int index, Head of, bool is_there) {
    barrier_wait(block.keys_empty(ring.stage), ring.phase ^ 1);
    const u32 full = block.keys_full(ring.stage);
    if (is_there) {
      load<typename Block::Keys>(&a.k_map, {block.keys(ring.stage), full, 0, kEvictLast},
                                 index * kKeys, of);
    } else {
      barrier_arrive(full);
    }
    ring.next();
  }
  __device__ __forceinline__ void put_values(int index, Head of, bool is_there, bool is_last) {
    barrier_wait(block.raw_empty(raws.stage), raws.phase ^ 1);
    store_shared(block.state(raws.stage),
                 (is_there ? kFlash8IsThere : 0) | (is_last ? kFlash8IsLast : 0),
                 of.keys - index * kKeys);
    const TmaTarget target = {block.raw(raws.stage), block.raw_full(raws.stage), 0, kEvictLast};
    if (!is_there) {
      barrier_arrive(target.barrier);
    } else {
      load<typename Block::Raw>(&a.v_map, target, index * kKeys, of);
    }
    raws.next();
  }

  // Packed sequences are one sequence to the copy engine.
  static __device__ __forceinline__ Head head_of(const FlashTile& tile, int head, int first) {
    return {head, C::kLengths == FmhaLengths::packed ? 0 : tile.batch, Block::kEqual ? 0 : first,
            Block::kEqual ? 0 : tile.keys};
  }

  // Hands a tile to a consumer.
  __device__ __forceinline__ void put_queries(u32 consumer, const FlashTile& tile) {
    const u32 buffer = consumer * Block::kBuffers + buffers.stage;
    barrier_wait(block.queries_empty(buffer), buffers.phase ^ 1);
    const int row = tile.row + static_cast<int>(consumer) * kWgmmaRows;
    store_shared(block.place(buffer), row, tile.head, tile.batch, tile.blocks);
    if constexpr (!Block::kEqual) {
      store_shared(block.place(buffer) + 16, tile.queries, tile.keys, tile.first_query,
                   tile.first_key);
    }
    const u32 full = block.queries_full(buffer);
    if (tile.blocks > 0) {
      load<typename Block::Queries>(&a.q_map, {block.queries(buffer), full, 0, kEvictFirst}, row,
                                    head_of(tile, tile.head, tile.first_query));
    } else {
      barrier_arrive(full);
    }
  }

 public:
  __device__ __forceinline__ Flash8Producer(const FlashArguments& arguments, const Block& shared)
      : a(arguments), block(shared) {}

  __device__ __forceinline__ void run() {
    const int group = static_cast<int>(a.fmha.heads / a.fmha.heads_kv);
    int index = static_cast<int>(blockIdx.x);
    FlashTiles<C> tiles(a);
    Head last = {0, 0, 0, 0};
    int last_first = 0;     // the first block of the tile before
    bool has_last = false;  // whether the values of the block before are still to come
#pragma unroll 1
    for (;;) {
      FlashTile tile = {0, 0, 0, 0, 0, 0, 0, 0};
      const bool is_tile = tiles.find(index, tile);
      // Asked for early: the answer takes a while.
      int next = static_cast<int>(gridDim.x);
      if (is_tile) next += static_cast<int>(atomicAdd(static_cast<u32*>(a.workspace), 1U));
      const Head head = head_of(tile, tile.head / group, tile.first_key);
      const int first = Seen::first_block(a, tile, tile.row);
#pragma unroll 1
      for (u32 consumer = 0; consumer < Block::kConsumers; ++consumer) {
        put_queries(consumer, tile);
        if (consumer == 0) put_keys(tile.blocks - 1, head, is_tile);
      }
      put_values(last_first, last, has_last, !is_tile);
      if (!is_tile) break;
#pragma unroll 1
      for (int i = tile.blocks - 1; i > first; --i) {
        put_keys(i - 1, head, true);
        put_values(i, head, true, false);
      }
      last = head;
      last_first = first;
      has_last = true;
      index = next;
      buffers.next();
    }
    end_block(a.workspace);
  }
};

}  // namespace tessera::device
