// What the roles of a block of a flash kernel of gradients share: the places in shared memory,
// which keys come next, and which queries meet them.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_arguments.h"
#include "tessera/device/cuda/fmha/flash_backward_sizes.h"
#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

// A block of keys of a key-value head and a sequence, from `key` on; number: 1 and up, 0 where
// there are no more. With slices, a block of keys has as many items, one after the other. The rest
// is told only where sequences have lengths of their own.
struct FlashItem {
  int key, head, batch, number;
  int queries, keys, first_query, first_key;
};

template <class C>
struct FlashBackwardBlock {
  using T = typename C::In;
  static constexpr int kKeys = C::kTileM;
  static constexpr int kQueries = C::kTileN;
  static constexpr int kHdim = C::kTileK;
  static constexpr int kHdimV = C::kHdimV;
  static constexpr int kStages = C::kStages;
  static constexpr int kParts = flash_dq_parts(kQueries, kHdim);
  static constexpr bool kWide = kKeys == kFlashWideKeys;
  // Whether a score is more than a product times the scale, or a weight may be dropped.
  static constexpr bool kBends = C::kSoftCap || C::kBias != FmhaBias::none || C::kDropout;
  static constexpr bool kEqual = C::kLengths == FmhaLengths::equal;
  static constexpr FlashBackwardSizes kSizes =
      flash_backward_sizes({kKeys, kQueries, kHdim, kHdimV, kStages});
  static_assert(kWide || (kKeys == kFlashOwnKeys && kHdim == kHdimV), "a consumer has 64 keys");
  static_assert(kWide || !kBends, "only wide kernels have more than products");
  static_assert(kWide ? kQueries == kWgmmaRows : kParts == 2, "consumers share dq by whole parts");
  static_assert(kSizes.bytes <= kSharedLimit, "the block must fit into shared memory");
  static_assert(flash_registers_suffice(kFlashOwnConsumers, flash_registers(kFlashOwnConsumers),
                                        flash_fetch_registers(kFlashOwnConsumers)),
                "consumers would wait for registers");

  // Tiles whose heads lie along k, and the same memory where tokens lie along k.
  using Keys = OperandTile<T, kKeys, kHdim, true>;
  using KeysAcross = OperandTile<T, kHdim, kKeys, false>;
  using Values = OperandTile<T, kKeys, kHdimV, true>;
  using Queries = OperandTile<T, kQueries, kHdim, true>;
  using QueriesAcross = OperandTile<T, kHdim, kQueries, false>;
  using Douts = OperandTile<T, kQueries, kHdimV, true>;
  using DoutsAcross = OperandTile<T, kHdimV, kQueries, false>;
  // Gradients of scores: a line of 64 queries for each key.
  using Gradients = OperandTile<T, kQueries, kKeys, false>;
  using GradientsAcross = OperandTile<T, kKeys, kQueries, true>;

  u32 shared;

  __device__ __forceinline__ u32 keys() const { return shared; }
  __device__ __forceinline__ u32 values() const { return shared + kSizes.values; }
  __device__ __forceinline__ u32 queries(u32 stage) const {
    return shared + kSizes.queries + stage * kSizes.query_bytes;
  }
  __device__ __forceinline__ u32 douts(u32 stage) const {
    return shared + kSizes.douts + stage * kSizes.dout_bytes;
  }
  __device__ __forceinline__ u32 gradients(u32 buffer) const {
    return shared + kSizes.gradients + buffer * kSizes.gradient_bytes;
  }
  __device__ __forceinline__ u32 stats(u32 stage) const {
    return shared + kSizes.stats + stage * kSizes.stats_bytes;
  }
  __device__ __forceinline__ u32 place() const { return shared + kSizes.place; }

  __device__ __forceinline__ u32 barrier(u32 index) const {
    return shared + kSizes.barriers + index * 8;
  }
  __device__ __forceinline__ u32 keys_full() const { return barrier(0); }
  __device__ __forceinline__ u32 keys_empty() const { return barrier(1); }
  __device__ __forceinline__ u32 values_full() const { return barrier(2); }
  __device__ __forceinline__ u32 values_empty() const { return barrier(3); }
  __device__ __forceinline__ u32 queries_full(u32 stage) const { return barrier(4 + stage); }
  __device__ __forceinline__ u32 queries_empty(u32 stage) const {
    return barrier(4 + kStages + stage);
  }
  __device__ __forceinline__ u32 douts_full(u32 stage) const {
    return barrier(4 + 2 * kStages + stage);
  }
  __device__ __forceinline__ u32 douts_empty(u32 stage) const {
    return barrier(4 + 3 * kStages + stage);
  }
  __device__ __forceinline__ u32 gradients_full(u32 buffer) const {
    return barrier(4 + 4 * kStages + buffer);
  }

