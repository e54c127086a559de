// What the roles of a flash kernel's block share: the places in shared memory, and which tile comes
// next.
#pragma once

#include "tessera/device/cuda/fmha/flash_arguments.h"
#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

// Queries of one head and one sequence, and how many blocks of keys they see: at least 1, or 0
// where there are no more tiles.
struct FlashTile {
  int row, head, batch, blocks;
};

template <class C>
struct FlashBlock {
  using T = typename C::In;
  static constexpr int kConsumers = C::kWaveM;
  static constexpr int kKeys = C::kTileN;
  static constexpr int kStages = C::kStages;
  static constexpr FlashSizes kSizes =
      flash_sizes({kConsumers, kKeys, C::kTileK, C::kHdimV, kStages});
  static constexpr int kBuffers = kSizes.query_buffers;
  static_assert(C::kTileM == kConsumers * kWgmmaRows, "a consumer has 64 queries");
  static_assert(kConsumers == 2 || kConsumers == 3, "consumers take turns");
  static_assert(kSizes.bytes <= kSharedLimit, "the block must fit into shared memory");

  using Queries = OperandTile<T, kWgmmaRows, C::kTileK, true>;
  using Keys = OperandTile<T, kKeys, C::kTileK, true>;
  using Values = OperandTile<T, C::kHdimV, kKeys, false>;
  static_assert(Keys::kBytes <= kSizes.stage_bytes && Values::kBytes <= kSizes.stage_bytes,
                "a stage holds keys or values");

  u32 shared;

  __device__ __forceinline__ u32 stage(u32 index) const {
    return shared + kSizes.stages + index * kSizes.stage_bytes;
  }
  // Of a consumer, `buffer` counts the buffers of all consumers.
  __device__ __forceinline__ u32 queries(u32 buffer) const {
    return shared + buffer * kSizes.query_bytes;
  }
  __device__ __forceinline__ u32 place(u32 buffer) const {
    return shared + kSizes.places + buffer * 16;
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
    for (u32 i = 0; i < kConsumers; ++i) {
      store_shared(shared + kSizes.flags + i * 8, 0, 0);
    }
    barrier_init_fence();
  }

  // Tile `index`: section by section, and within a section from the last queries of all its heads
  // on, which see most keys with a mask.
  static __device__ __forceinline__ FlashTile tile(const FlashArguments& a, int index) {
    const int heads = static_cast<int>(a.fmha.heads);
    const int queries = static_cast<int>(a.fmha.seqlen_q);
    const int all = heads * static_cast<int>(a.fmha.batch);
    const int per_section = a.section * a.query_tiles;
    const int section = index / per_section;
    const int rest = index - section * per_section;
    const int width = min(a.section, all - section * a.section);
    const int down = rest / width;
    const int pair = section * a.section + rest - down * width;
    const int row = (a.query_tiles - 1 - down) * C::kTileM;
    const int batch = pair / heads;
    int blocks = (static_cast<int>(a.fmha.seqlen_k) + kKeys - 1) / kKeys;
    if (C::kMasked) {
      const int seen = min(row + C::kTileM, queries) - 1 + a.shift;  // keys of the last query
      blocks = max(1, min(blocks, (seen + kKeys - 1) / kKeys));
    }
    return {row, pair - batch * heads, batch, blocks};
  }
};

}  // namespace tessera::device
