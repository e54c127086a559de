// out = epilogue(alpha * A x B + beta * C) for groups of unequal sizes on Hopper, by
// tma_main_loop.h. Blocks stay and walk along the tiles of all groups (group_walk.h).
//
// A, B and out are one tensor map each, in which a group is a range of rows or of k, or a matrix. A
// tile whose rows go beyond its group's end reads rows of others, whose products are not stored.
// The copy engine stores whole tiles; threads store the rows of others (tma_named_rows.h). Along k,
// group_tail.h takes away what follows a group's end.
#pragma once

#include "tessera/device/cuda/gemm/group_check.h"
#include "tessera/device/cuda/gemm/group_tail.h"
#include "tessera/device/cuda/gemm/group_walk.h"
#include "tessera/device/cuda/tma_main_loop.h"
#include "tessera/device/cuda/tma_named_rows.h"

namespace tessera::device {

// A matrix that a tensor map describes, from a first k on.
template <class OperandTile>
struct GroupLoader {
  using Tile = OperandTile;
  static constexpr u64 kHint = kEvictNormal;

  const CudaTensorMap* map;
  TilePlace from;

  __device__ __forceinline__ void fetch(const TmaTarget& target, int step) const {
    const TilePlace place = {from.row, from.k + step * Tile::kDepth, from.batch};
    Tile::template load<1>(target, map, place, {0, 0});
  }
};

// The same kernel without stores by the copy engine.
template <class C>
struct StoredByThreads : C {
  static constexpr bool kDirectStore = true;
};

template <class C>
struct TmaGroupedGemm {
  static_assert(C::kSplits == 1 && C::kSlices == 1 && !C::kStreamK && !C::kPreshuffled &&
                    C::kClusterM == 1 && C::kClusterN == 1,
                "blocks share neither tiles nor parts of k of groups");

  // ---- sizes ----

  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  using TileP = OperandTile<typename If<C::kSwapAb, B, A>::Type, C::kTileM, C::kTileK,
                            C::kSwapAb ? C::kBKContiguous : C::kAKContiguous>;
  using TileQ = OperandTile<typename If<C::kSwapAb, A, B>::Type, C::kTileN, C::kTileK,
                            C::kSwapAb ? C::kAKContiguous : C::kBKContiguous>;
  using Loop = TmaMainLoop<C, GroupLoader<TileP>, GroupLoader<TileQ>>;
  using Ring = typename Loop::Ring;
  static constexpr int kConsumers = Loop::kConsumers;
  static constexpr int kThreads = Loop::kThreads;
  static constexpr int kBlocks = Loop::kBlocks;
  static constexpr int kAccumulators = Loop::kAccumulators;
  static constexpr TmaShape kShape = {C::kTileM, C::kTileN,    kConsumers,
                                      1,         C::kPingpong, C::kSwapAb};
  static constexpr TmaSizes kSizes = tma_sizes(kShape, C::kStages, Loop::kStageBytes, 0);
  static constexpr int kAreaBytes = kSizes.area.bytes;
  static constexpr int kOffsetStore = C::kStages * Loop::kStageBytes;
  static constexpr int kOffsetBarriers = kOffsetStore + kConsumers * kAreaBytes;
  // The host counts areas for D tensors, too. The walk's memory lies behind all others.
  static_assert(kSizes.shared_bytes <= C::kSharedBytes, "the host counts fewer bytes");

  static constexpr int kRegistersWanted = kRegistersBesides + kBlocks * kAccumulators;
  static constexpr int kFitShared = kSharedLimit / (C::kSharedBytes + kSharedReserve);
  static constexpr int kFitRegisters = 65536 / (kRegistersWanted * kThreads);
  static constexpr int kFit = kFitShared < kFitRegisters ? kFitShared : kFitRegisters;
  static constexpr int kMinBlocks = kConsumers > 1 || kFit<1 ? 1 : kFit> 3 ? 3 : kFit;

  // ---- groups ----

  static constexpr bool kAlongK = C::kGrouping == Grouping::along_k;
  // Whether A and out have a matrix for each group, in the map's third dimension.
  static constexpr bool kMatricesA =
      C::kGrouping == Grouping::masked || C::kGrouping == Grouping::none;
  static constexpr bool kOutMatrices = kAlongK || kMatricesA;
  static constexpr int kRows = C::kSwapAb ? C::kTileN : C::kTileM;
  static constexpr int kColumns = C::kSwapAb ? C::kTileM : C::kTileN;
  using Walk = GroupWalk<C::kGrouping, kRows, kColumns, kThreads>;
  static constexpr GroupElements kElements = {sizeof(A), sizeof(B), sizeof(typename C::D),
                                              sizeof(typename C::Out)};

  const CudaGroupArguments& arguments;
  u32 shared;  // base address
  Loop loop;
  Walk walk;

  __device__ __forceinline__ TmaGroupedGemm(const CudaGroupArguments& a, unsigned char* memory)
      : arguments(a),
        shared(shared_address(memory)),
        loop(Loop::at(shared, shared + kOffsetBarriers, 0)),
        walk(a.groups, a.raster_group, reinterpret_cast<int*>(memory + C::kSharedBytes)) {}

