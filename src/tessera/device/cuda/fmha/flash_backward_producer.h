// The threads of a flash kernel of gradients that do not multiply: one that fetches keys, values,
// queries and gradients of outputs, and where sums are ordered, a warp for each consumer that keeps
// the order.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_block.h"
#include "tessera/device/cuda/fmha/flash_counters.h"

namespace tessera::device {

template <class C>
class FlashBackwardProducer {
  using Block = FlashBackwardBlock<C>;
  using Walk = FlashWalk<C>;
  static constexpr int kSlabs = Block::kHdim / kFlashSlab;
  static constexpr int kSlabsV = Block::kHdimV / kFlashSlab;

  const FlashBackwardArguments& a;
  const Block block;
  Ring<Block::kStages> ring;

  template <int kRows, int kCount>
  static __device__ __forceinline__ void load(const CudaTensorMap* map, TmaTarget target, int token,
                                              int head, int batch) {
#pragma unroll
    for (int slab = 0; slab < kCount; ++slab) {
      tma_load<false>(target, TmaBox<4>{map, {slab * kFlashSlab, token, head, batch}});
      target.to += kRows * kLineBytes;
    }
  }
  // Packed sequences are one sequence to the copy engine.
  static __device__ __forceinline__ int batch_of(const FlashItem& item) {
    return C::kLengths == FmhaLengths::packed ? 0 : item.batch;
  }

  // Only this block reads its keys. Others read the same queries and gradients of outputs.
  template <int kCount>
  __device__ __forceinline__ void put_keys(const CudaTensorMap* map, u32 to, u32 full,
                                           const FlashItem& item) const {
    barrier_expect(full, kCount * Block::kKeys * kLineBytes);
    load<Block::kKeys, kCount>(map, {to, full, 0, kEvictFirst}, item.first_key + item.key,
                               item.head, batch_of(item));
  }
  __device__ __forceinline__ void put_queries(const FlashItem& item, const Walk& walk) const {
    const u32 full = block.queries_full(ring.stage);
    barrier_wait(block.queries_empty(ring.stage), ring.phase ^ 1);
    barrier_expect(full, Block::kSizes.query_bytes + Block::kSizes.stats_bytes);
    load<Block::kQueries, kSlabs>(&a.q_map, {block.queries(ring.stage), full, 0, kEvictLast},
                                  item.first_query + walk.block * Block::kQueries, walk.head,
                                  batch_of(item));
    bulk_load<false>({block.stats(ring.stage), full, 0, kEvictLast},
                     Block::stats_of(a, walk.index()), Block::kSizes.stats_bytes);
  }
  __device__ __forceinline__ void put_douts(const FlashItem& item, const Walk& walk) const {
    const u32 full = block.douts_full(ring.stage);
    barrier_wait(block.douts_empty(ring.stage), ring.phase ^ 1);
    barrier_expect(full, Block::kSizes.dout_bytes);
    load<Block::kQueries, kSlabsV>(&a.dout_map, {block.douts(ring.stage), full, 0, kEvictLast},
                                   item.first_query + walk.block * Block::kQueries, walk.head,
                                   batch_of(item));
  }

  __device__ __forceinline__ int take() const {
    return static_cast<int>(atomicAdd(static_cast<u32*>(a.workspace), 1U));
  }

 public:
  __device__ __forceinline__ FlashBackwardProducer(const FlashBackwardArguments& arguments,
                                                   const Block& shared)
      : a(arguments), block(shared) {}

  // A block that runs has taken all of its items from the counter. So the item with the lowest
  // number waits for nobody where sums are ordered.
  __device__ __forceinline__ void run() {
    FlashItems<C> items(a);
    u32 phase = 0;
    int index = take();
#pragma unroll 1
    for (;; phase ^= 1) {
      const FlashItem item = items.find(index);
      barrier_wait(block.keys_empty(), phase ^ 1);
      block.tell(item);
      if (item.number == 0) break;
      index = take();
      put_keys<kSlabs>(&a.k_map, block.keys(), block.keys_full(), item);
      Walk walk(a, item);
      if (walk.left > 0) put_queries(item, walk);
      barrier_wait(block.values_empty(), phase ^ 1);
      put_keys<kSlabsV>(&a.v_map, block.values(), block.values_full(), item);
#pragma unroll 1
      while (walk.left > 0) {
        put_douts(item, walk);
        walk.next(a.query_blocks);
        ring.next();
        if (walk.left > 0) put_queries(item, walk);
      }
    }
    barrier_arrive(block.keys_full());
    end_block(a.workspace);
  }
};

// A warp that lets a consumer add to sums of dq when all blocks of earlier keys have added, and
// that then tells the blocks of later ones.
template <class C>
class FlashTurns {
  using Block = FlashBackwardBlock<C>;

 public:
  static constexpr int kGo = 1, kDone = 3;  // named barriers, of each consumer
  static constexpr int kThreads = kGroupThreads + 32;

  static __device__ __forceinline__ void run(const FlashBackwardArguments& a, const Block& block,
                                             int group) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (u32 phase = 0;; phase ^= 1) {
      barrier_wait(block.keys_full(), phase);
      const FlashItem item = block.told(lane);
      if (item.number == 0) break;
      FlashWalk<C> walk(a, item);
      if (walk.left > 0 && lane == 0) wait_for(turn_of(a, item, walk, group));
#pragma unroll 1
      while (walk.left > 0) {
        __syncwarp();
        threads_arrive(kGo + group, kThreads);
        threads_sync(kDone + group, kThreads);
        const Turn own = turn_of(a, item, walk, group);
        walk.next(a.query_blocks);
        if (lane != 0) continue;
        if (walk.left > 0) {
          pass_on(own, turn_of(a, item, walk, group));
        } else {
          device_fence();
          store_relaxed(own.at, own.mine + 1);
        }
      }
      barrier_arrive_if(block.keys_empty(), lane == 0);
    }
  }

 private:
  // The count of blocks that have added to some sums, and how many come before this one.
  struct Turn {
    u32* at;
    u32 mine;
  };
  static __device__ __forceinline__ Turn turn_of(const FlashBackwardArguments& a,
                                                 const FlashItem& item, const FlashWalk<C>& walk,
                                                 int group) {
    return {Block::turns_of(a, walk.index()) + group,
            static_cast<u32>(blocks_before(a, item, walk.block))};
  }
  static __device__ __forceinline__ void wait_for(const Turn& turn) {
    while (load_acquired(turn.at) != turn.mine) __nanosleep(20);
  }
  // Tells that the consumer, whom a barrier has put before this, has added, and waits for the next
  // turn. One fence orders both where the next turn has come already.
  static __device__ __forceinline__ void pass_on(const Turn& own, const Turn& next) {
    const u32 seen = load_relaxed(next.at);
    device_fence();
    store_relaxed(own.at, own.mine + 1);
    if (seen != next.mine) wait_for(next);
  }

  // How many blocks of earlier keys see a query of the block: those from the first one of its
  // window on, and those of the first keys that all later queries see.
  static __device__ __forceinline__ int blocks_before(const FlashBackwardArguments& a,
                                                      const FlashItem& item, int queries) {
    const int own = item.key / Block::kKeys;
    if (!C::kMasked) return own;
    const int key = queries * Block::kQueries + a.left + Block::diagonal(a, item);
    const int first = max(0, key) / Block::kKeys;
    const int sinks = min((a.sink + Block::kKeys - 1) / Block::kKeys, first);
    return own < sinks ? own : own - first + sinks;
  }
};

}  // namespace tessera::device