  // Each warp of the consumers releases for itself, because it reads more than wgmma does. So do
  // the warps that keep the order, which read the place of an item. lse and delta lie in the
  // stages of queries and douts, and each thread has read its own.
  __device__ __forceinline__ void init() const {
    barrier_init(keys_full(), 1);
    barrier_init(keys_empty(), kFlashWarps + (C::kOrdered ? kFlashOwnConsumers : 0));
    barrier_init(values_full(), 1);
    barrier_init(values_empty(), kFlashWarps);
    for (u32 i = 0; i < kStages; ++i) {
      barrier_init(queries_full(i), 1);
      barrier_init(queries_empty(i), kFlashOwnConsumers * kGroupThreads);
      barrier_init(douts_full(i), 1);
      barrier_init(douts_empty(i), kFlashOwnConsumers * kGroupThreads);
    }
    for (u32 i = 0; i < kFlashGradientBuffers; ++i) barrier_init(gradients_full(i), kFlashWarps);
    barrier_init_fence();
  }

  // ---- the place of an item ----

  __device__ __forceinline__ void tell(const FlashItem& item) const {
    store_shared(place(), item.key, item.head, item.batch, item.number);
    if constexpr (!kEqual) {
      store_shared(place() + 16, item.queries, item.keys, item.first_query, item.first_key);
    }
  }
  __device__ __forceinline__ FlashItem told(int lane) const {
    int words[4];
    FlashItem item = {};
    load_shared_if(place(), words, lane == 0);
    item.key = uniform(words[0]), item.head = uniform(words[1]);
    item.batch = uniform(words[2]), item.number = uniform(words[3]);
    if constexpr (!kEqual) {
      load_shared_if(place() + 16, words, lane == 0);
      item.queries = uniform(words[0]), item.keys = uniform(words[1]);
      item.first_query = uniform(words[2]), item.first_key = uniform(words[3]);
    }
    return item;
  }

  // ---- what an item sees ----

  static __device__ __forceinline__ int queries_of(const FlashBackwardArguments& a,
                                                   const FlashItem& item) {
    return kEqual ? static_cast<int>(a.backward.forward.seqlen_q) : item.queries;
  }
  static __device__ __forceinline__ int keys_of(const FlashBackwardArguments& a,
                                                const FlashItem& item) {
    return kEqual ? static_cast<int>(a.backward.forward.seqlen_k) : item.keys;
  }
  static __device__ __forceinline__ int diagonal(const FlashBackwardArguments& a,
                                                 const FlashItem& item) {
    return kEqual || a.backward.forward.at_end == 0 ? 0 : item.keys - item.queries;
  }
  // Where what belongs to a block of queries lies in the workspace. `index` counts the blocks of
  // all heads and sequences.
  static __device__ __forceinline__ float* sums_of(const FlashBackwardArguments& a, int index) {
    char* const all = static_cast<char*>(a.workspace) + kCounterBytes;
    return reinterpret_cast<float*>(all) + i64{index} * (kParts * kFlashPartFloats);
  }
  static __device__ __forceinline__ float* stats_of(const FlashBackwardArguments& a, int index) {
    return reinterpret_cast<float*>(static_cast<char*>(a.workspace) + a.stats) +
           i64{index} * flash_stats_floats(kQueries);
  }
  // The sums of dk and dv of an item, where several items have the same keys: for each consumer's
  // slab of 64 keys by 64 elements as many floats as a part of dq has. `index` counts items.
  static constexpr int kItemFloats = kKeys * (kHdim + kHdimV);
  static __device__ __forceinline__ float* slice_of(const FlashBackwardArguments& a, int index) {
    return reinterpret_cast<float*>(static_cast<char*>(a.workspace) + a.slices) +
           i64{index} * kItemFloats;
  }
  // The sums of dbias, where pairs of queries and keys share elements of it.
  static __device__ __forceinline__ float* bias_sums_of(const FlashBackwardArguments& a) {
    if (a.bias_sums == 0) return nullptr;
    return reinterpret_cast<float*>(static_cast<char*>(a.workspace) + a.bias_sums);
  }
  static __device__ __forceinline__ u32* turns_of(const FlashBackwardArguments& a, int index) {
    return reinterpret_cast<u32*>(static_cast<char*>(a.workspace) + a.turns) +
           i64{index} * kFlashOwnConsumers;
  }
};