  // The tiles of k of an item.
  __device__ __forceinline__ int steps_of(const GroupItem& item) const {
    const i64 k = kAlongK ? item.part.size : arguments.groups.gemm.k;
    return static_cast<int>((k + C::kTileK - 1) / C::kTileK);
  }

  // ---- roles ----

  static __device__ __forceinline__ void run(const CudaGroupArguments& arguments) {
    extern __shared__ __align__(1024) unsigned char memory[];
    if (found_bad_group(arguments.groups)) return;
    TmaGroupedGemm block(arguments, memory);
    block.init();
    block.loop.run_roles(block);
  }

  // `copiers` as in TmaMainLoop::init_ring(); where there are any, they copy A, which has no map.
  __device__ __forceinline__ void init(u32 copiers = 0) const {
    if (loop.is_producer() && loop.thread == 0 && arguments.groups.gemm.k > 0) {
      if (copiers == 0) tma_prefetch(&arguments.a_map);
      tma_prefetch(&arguments.b_map);
    }
    if (threadIdx.x == 0) {
      loop.init_ring(copiers);
      barrier_init_fence();
    }
    __syncthreads();
  }

  // ---- the producer: one warp walks, one of its threads fills the ring ----

  __device__ __forceinline__ void produce() const {
    if (uniform(loop.thread / 32) != 0) return;
    const bool is_filler = elect_one();
    Ring ring;
#pragma unroll 1
    for (int i = blockIdx.x; i < walk.tiles; i += gridDim.x) {
      const GroupItem item = walk.find(i);
      if (is_filler) {
        loop.fill(ring, {0, steps_of(item)}, [&] { return loaders_of(item); });
      }
      __syncwarp();
    }
  }

  __device__ __forceinline__ typename Loop::Loaders loaders_of(const GroupItem& item) const {
    const GemmArguments& g = arguments.groups.gemm;
    const int group = static_cast<int>(item.part.group);
    const int begin = static_cast<int>(item.part.begin);
    const int k = kAlongK ? begin : 0;
    const TilePlace a = {(kOutMatrices ? 0 : begin) + item.row, k,
                         kMatricesA && g.batch_stride_a != 0 ? group : 0};
    const TilePlace b = {item.column, k, !kAlongK && g.batch_stride_b != 0 ? group : 0};
    return {{C::kSwapAb ? &arguments.b_map : &arguments.a_map, C::kSwapAb ? b : a},
            {C::kSwapAb ? &arguments.a_map : &arguments.b_map, C::kSwapAb ? a : b}};
  }

  // ---- the consumers ----

  __device__ __forceinline__ void consume() const {
    for_each_item([&](auto& sums, Ring& ring, const auto& free, const GroupItem& item) {
      if constexpr (kAlongK) {
        multiply_along_k(sums, ring, free, static_cast<int>(item.part.size));
      } else {
        loop.multiply(sums, ring, free, steps_of(item));
      }
      store(sums, item);
    });
  }

  // Calls visit(sums, ring, free, item) for each item that this consumer multiplies and stores.
  template <class Visit>
  __device__ __forceinline__ void for_each_item(const Visit& visit) const {
    const auto free = loop.release();
    Ring ring;
    int turn = 0;  // with pingpong, whose item it is
    if (C::kPingpong && loop.warpgroup == 1) loop.pass_turn();
    Acc sums[kBlocks][kAccumulators] = {};  // stays zero when there is nothing to multiply
#pragma unroll 1
    for (int i = blockIdx.x; i < walk.tiles; i += gridDim.x) {
      const GroupItem item = walk.find(i);
      if constexpr (C::kPingpong) {
        const bool is_mine = turn == loop.warpgroup;
        turn ^= 1;
        if (!is_mine) {
          ring.skip(steps_of(item));
          continue;
        }
        loop.wait_turn();
      }
      visit(sums, ring, free, item);
    }
    if (!C::kDirectStore && loop.thread == 0) stores_wait_all();
  }

  // ---- along k: a tile's sums end within a tile of k ----

  // The consumers of one tile: all, or with pingpong this one.
  static constexpr int kSharers = (C::kPingpong ? 1 : kConsumers) * kGroupThreads;
  static constexpr int kTailBarrier = 6;  // the main loop has those up to 5
  __device__ __forceinline__ int tail_barrier() const {
    return C::kPingpong ? 1 + loop.warpgroup : kTailBarrier;
  }

