// The thread of a flash kernel that fetches: the queries of each tile, and its blocks of keys and
// values from the last to the first.
#pragma once

#include "tessera/device/cuda/fmha/flash_block.h"
#include "tessera/device/cuda/fmha/flash_convert.h"
#include "tessera/device/cuda/fmha/flash_counters.h"

namespace tessera::device {

// The values of a block follow the keys of the next one, across tiles too, because the consumers
// multiply the two together. No values come before the first keys, and no keys before the last
// values: such a stage is passed on as it is.
template <class C>
class FlashPagedProducer;
template <class C>
class FlashProducer {
  friend class FlashPagedProducer<C>;
  using Block = FlashBlock<C>;
  static constexpr int kKeys = C::kTileN;

  // Where the keys of a head, or its queries, begin.
  struct Head {
    int head, batch, first;
  };

  const FlashArguments& a;
  const Block block;
  Ring<C::kStages> ring;
  Ring<Block::kBuffers> buffers;
  Ring<kFlashRaws> raws;

  template <int kHdim, int kRows>
  static __device__ __forceinline__ void load(const CudaTensorMap* map, TmaTarget target, int row,
                                              Head of) {
    constexpr int kSlabs = rounded_up(kHdim, Block::kPerLine) / Block::kPerLine;
    barrier_expect(target.barrier, kSlabs * kRows * kLineBytes);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      tma_load<false>(target,
                      TmaBox<4>{map, {slab * Block::kPerLine, of.first + row, of.head, of.batch}});
      target.to += kRows * kLineBytes;
    }
  }

  // Fills the next stage with a block, or passes it on. Other blocks read keys and values, too.
  template <int kHdim>
  __device__ __forceinline__ void put(const CudaTensorMap* map, int index, Head of, bool is_there) {
    barrier_wait(block.empty(ring.stage), ring.phase ^ 1);
    const u32 full = block.full(ring.stage);
    if (is_there) {
      load<kHdim, kKeys>(map, {block.stage(ring.stage), full, 0, kEvictLast}, index * kKeys, of);
    } else {
      barrier_arrive(full);
    }
    ring.next();
  }
  __device__ __forceinline__ void put_keys(int index, Head of, bool is_there) {
    put<C::kTileK>(&a.k_map, index, of, is_there);
  }
  __device__ __forceinline__ void put_values(int index, Head of, bool is_there, bool is_last) {
    if constexpr (Block::kConverts) {
      put_raw_values(index, of, is_there, is_last);
    } else {
      put<C::kHdimV>(&a.v_map, index, of, is_there);
    }
  }
  // Values of 8 bits take the next stage when they are converted, see flash_convert.h.
  __device__ __forceinline__ void put_raw_values(int index, Head of, bool is_there, bool is_last) {
    barrier_wait(block.raw_empty(raws.stage), raws.phase ^ 1);
    store_shared(block.raw_state(raws.stage),
                 (is_there ? kRawIsThere : 0) | (is_last ? kRawIsLast : 0));
    const u32 full = block.raw_full(raws.stage);
    if (is_there) {
      barrier_expect(full, Block::kSizes.raw_bytes);
      tma_load<false>({block.raw(raws.stage), full, 0, kEvictLast},
                      TmaBox<4>{&a.v_map, {0, of.first + index * kKeys, of.head, of.batch}});
    } else {
      barrier_arrive(full);
    }
    raws.next();
    ring.next();
  }

  // Packed sequences are one sequence to the copy engine.
  static __device__ __forceinline__ Head head_of(const FlashTile& tile, int head, int first) {
    return {head, C::kLengths == FmhaLengths::packed ? 0 : tile.batch, Block::kEqual ? 0 : first};
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
      load<C::kTileK, kWgmmaRows>(&a.q_map, {block.queries(buffer), full, 0, kEvictFirst}, row,
                                  head_of(tile, tile.head, tile.first_query));
    } else {
      barrier_arrive(full);
    }
  }

 public:
  __device__ __forceinline__ FlashProducer(const FlashArguments& arguments, const Block& shared)
      : a(arguments), block(shared) {}

  __device__ __forceinline__ void run() {
    const int group = static_cast<int>(a.fmha.heads / a.fmha.heads_kv);
    int index = static_cast<int>(blockIdx.x);
    FlashTiles<C> tiles(a);
    Head last = {0, 0, 0};
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
      const int first = Block::Seen::first_block(a, tile, tile.row);
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