// The blocks of queries that meet the keys of an item, of all heads that share these: from the last
// block of each head to the first, because blocks that run side by side then read the same queries
// whatever the mask is.
template <class C>
struct FlashWalk {
  using Block = FlashBackwardBlock<C>;
  static constexpr int kQueries = Block::kQueries;

  int first = 0, end = 0;  // blocks of a head
  int left = 0;            // that are to come, the current one too
  int head = 0, block = 0;
  int base = 0;  // number of the head's first block among all blocks of all heads and sequences

  __device__ __forceinline__ FlashWalk() {}
  __device__ __forceinline__ FlashWalk(const FlashBackwardArguments& a, const FlashItem& item) {
    const int group = static_cast<int>(a.backward.forward.heads / a.backward.forward.heads_kv);
    int from = 0, last = Block::queries_of(a, item) - 1;
    if (C::kMasked) {
      const int diagonal = Block::diagonal(a, item);
      const int last_key = min(item.key + Block::kKeys, Block::keys_of(a, item)) - 1;
      from = max(0, item.key - a.right - diagonal + 1);
      if (item.key >= a.sink) last = min(last, last_key - a.left - diagonal);
    }
    if (from <= last) first = from / kQueries, end = last / kQueries + 1;
    left = (end - first) * group;
    head = item.head * group;
    block = end - 1;
    if (C::kSlices > 1 && left > 0) take_slice((item.number - 1) % C::kSlices);
    base = (item.batch * static_cast<int>(a.backward.forward.heads) + head) * a.query_blocks;
  }
  // Leaves out the blocks of other slices.
  __device__ __forceinline__ void take_slice(int slice) {
    const int begin = left * slice / C::kSlices, heads = begin / (end - first);
    left = left * (slice + 1) / C::kSlices - begin;
    head += heads;
    block -= begin - heads * (end - first);
  }
  __device__ __forceinline__ void next(int query_blocks) {
    --left;
    if (--block < first) {
      block = end - 1;
      ++head;
      base += query_blocks;
    }
  }
  __device__ __forceinline__ int index() const { return base + block; }
};

// The items of all key-value heads and sequences, in the order in which blocks take them: section
// by section, and within a section from the first keys of all its heads on, which most queries see
// with a mask. Where sequences have lengths of their own, one sequence follows the other. Keys of a
// head come in their order, which the order of sums of dq relies on.
template <class C>
class FlashItems {
  using Block = FlashBackwardBlock<C>;
  static constexpr bool kEqual = Block::kEqual;

  const FlashBackwardArguments& a;
  const FmhaArguments& g;
  const int heads;
  int batch = 0;     // the sequence that was looked at last, and
  int begin = 0;     // its first item
  FmhaSequence own;  // its lengths

  static __device__ __forceinline__ int blocks_of(i64 keys) {
    return static_cast<int>((keys + Block::kKeys - 1) / Block::kKeys);
  }
  __device__ __forceinline__ FlashItem place(int index, int pairs, int blocks) const {
    const int per_section = a.section * blocks;
    const int section = index / per_section;
    const int rest = index - section * per_section;
    const int width = min(a.section, pairs - section * a.section);
    const int down = rest / width;
    return {down * Block::kKeys, section * a.section + rest - down * width, 0, 0, 0, 0, 0, 0};
  }

 public:
  __device__ __forceinline__ explicit FlashItems(const FlashBackwardArguments& arguments)
      : a(arguments), g(arguments.backward.forward), heads(static_cast<int>(g.heads_kv)) {
    if constexpr (!kEqual) own = sequence_of<C::kLengths>(g, batch);
  }

  // Item `number` - 1, which is above those that were asked for before.
  __device__ __forceinline__ FlashItem find(int number) {
    const int index = number / C::kSlices;
    FlashItem item = {};
    // Sums of lengths may promise more keys than there is room for slices of.
    if ((kEqual || C::kSlices > 1) && index >= a.items) return item;
    if constexpr (kEqual) {
      item = place(index, heads * static_cast<int>(g.batch), a.key_blocks);
      item.batch = item.head / heads;
      item.head -= item.batch * heads;
    } else {
#pragma unroll 1
      while (index - begin >= heads * blocks_of(own.keys)) {
        begin += heads * blocks_of(own.keys);
        if (++batch >= g.batch) return item;
        own = sequence_of<C::kLengths>(g, batch);
      }
      item = place(index - begin, heads, blocks_of(own.keys));
      item.batch = batch;
      item.queries = static_cast<int>(own.queries), item.keys = static_cast<int>(own.keys);
      item.first_query = static_cast<int>(own.first_query);
      item.first_key = static_cast<int>(own.first_key);
    }
    item.number = number + 1;
    return item;
  }
};

}  // namespace tessera::device