  // As TmaMainLoop::multiply(), for `count` of k.
  __device__ __forceinline__ void multiply_along_k(Acc (&sums)[kBlocks][kAccumulators], Ring& ring,
                                                   const typename Loop::Release& free,
                                                   int count) const {
    const int whole = count / C::kTileK;
    const int left = count % C::kTileK;
    u32 before = 0;
#pragma unroll 1
    for (int step = 0; step < whole; ++step) {
      barrier_wait(loop.full(ring.stage), ring.phase);
      multiply_stage(sums, ring.stage, step);
      wgmma_wait<1>();  // the tiles before these have been read
      if (step > 0) free(before);
      before = ring.stage;
      ring.next();
    }
    if (left > 0) {
      wgmma_wait<0>();
      if (whole > 0) free(before);
      barrier_wait(loop.full(ring.stage), ring.phase);
      clear_tail(ring.stage, left);
      multiply_stage(sums, ring.stage, whole);
      before = ring.stage;
      ring.next();
    }
    if constexpr (C::kPingpong) loop.pass_turn();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kBlocks * kAccumulators; ++i) {
      wgmma_done(sums[i / kAccumulators][i % kAccumulators]);
      if (count == 0) sums[i / kAccumulators][i % kAccumulators] = 0;
    }
    if (count > 0) free(before);
  }

  __device__ __forceinline__ void multiply_stage(Acc (&sums)[kBlocks][kAccumulators], u32 stage,
                                                 int done) const {
    const int first_block = C::kPingpong ? 0 : loop.warpgroup * kBlocks;
    const u64 p = TileP::descriptor(loop.stages + stage * TileP::kBytes) +
                  TileP::descriptor_offset(first_block, 0);
    const u64 q = TileQ::descriptor(loop.stages + Loop::kOffsetQ + stage * TileQ::kBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Loop::kMultiply; ++step) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        Loop::Instruction::multiply(sums[block], p + TileP::descriptor_offset(block, step),
                                    q + TileQ::descriptor_offset(0, step), (done | step) != 0);
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void clear_tail(u32 stage, int left) const {
    const int thread = (C::kPingpong ? 0 : loop.warpgroup * kGroupThreads) + loop.thread;
    clear_beyond<TileP>(loop.stages + stage * TileP::kBytes, left, thread, kSharers);
    clear_beyond<TileQ>(loop.stages + Loop::kOffsetQ + stage * TileQ::kBytes, left, thread,
                        kSharers);
    __syncwarp();  // threads leave those loops one by one, and wgmma takes whole warps
    copy_engine_fence();
    threads_sync(tail_barrier(), kSharers);
  }

  // ---- stores ----

  // D tensors of m x n are read by threads.
  static constexpr bool kMayCopy =
      may_copy_out<C>(kBlocks * kAccumulators) && copied_matrices<C>(kBlocks * kAccumulators) == 0;
  template <class Config>
  using Store = TileStore<Config, GemmArguments, kBlocks, C::kTileN, kSizes.area.pass, kAreaBytes>;

  template <class Config>
  __device__ __forceinline__ Store<Config> store_of(const GemmArguments& g, u32& phases) const {
    const u32 area = shared + kOffsetStore + loop.warpgroup * kAreaBytes;
    return {g, &arguments.out_map, nullptr, area, 1 + loop.warpgroup, loop.thread, 0, phases};
  }

  // The product of a part, whose matrices begin with its first rows.
  __device__ __forceinline__ GemmArguments product_at(const GroupPart& part) const {
    GemmArguments g = product_of(arguments.groups, part, kElements);
    g.batch_stride_c = g.batch_stride_out = 0;
#pragma unroll
    for (int i = 0; i < C::kNumD; ++i) g.batch_stride_d[i] = 0;
    return g;
  }

  __device__ __forceinline__ void store(const Acc (&sums)[kBlocks][kAccumulators],
                                        const GroupItem& item) const {
    constexpr int kStored = C::kSwapAb ? C::kTileN : kBlocks * kWgmmaRows;  // rows of a consumer
    const GemmArguments g = product_at(item.part);
    const int first = C::kPingpong ? 0 : loop.warpgroup * kBlocks * kWgmmaRows;
    const StorePlace place = {item.row + (C::kSwapAb ? 0 : first),
                              item.column + (C::kSwapAb ? first : 0), 0};
    if (place.row >= g.m || place.column >= g.n) return;
    u32 phases = 0;
    if constexpr (kMayCopy) {
      const auto by_copy = store_of<C>(g, phases);
      // The copy engine drops rows beyond a matrix, but not those of the next group.
      const bool is_whole =
          place.row + kStored <= g.m || (kOutMatrices && g.m == arguments.groups.gemm.m);
      if (is_whole && arguments.has_out_map != 0 && by_copy.may_copy(0)) {
        return by_copy.copy(sums, in_map(item.part, place));
      }
      if (loop.thread == 0) stores_wait_read<0>();  // the area may still be on its way out
    }
    using ByThreads = Store<StoredByThreads<C>>;
    const ByThreads by_threads = store_of<StoredByThreads<C>>(g, phases);
    by_threads.for_each_pass(sums, place, [&](const StorePlace& at) {
      if (at.row + ByThreads::kHeight <= g.m) {
        by_threads.finish(at);
      } else {  // the group ends here
        NamedRows<ByThreads>{by_threads}.finish(at, [](i64 row) { return row; });
      }
    });
  }

  __device__ __forceinline__ StorePlace in_map(const GroupPart& part, StorePlace place) const {
    if constexpr (kOutMatrices) {
      place.batch = static_cast<int>(part.group);
    } else {
      place.row += static_cast<int>(part.begin);
    }
    return place;
  }
};

}  // namespace tessera::device
