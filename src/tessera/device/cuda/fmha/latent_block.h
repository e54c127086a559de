// What the warpgroups of a block of latent attention share: the places in shared memory, the
// queries, and the weights that one warpgroup hands to two others.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/fmha/split_arguments.h"
#include "tessera/device/cuda/fmha/split_bytes.h"
#include "tessera/device/cuda/fmha/split_tile.h"
#include "tessera/device/cuda/fmha/split_work.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/tma_tile.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

// What a block is to do. It lies in shared memory, from where it is read when it is needed, because
// sums leave few registers.
template <class C>
struct LatentWork {
  SplitItem<C> item;
  SplitBlocks blocks;
  SplitPart part;
  bool in_keys;  // whether keys hold the values

  __device__ __forceinline__ explicit LatentWork(const SplitArguments& a)
      : item(a), blocks{0, 0, 0}, part{0, 0, 0}, in_keys(values_in_keys<C::kPages>(a.fmha)) {
    if (item.rows == 0) return;
    const SplitTile<C> tile = item.tile(a.fmha);
    blocks = split_blocks<C::kMasked>(a.fmha, item.s, tile.query_of(0),
                                      tile.query_of(item.rows - 1), kLatentKeys);
    part = split_part(blocks.count, 1, a.parts, item.index, a.fmha.num_splits);
  }
  // No part, or more parts than there are.
  __device__ __forceinline__ bool is_empty() const { return item.index >= part.parts; }
  __device__ __forceinline__ int first_key(int index) const {
    return blocks.block(index) * kLatentKeys;
  }
};

template <class C>
struct LatentBlock {
  using In = typename C::In;
  // Keys of 8 bits are multiplied as fp16, see split_bytes.h.
  static constexpr bool kBytes = sizeof(typename C::Kv) == 1;
  using Half = typename If<kBytes, fp16, In>::Type;
  static constexpr int kStages = C::kStages;
  static constexpr LatentSizes kSizes = latent_sizes(kStages, kBytes);
  static_assert(C::kTileM == kLatentRows && C::kTileN == kLatentKeys && C::kTileK == kLatentHead,
                "tile");
  static_assert(kStages == (kBytes ? kLatentByteStages : kLatentStages),
                "a block's keys and values, twice");
  static_assert(sizeof(LatentWork<C>) <= kLatentWorkBytes, "what a block is to do");
  static_assert(kSizes.bytes <= kSharedLimit, "the block must fit into shared memory");

  // Values are the first elements of keys, or lie as these do: a warpgroup's columns are the rows
  // of an operand.
  using Queries = OperandTile<Half, kLatentRows, kLatentHead, true>;
  using Keys = OperandTile<Half, kLatentKeys, kLatentHead, true>;
  using Values = OperandTile<Half, kLatentColumns, kLatentKeys, false>;
  static_assert(Values::kSlabBytes == Keys::kSlabBytes, "values lie where keys do");
  static_assert(Queries::kBytes == kSizes.stages && Keys::kBytes == kSizes.stage, "sizes");
  using Stages = Ring<kStages>;
  using Slots = Ring<kLatentSlots>;

  u32 shared;

  __device__ __forceinline__ u32 stage(u32 index) const {
    return shared + kSizes.stages + index * kSizes.stage;
  }
  __device__ __forceinline__ u32 raw(u32 index) const {
    return shared + kSizes.raws + index * kLatentRawBytes;
  }
  // Barriers: whether a stage is full, whether weights are ready or were taken.
  __device__ __forceinline__ u32 full(u32 index) const {
    return shared + kSizes.barriers + index * 8;
  }
  __device__ __forceinline__ u32 ready(u32 slot) const { return full(kStages + slot); }
  __device__ __forceinline__ u32 taken(u32 slot) const { return ready(kLatentSlots + slot); }

  // Each thread speaks for itself: for what it copied, and for the weights that it wrote or read.
  __device__ __forceinline__ void init() const {
#pragma unroll 1
    for (u32 i = 0; i < kStages; ++i) barrier_init(full(i), 2 * kGroupThreads);
#pragma unroll 1
    for (u32 i = 0; i < kLatentSlots; ++i) {
      barrier_init(ready(i), kGroupThreads);
      barrier_init(taken(i), 2 * kGroupThreads);
    }
    barrier_init_fence();
  }

  // Waits for what threads copied. Tensor cores see it behind the fence.
  __device__ __forceinline__ void wait_for_stage(const Stages& at) const {
    barrier_wait(full(at.stage), at.phase);
    copy_engine_fence();
  }

  // ---- queries ----

