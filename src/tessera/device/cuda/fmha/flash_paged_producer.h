// The warp of a flash kernel that fetches from the pages of a cache.
#pragma once

#include "tessera/device/cuda/fmha/flash_pages.h"
#include "tessera/device/cuda/fmha/flash_producer.h"

namespace tessera::device {

// A ring's stage and its phase in one number, since registers are short.
template <int kStages>
struct FlashRing {
  u32 at = 0;  // below kStages: phase 0
  __device__ __forceinline__ u32 phase() const { return at >= kStages ? 1 : 0; }
  __device__ __forceinline__ u32 stage() const { return at - phase() * kStages; }
  __device__ __forceinline__ void next() { at = at == 2 * kStages - 1 ? 0 : at + 1; }
};

// Goes the way of FlashProducer, whose queries it fetches. Blocks of keys and values are boxes of
// pages, one a lane. Entries are loaded a block ahead, because each is needed at once when its turn
// comes.
template <class C>
class FlashPagedProducer {
  using Block = FlashBlock<C>;
  static constexpr int kKeys = C::kTileN;
  static_assert(kKeys / kFlashLeastBox <= 32, "a lane has a box");

  const FlashArguments& a;
  const Block block;
  const int lane, tokens;  // of a box
  FlashProducer<C> plain;
  FlashRing<C::kStages> ring;

  __device__ __forceinline__ FlashBox find(const FlashTile& tile, int index) const {
    return find_box(a.fmha, tile, index * kKeys, tokens, kKeys, lane);
  }

  // Fills the next stage with the boxes that there are. Where there are none it is passed on.
  template <int kHdim>
  __device__ __forceinline__ void put(const CudaTensorMap* map, const FlashBox& box, int head) {
    constexpr int kSlabs = rounded_up(kHdim, Block::kPerLine) / Block::kPerLine;
    const u32 stage = ring.stage();
    barrier_wait(block.empty(stage), ring.phase() ^ 1);
    const u32 full = block.full(stage);
    const int boxes = __popc(__ballot_sync(~0U, box.is_there()));
    if (lane == 0) barrier_expect(full, boxes * tokens * kLineBytes * kSlabs);
    if (box.is_there()) {
      const int page = static_cast<int>(page_in_cache(a.fmha, box.entry));
      TmaTarget target = {block.stage(stage) + lane * tokens * kLineBytes, full, 0, kEvictLast};
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        tma_load<false>(target, TmaBox<4>{map, {slab * Block::kPerLine, box.token, head, page}});
        target.to += kKeys * kLineBytes;
      }
    }
    __syncwarp();
    ring.next();
  }
  __device__ __forceinline__ void put_keys(const FlashBox& box, int head) {
    put<C::kTileK>(&a.k_map, box, head);
  }
  __device__ __forceinline__ void put_values(const FlashBox& box, int head, bool is_last) {
    if constexpr (Block::kConverts) {
      put_raw_values(box, head, is_last);
    } else {
      put<C::kHdimV>(&a.v_map, box, head);
    }
  }
  // Values of 8 bits take the next stage when they are converted, see flash_convert.h. Their boxes
  // follow each other as the keys do.
  __device__ __forceinline__ void put_raw_values(const FlashBox& box, int head, bool is_last) {
    const u32 raw = plain.raws.stage, full = block.raw_full(raw);
    barrier_wait(block.raw_empty(raw), plain.raws.phase ^ 1);
    const int boxes = __popc(__ballot_sync(~0U, box.is_there()));
    if (lane == 0) {
      store_shared(block.raw_state(raw),
                   (boxes > 0 ? kRawIsThere : 0) | (is_last ? kRawIsLast : 0));
      barrier_expect(full, boxes * tokens * C::kHdimV);
    }
    __syncwarp();
    if (box.is_there()) {
      const int page = max(0, min(box.entry, static_cast<int>(a.fmha.num_pages) - 1));
      tma_load<false>({block.raw(raw) + lane * tokens * C::kHdimV, full, 0, kEvictLast},
                      TmaBox<4>{&a.v_map, {0, box.token, head, page}});
    }
    __syncwarp();
    plain.raws.next();
    ring.next();
  }

  __device__ __forceinline__ void put_queries(u32 consumer, const FlashTile& tile) {
    if (lane == 0) plain.put_queries(consumer, tile);
    __syncwarp();
  }

 public:
  __device__ __forceinline__ FlashPagedProducer(const FlashArguments& arguments,
                                                const Block& shared)
      : a(arguments),
        block(shared),
        lane(static_cast<int>(threadIdx.x) % 32),
        tokens(flash_box(arguments.fmha.page_size, kKeys)),
        plain(arguments, shared) {}

  __device__ __forceinline__ void run() {
    const int group = static_cast<int>(a.fmha.heads / a.fmha.heads_kv);
    int index = static_cast<int>(blockIdx.x);
    FlashTiles<C> tiles(a);
    FlashBox now = {0, -1};  // of the block whose keys came last
    int last_head = 0;       // of the tile before
#pragma unroll 1
    for (;;) {
      FlashTile tile = {0, 0, 0, 0, 0, 0, 0, 0};
      const bool is_tile = tiles.find(index, tile);
      // Asked for early: the answer takes a while.
      int next = static_cast<int>(gridDim.x);
      if (is_tile && lane == 0) next += atomicAdd(static_cast<int*>(a.workspace), 1);
      const int head = tile.head / group;
      const int first = Block::Seen::first_block(a, tile, tile.row);
      FlashBox before = now;
      now = find(tile, tile.blocks - 1);
      FlashBox ahead = find(tile, tile.blocks - 2);
#pragma unroll 1
      for (u32 consumer = 0; consumer < Block::kConsumers; ++consumer) {
        put_queries(consumer, tile);
        if (consumer == 0) put_keys(now, head);
      }
      put_values(before, last_head, !is_tile);
      if (!is_tile) break;
#pragma unroll 1
      for (int i = tile.blocks - 1; i > first; --i) {
        before = now, now = ahead;
        ahead = find(tile, i - 2);
        put_keys(now, head);
        put_values(before, head, false);
      }
      last_head = head;
      index = __shfl_sync(~0U, next, 0);
      plain.buffers.next();
    }
    if (lane == 0) end_block(a.workspace);
  }
};

}  // namespace tessera::device
