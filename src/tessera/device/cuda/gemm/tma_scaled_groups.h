// out = epilogue(alpha * A x B + beta * C) for groups of unequal sizes whose operands have scales
// of blocks of 128 along k, by tma_scaled_loop.h. Walk, operands and stores are those of
// tma_grouped_gemm.h; each tile reads the scales of its rows of A and of its group's B.
//
// Along k, tiles begin where blocks of scales do. Consumers set to zero what the first and the last
// one have of other groups.
#pragma once

#include "tessera/device/cuda/gemm/clear_k.h"
#include "tessera/device/cuda/gemm/tma_grouped_gemm.h"
#include "tessera/device/cuda/gemm/tma_scales.h"

namespace tessera::device {

template <class C>
struct TmaScaledGroups {
  using Groups = TmaGroupedGemm<C>;
  using TileP = typename Groups::TileP;
  using TileQ = typename Groups::TileQ;
  using Loop = TmaScaledLoop<C, GroupLoader<TileP>, GroupLoader<TileQ>>;
  using Ring = typename Loop::Ring;
  using Acc = typename Loop::Acc;
  static constexpr int kThreads = Groups::kThreads;
  static constexpr int kMinBlocks = Loop::min_blocks(C::kSharedBytes);
  static constexpr bool kAlongK = Groups::kAlongK;

  // Scales lie behind the areas that the host counts, and before the walk's memory.
  static constexpr int kOffsetScales = C::kSharedBytes - C::kStages * Loop::kScaleBytes;
  static_assert(kOffsetScales >= Groups::kSizes.shared_bytes && kOffsetScales % 8 == 0,
                "scales lie in memory of their own, in pairs");

  Groups groups;
  Loop scaled;
  const CudaScales& scales;

  __device__ __forceinline__ TmaScaledGroups(const CudaScaledGroupArguments& x,
                                             unsigned char* memory)
      : groups(x.cuda, memory),
        scaled{groups.loop, groups.shared + kOffsetScales},
        scales(x.scales) {}

  // ---- roles ----

  static __device__ __forceinline__ void run(const CudaScaledGroupArguments& x) {
    extern __shared__ __align__(1024) unsigned char memory[];
    if (found_bad_group(x.cuda.groups)) return;
    const TmaScaledGroups block(x, memory);
    block.init();
    block.groups.loop.run_roles(block);
  }

  __device__ __forceinline__ void init() const {
    const auto& loop = groups.loop;
    if (loop.is_producer() && loop.thread == 0 && groups.arguments.groups.gemm.k > 0) {
      tma_prefetch(&groups.arguments.a_map);
      tma_prefetch(&groups.arguments.b_map);
    }
    if (threadIdx.x == 0) {
      scaled.init_ring();
      barrier_init_fence();
    }
    __syncthreads();
  }

  // ---- the producer ----

  __device__ __forceinline__ void produce() const {
    if (!scaled.is_filling_warp()) return;
    const bool chosen = elect_one();
    Ring ring;
#pragma unroll 1
    for (int i = blockIdx.x; i < groups.walk.tiles; i += gridDim.x) {
      const GroupItem item = in_whole_blocks(groups.walk.find(i));
      scaled.fill(
          ring, {0, groups.steps_of(item)}, [&] { return scales_of(item); }, chosen,
          [&] { return groups.loaders_of(item); });
    }
    copies_commit();
    copies_wait<0>();  // a thread stays until its copies are there
  }

  // How much of k lies between the beginning of a block and the item's own.
  static __device__ __forceinline__ int ahead_of(const GroupItem& item) {
    if (!kAlongK || item.part.size == 0) return 0;
    return static_cast<int>(item.part.begin) % kScaledDepth;
  }
  static __device__ __forceinline__ GroupItem in_whole_blocks(GroupItem item) {
    const int ahead = ahead_of(item);
    item.part.begin -= ahead;
    item.part.size += ahead;
    return item;
  }

  __device__ __forceinline__ typename Loop::Scales scales_of(const GroupItem& item) const {
    const int group = static_cast<int>(item.part.group);
    const int begin = static_cast<int>(item.part.begin);
    const TilePlace a = {(kAlongK ? 0 : begin) + item.row, kAlongK ? begin : 0, group};
    const TilePlace b = {item.column, a.k, group};
    return tile_scales<C, Loop>(scales, groups.arguments.groups.gemm, a, b);
  }

  // ---- the consumers ----

  __device__ __forceinline__ void consume() const {
    const auto free = scaled.release();
    Ring ring;
    Acc sums[Loop::kBlocks][Loop::kAccumulators];
#pragma unroll 1
    for (int i = blockIdx.x; i < groups.walk.tiles; i += gridDim.x) {
      const GroupItem item = groups.walk.find(i);
      multiply(sums, ring, free, item);
      groups.store(sums, item);
    }
    if (!C::kDirectStore && groups.loop.thread == 0) stores_wait_all();
  }

  __device__ __forceinline__ void multiply(Acc (&sums)[Loop::kBlocks][Loop::kAccumulators],
                                           Ring& ring, const typename Loop::Release& free,
                                           const GroupItem& item) const {
    const int steps = groups.steps_of(in_whole_blocks(item));
    if constexpr (kAlongK) {
      const int first = ahead_of(item);
      const int last = first + static_cast<int>(item.part.size);
      scaled.multiply(sums, ring, free, steps, [&](u32 stage, int step) {
        clear_others(stage, first - step * kScaledDepth, last - step * kScaledDepth);
      });
    } else {
      scaled.multiply(sums, ring, free, steps, [](u32, int) {});
    }
  }

  // Keeps what the stage has from `first` up to `last` along k. All consumers call this.
  __device__ __forceinline__ void clear_others(u32 stage, int first, int last) const {
    if (first <= 0 && last >= kScaledDepth) return;
    const auto& loop = groups.loop;
    const u32 thread = loop.warpgroup * kGroupThreads + loop.thread;
    clear_lines_but<TileP>(loop.stages + stage * TileP::kBytes, first, last, thread);
    clear_lines_but<TileQ>(loop.stages + Groups::Loop::kOffsetQ + stage * TileQ::kBytes, first,
                           last, thread);
    __syncwarp();  // threads leave those loops one by one, and wgmma takes whole warps
    copy_engine_fence();
    threads_sync(Groups::kTailBarrier, Groups::kSharers);
  }
  template <class Tile>
  static __device__ __forceinline__ void clear_lines_but(u32 tile, int first, int last,
                                                         u32 thread) {
    static_assert(!kAlongK || (Tile::kAlongK && Tile::kSlabs == 1), "lines are blocks of scales");
    constexpr u32 kPieces = kLineBytes / kPieceBytes;  // of a line
#pragma unroll 1
    for (u32 i = thread; i < Tile::kBytes / kPieceBytes; i += Groups::kSharers) {
      const u32 line = i / kPieces;
      const u32 piece = (i % kPieces) ^ (line % 8);  // as tma_tile.h swizzles them
      const int k = static_cast<int>(piece) * kPieceBytes;
      clear_but(tile + i * kPieceBytes, first - k, last - k);
    }
  }
};

}  // namespace tessera::device