  // A thread's share of the copies of the tile's queries, zeros where there are none.
  __device__ __forceinline__ void fetch_queries(const SplitTile<C>& tile, int thread) const {
    const FmhaArguments& g = tile.g;
    const int chunk = thread % 8;
#pragma unroll 1
    for (int r = thread / 8; r < kLatentRows; r += kLatentThreads / 8) {
      const int row = r < tile.rows ? r : tile.rows - 1;
      const i64 token = tile.s.first_query + tile.query_of(row);
      const In* const q = tile.template token<const In>(g.q, g.q_stride, tile.head_of(row), token);
      const u32 to = shared + r * kLineBytes + ((chunk ^ r % 8) << 4);
      const int left = r < tile.rows ? static_cast<int>(g.hdim) - chunk * 8 : 0;
      const i64 stride = g.q_stride[kTokenElement];
      if (sizeof(In) == 1 || stride != 1 || !aligned16(q)) {
        fetch_elements(to, q + chunk * 8 * stride, stride, left);
        continue;
      }
#pragma unroll
      for (int slab = 0; slab < Queries::kSlabs; ++slab) {
        copy_async<16>(to + slab * Queries::kSlabBytes, q + slab * 64 + chunk * 8,
                       slab * 64 < left ? 16 : 0);
      }
    }
    copies_commit();
  }
  // And waits for it. Tensor cores see what threads stored before the fence.
  static __device__ __forceinline__ void wait_for_queries() {
    copies_wait<0>();
    copy_engine_fence();
  }

  // The word of a row that has its elements 2 * index and 2 * index + 1.
  __device__ __forceinline__ u32 query_word(int row, int index) const {
    return shared + index / 32 * Queries::kSlabBytes + row * kLineBytes +
           ((index % 32 / 4 ^ row % 8) << 4) + index % 4 * 4;
  }
  // Queries of bf16 become fp16, a row after the other by each warp, and leave a factor.
  __device__ __forceinline__ void scale_queries(int thread) const {
    constexpr int kWords = kLatentHead / 64;  // of a lane
    const int lane = thread % 32;
#pragma unroll 1
    for (int r = thread / 32; r < kLatentRows; r += kLatentThreads / 32) {
      u32 words[kWords], top = 0;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[i] = load_word(query_word(r, lane + 32 * i));
        top = max(top, ByteScale::largest(words[i]));
      }
      const ByteScale scale = ByteScale::of(__reduce_max_sync(~0U, top));
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        store_word(query_word(r, lane + 32 * i), scale.halves(words[i]));
      }
      if (lane == 0) store_shared(shared + kSizes.scales + r * 4, scale.down());
    }
    copy_engine_fence();
  }
  __device__ __forceinline__ float scale_of(int row) const {
    return __uint_as_float(load_word(shared + kSizes.scales + row * 4));
  }

  // A warp's 16 rows of 16 elements, as the left operand.
  __device__ __forceinline__ void load_queries(int warp, int lane, int step,
                                               u32 (&words)[4]) const {
    const int row = warp * 16 + lane % 16;
    const int chunk = step % 4 * 2 + lane / 16;
    load_matrices<false>(
        shared + step / 4 * Queries::kSlabBytes + row * kLineBytes + ((chunk ^ (row & 7)) << 4),
        words);
  }

  // ---- weights ----
  //
  // A thread's weights as the left operand of its rows, and by how much what was added up before is
  // to be multiplied. The thread with the same number of another warpgroup takes them.

  __device__ __forceinline__ u32 weights_at(u32 slot, int thread) const {
    return shared + kSizes.weights + slot * kLatentSlotBytes + thread * 16;
  }
  __device__ __forceinline__ u32 factors_at(u32 slot, int thread) const {
    return shared + kSizes.weights + slot * kLatentSlotBytes +
           kLatentKeys / 16 * kGroupThreads * 16 + thread * 8;
  }
  __device__ __forceinline__ void store_weights(u32 slot, int thread,
                                                const u32 (&weights)[kLatentKeys / 16][4],
                                                const float (&factor)[2]) const {
#pragma unroll
    for (int i = 0; i < kLatentKeys / 16; ++i) {
      store_chunk(weights_at(slot, thread) + i * kGroupThreads * 16, weights[i]);
    }
    store_shared(factors_at(slot, thread), factor[0], factor[1]);
  }
  __device__ __forceinline__ void load_weights(u32 slot, int thread,
                                               u32 (&weights)[kLatentKeys / 16][4],
                                               float (&factor)[2]) const {
#pragma unroll
    for (int i = 0; i < kLatentKeys / 16; ++i) {
      load_words(weights_at(slot, thread) + i * kGroupThreads * 16, weights[i]);
    }
    load_shared(factors_at(slot, thread), factor[0], factor[1]);
  }

 private:
  // A head's length is one of whole chunks.
  static __device__ __forceinline__ void fetch_elements(u32 to, const In* q, i64 stride, int left) {
#pragma unroll 1
    for (int i = 0; i < Queries::kSlabs * 8; ++i) {
      const int element = i / 8 * 64 + i % 8;
      u16 bits = 0;
      if (element < left) {
        if constexpr (sizeof(In) == 1) {
          bits = static_cast<u16>(halves_of<In>(q[element * stride].bits));
        } else {
          bits = q[element * stride].bits;
        }
      }
      store_shared_half(to + i / 8 * Queries::kSlabBytes + i % 8 * 2, bits);
    }
  }

  static __device__ __forceinline__ void load_words(u32 from, u32 (&words)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  }
};

}  // namespace tessera::device
