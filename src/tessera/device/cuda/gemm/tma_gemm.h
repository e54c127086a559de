// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) on Hopper, by tma_main_loop.h.
//
// P is A and Q is B, or with swap_ab the other way round. A block computes further tiles of the
// output until none is left.
//   kSplits:  as many blocks of a cluster share K and add up in a fixed order
//   kSlices:  as many blocks or clusters share K and add up through device memory
//   kStreamK: all blocks share the steps of K of the last tiles, see stream_work.h
#pragma once

#include "tessera/device/cuda/cluster_sums.h"
#include "tessera/device/cuda/gemm/tma_pack.h"
#include "tessera/device/cuda/gemm/tma_prepare.h"
#include "tessera/device/cuda/slices.h"
#include "tessera/device/cuda/stream_sums.h"
#include "tessera/device/cuda/tile_order.h"
#include "tessera/device/cuda/tma_main_loop.h"
#include "tessera/device/cuda/tma_store.h"

namespace tessera::device {

template <class C>
struct TmaGemm {
  static_assert(C::kSplits == 1 || (C::kClusterM == 1 && C::kClusterN == 1 && !C::kPingpong),
                "splits of K make up the whole cluster and do not play pingpong");
  static_assert(C::kSlices == 1 || (C::kClusterM == 1 && C::kClusterN == 1 && !C::kPingpong),
                "slices of K share no tiles and do not play pingpong");
  static_assert(!C::kStreamK || (C::kSplits == 1 && C::kSlices == 1 && !C::kPingpong),
                "stream-K has no splits or slices and does not play pingpong");

  // ---- sizes ----

  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  static constexpr bool kBInLines = C::kBKContiguous || C::kPreshuffled;
  using TileP = OperandTile<typename If<C::kSwapAb, B, A>::Type, C::kTileM, C::kTileK,
                            C::kSwapAb ? kBInLines : C::kAKContiguous>;
  using TileQ = OperandTile<typename If<C::kSwapAb, A, B>::Type, C::kTileN, C::kTileK,
                            C::kSwapAb ? C::kAKContiguous : kBInLines>;
  static constexpr bool kPackedP = C::kPreshuffled && C::kSwapAb;
  static constexpr bool kPackedQ = C::kPreshuffled && !C::kSwapAb;
  // With splits, few rows of A are multiplied by all of B. B is read once and need not stay in L2.
  static constexpr u64 kHintB = C::kSplits > 1 ? kEvictFirst : kEvictNormal;
  static constexpr u64 kHintP = C::kSwapAb ? kHintB : kEvictNormal;
  static constexpr u64 kHintQ = C::kSwapAb ? kEvictNormal : kHintB;
  using LoaderP = typename If<kPackedP, PackedLoader<TileP, C::kClusterN, kHintP>,
                              MatrixLoader<TileP, C::kClusterN, kHintP>>::Type;
  using LoaderQ = typename If<kPackedQ, PackedLoader<TileQ, C::kClusterM, kHintQ>,
                              MatrixLoader<TileQ, C::kClusterM, kHintQ>>::Type;

  using Loop = TmaMainLoop<C, LoaderP, LoaderQ>;
  using Ring = typename Loop::Ring;
  static constexpr int kConsumers = Loop::kConsumers;
  static constexpr int kThreads = Loop::kThreads;
  static constexpr int kBlocks = Loop::kBlocks;
  static constexpr int kAccumulators = Loop::kAccumulators;
  static constexpr int kMulticast = Loop::kMulticast;
  static constexpr TmaShape kShape = {C::kTileM,  C::kTileN,    kConsumers,
                                      C::kSplits, C::kPingpong, C::kSwapAb};
  static constexpr TmaParts kParts = tma_parts(kShape);
  static constexpr int kCluster = kMulticast * C::kSplits;

  // With splits, this many blocks of the cluster each add up and store a part of the columns.
  static constexpr int kOwners = kParts.owners;
  static constexpr int kOwnColumns = kParts.columns;
  static constexpr int kOwnVectors = kParts.vectors;  // vectors of 4 accumulators of a thread
  static_assert(kOwnColumns * kOwners == C::kTileN && kOwnColumns % 8 == 0, "owners of columns");

  // ---- shared memory: the ring's P and Q tiles, store buffers, partial sums, barriers ----

  static constexpr int kStageBytes = Loop::kStageBytes;
  static constexpr int kVectorBytes = kConsumers * kGroupThreads * 16;
  // The D tensors of m x n that the copy engine brings to the store areas, and their barriers.
  static constexpr int kMatrices = copied_matrices<C>(kBlocks * kOwnColumns / 2);
  static constexpr bool kAsksForD = kMatrices > 0;
  static constexpr TmaSizes kSizes = tma_sizes(kShape, C::kStages, kStageBytes, kMatrices);
  static constexpr int kPartialBytes = kSizes.partial_bytes;
  static constexpr int kBarriers = kSizes.barriers;
  static constexpr int kPass = kSizes.area.pass;
  static constexpr int kAreaBytes = kSizes.area.bytes;
  static constexpr int kOffsetStore = C::kStages * kStageBytes;
  static constexpr int kOffsetPartial = kOffsetStore + kConsumers * kAreaBytes;
  static constexpr int kOffsetBarriers = kOffsetPartial + kPartialBytes;
  static constexpr int kSharedBytes = kSizes.shared_bytes;
  static_assert(kSharedBytes == C::kSharedBytes, "the host counts other bytes of shared memory");

  // With one consumer, several blocks fit on a unit. Their number limits the registers of a thread.
  static constexpr int kRegistersWanted =
      kRegistersBesides + kBlocks * kAccumulators + kOwnVectors * 4;
  static constexpr int kFitShared = kSharedLimit / (kSharedBytes + kSharedReserve);
  static constexpr int kFitRegisters = 65536 / (kRegistersWanted * kThreads);
  static constexpr int kFit = kFitShared < kFitRegisters ? kFitShared : kFitRegisters;
  static constexpr int kMinBlocks = kConsumers > 1 || kFit<1 ? 1 : kFit> 3 ? 3 : kFit;

  // ---- the place of this thread and block ----

  struct Tile {
    int p, q, batch;  // first rows and columns of this block's tile
    int index;        // index of the tile, counted over all batches
    int slice;
  };

  // What a block multiplies without a break.
  struct Item {
    Tile tile;
    StepRange range;
    __device__ __forceinline__ int steps() const { return range.last - range.first; }
  };

  const CudaGemmArguments& arguments;
  u32 shared;  // base address
  Loop loop;
  int split;         // this block's part of K
  int cluster;       // index of this block's cluster
  int num_clusters;  // clusters that run
  TileOrder order;   // the order of the cluster's tiles
  int tiles;         // tiles of all batches, times the number of slices
  int k_tiles;       // tiles of K
  StreamWork work;   // stream-K: how blocks share tiles, and this block's share
  StreamShare share;

  // The barriers behind the ring's.
  __device__ __forceinline__ u32 partial_sums_here() const { return loop.full(2 * C::kStages); }
  __device__ __forceinline__ u32 d_here() const {
    return loop.full(2 * C::kStages + 1 + loop.warpgroup * kMatrixSlots);
  }

  // The slices of a tile have consecutive numbers.
  __device__ __forceinline__ Tile tile_of(int i) const {
    const int index = i / C::kSlices;
    const TileOrder::Tile at = order.tile(index);
    return {(at.p * C::kClusterM + loop.at_p) * C::kTileM,
            (at.q * C::kClusterN + loop.at_q) * C::kTileN, at.batch, index, i % C::kSlices};
  }

  // The tiles of K that this block multiplies.
  __device__ __forceinline__ StepRange k_of(const Tile& tile) const {
    constexpr int kParts = C::kSplits * C::kSlices;
    if constexpr (kParts == 1) return {0, k_tiles};
    const i64 part = tile.slice * C::kSplits + split;
    return {static_cast<int>(k_tiles * part / kParts),
            static_cast<int>(k_tiles * (part + 1) / kParts)};
  }

  // The items of a block are numbered from first_item() on, stride() apart. With pingpong, a
  // consumer takes every other one.
  __device__ __forceinline__ int first_item() const { return C::kStreamK ? 0 : cluster; }
  __device__ __forceinline__ int stride() const { return C::kStreamK ? 1 : num_clusters; }
  __device__ __forceinline__ StreamItem stream_item_of(int i) const {
    return stream_item(work, share, cluster, num_clusters, i);
  }
  __device__ __forceinline__ bool has_item(int i) const {
    if constexpr (C::kStreamK) return stream_item_of(i).tile >= 0;
    return i < tiles;
  }
  __device__ __forceinline__ Item item_of(int i) const {
    if constexpr (C::kStreamK) {
      const StreamItem item = stream_item_of(i);
      return {tile_of(item.tile), {item.begin, item.end}};
    }
    const Tile tile = tile_of(i);
    return {tile, k_of(tile)};
  }

  __device__ __forceinline__ explicit TmaGemm(const CudaGemmArguments& a) : arguments(a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const GemmArguments& g = a.gemm;
    shared = shared_address(memory);
    const int rank = kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
    loop = Loop::at(shared, shared + kOffsetBarriers, kMulticast > 1 ? rank : 0);
    split = C::kSplits > 1 ? rank : 0;
    cluster = blockIdx.x / kCluster;
    num_clusters = gridDim.x / kCluster;
    const int p = static_cast<int>(C::kSwapAb ? g.n : g.m);
    const int q = static_cast<int>(C::kSwapAb ? g.m : g.n);
    constexpr int kRowsP = C::kTileM * C::kClusterM;
    constexpr int kRowsQ = C::kTileN * C::kClusterN;
    order = {(p + kRowsP - 1) / kRowsP, (q + kRowsQ - 1) / kRowsQ, static_cast<int>(g.batch),
             C::kSwapAb ? -a.raster_group : a.raster_group};
    tiles = order.tiles_p * order.tiles_q * order.batches * C::kSlices;
    k_tiles = static_cast<int>((g.k + C::kTileK - 1) / C::kTileK);
    if constexpr (C::kStreamK) {
      work = stream_work(tiles, k_tiles, num_clusters);
      share = stream_share(work, cluster);
    }
  }

  // ---- roles ----

  static __device__ __forceinline__ void run(const CudaGemmArguments& arguments) {
    TmaGemm block(arguments);
    block.init();
    block.loop.run_roles(block);
    if constexpr (kMulticast > 1) cluster_sync();  // peers may still signal this block's barriers
  }

  __device__ __forceinline__ void init() const {
    if (loop.is_producer() && loop.thread == 0 && arguments.gemm.k > 0) {
      tma_prefetch(&arguments.a_map);
      if (!C::kPreshuffled) tma_prefetch(&arguments.b_map);
      if (!C::kDirectStore) tma_prefetch(&arguments.out_map);
      if (kAsksForD) tma_prefetch(&arguments.d_maps[0]);
    }
    if (threadIdx.x == 0) {
      loop.init_ring();
      for (int i = 2 * C::kStages; i < kBarriers; ++i) barrier_init(loop.full(i), 1);
      barrier_init_fence();
      if (C::kSplits > 1) barrier_expect(partial_sums_here(), kPartialBytes);
    }
    if constexpr (kMulticast > 1) {
      cluster_sync();
    } else {
      if constexpr (C::kSplits > 1)
        cluster_arrive();  // the wait comes before the first partial
                           // sum
      __syncthreads();
    }
  }

  // ---- the producer: one thread fills the ring ----

  __device__ __forceinline__ void produce() const {
    if (loop.is_filler()) {
      Ring ring;
#pragma unroll 1
      for (int i = first_item(); has_item(i); i += stride()) {
        const Item item = item_of(i);
        loop.fill(ring, item.range, [&] { return loaders_of(item.tile); });
      }
    }
    if constexpr (C::kSplits > 1) cluster_wait();
  }

  __device__ __forceinline__ typename Loop::Loaders loaders_of(const Tile& tile) const {
    const GemmArguments& g = arguments.gemm;
    const int batch_a = g.batch_stride_a == 0 ? 0 : tile.batch;
    const int batch_b = g.batch_stride_b == 0 ? 0 : tile.batch;
    const CudaTensorMap* const map_p = C::kSwapAb ? &arguments.b_map : &arguments.a_map;
    const CudaTensorMap* const map_q = C::kSwapAb ? &arguments.a_map : &arguments.b_map;
    const int batch_p = C::kSwapAb ? batch_b : batch_a;
    const int batch_q = C::kSwapAb ? batch_a : batch_b;
    return {loader<LoaderP, kPackedP>(map_p, tile.p, batch_p, loop.share_p()),
            loader<LoaderQ, kPackedQ>(map_q, tile.q, batch_q, loop.share_q())};
  }

  template <class Loader, bool kPacked>
  __device__ __forceinline__ Loader loader(const CudaTensorMap* map, int row, int batch,
                                           const TileShare& share) const {
    if constexpr (kPacked) {
      return {PackedB<C>::tiles_at(arguments.gemm, row, batch), share};
    } else {
      return {map, row, batch, share};
    }
  }

  // ---- the consumers ----

  __device__ __forceinline__ void consume() const {
    const auto free = loop.release();
    Ring ring;
    int i = first_item();
    if constexpr (C::kPingpong) {
      if (loop.warpgroup == 1) {
        i += num_clusters;
        ring.skip(k_tiles);
        loop.pass_turn();
      }
    }
    u32 phases = 0;                         // parities of the barriers at d_here()
    Acc sums[kBlocks][kAccumulators] = {};  // stays zero when there is nothing to multiply
#pragma unroll 1
    for (; has_item(i); i += (C::kPingpong ? 2 : 1) * stride()) {
      const Item item = item_of(i);
      // Only the last slice or part to arrive stores the tile.
      constexpr bool kMayAskEarly = kAsksForD && C::kSplits == 1 && C::kSlices == 1;
      if constexpr (kMayAskEarly) {
        if (!is_part(item)) store_of<C::kTileN>(phases).ask(store_place(item.tile, 0));
      }
      if constexpr (C::kPingpong) loop.wait_turn();
      loop.multiply(sums, ring, free, item.steps());
      if constexpr (C::kPingpong) ring.skip(k_tiles);
      if constexpr (C::kSplits > 1) {
        add_partial_sums(sums, item, phases);
      } else {
        finish<C::kTileN>(sums, item, 0, phases);
      }
    }
    if (!C::kDirectStore && loop.thread == 0) stores_wait_all();
  }

  // Whether other blocks multiply the rest of the tile's steps of K.
  __device__ __forceinline__ bool is_part(const Item& item) const {
    return C::kStreamK && item.steps() < k_tiles;
  }

  // With slices, or parts of stream-K, only the last group to arrive stores the tile.
  template <int kColumns>
  __device__ __forceinline__ void finish(Acc (&sums)[kBlocks][kColumns / 2], const Item& item,
                                         int first_column, u32& phases) const {
    constexpr int kVectors = kBlocks * kColumns / 8;
    auto& vectors = reinterpret_cast<Acc(&)[kVectors][4]>(sums);
    if constexpr (C::kSlices > 1) {
      if (!slice_sums<kVectors>(item.tile).add(vectors)) return;
    }
    if constexpr (C::kStreamK) {
      if (is_part(item) && !stream_sums<kVectors>(item).add(vectors)) return;
    }
    const auto store = store_of<kColumns>(phases);
    const StorePlace place = store_place(item.tile, first_column);
    if constexpr (C::kSplits > 1 || C::kSlices > 1) store.ask(place);
    if constexpr (C::kStreamK) {
      if (is_part(item)) store.ask(place);
    }
    store.store(sums, place);
  }

  __device__ __forceinline__ char* workspace() const {
    return static_cast<char*>(arguments.workspace);
  }

  template <int kVectors>
  __device__ __forceinline__ SliceSums<Acc, kVectors, C::kAtomicSplit> slice_sums(
      const Tile& tile) const {
    constexpr int kPerTile = kOwners * kConsumers;
    return {workspace() + arguments.partial_sums,
            reinterpret_cast<u32*>(workspace()),
            tile.index * kPerTile + split * kConsumers + loop.warpgroup,
            tiles / C::kSlices * kPerTile,
            tile.slice,
            C::kSlices,
            1 + loop.warpgroup,
            loop.thread};
  }

  // All consumers of a cluster are groups that share its place.
  template <int kVectors>
  __device__ __forceinline__ StreamSums<Acc, kVectors, kConsumers * kMulticast> stream_sums(
      const Item& item) const {
    using Sums = StreamSums<Acc, kVectors, kConsumers * kMulticast>;
    const StreamParts parts = stream_parts(work, item.tile.index);
    const int group = loop.rank() * kConsumers + loop.warpgroup;
    const int counter = (item.tile.index - work.whole) * (kConsumers * kMulticast) + group;
    return {workspace() + arguments.partial_sums + group * Sums::kPlaceBytes,
            reinterpret_cast<u32*>(workspace()) + counter,
            parts,
            cluster - parts.first,
            1 + loop.warpgroup,
            loop.thread};
  }

  template <int kColumns>
  __device__ __forceinline__ TileStore<C, GemmArguments, kBlocks, kColumns, kPass, kAreaBytes>
  store_of(u32& phases) const {
    const u32 area = shared + kOffsetStore + loop.warpgroup * kAreaBytes;
    return {arguments.gemm,     &arguments.out_map, arguments.d_maps, area,
            1 + loop.warpgroup, loop.thread,        d_here(),         phases};
  }
  __device__ __forceinline__ StorePlace store_place(const Tile& tile, int first_column) const {
    const int p = tile.p + (C::kPingpong ? 0 : loop.warpgroup * kBlocks * kWgmmaRows);
    const int q = tile.q + first_column;
    return {C::kSwapAb ? q : p, C::kSwapAb ? p : q, tile.batch};
  }

  __device__ __forceinline__ void add_partial_sums(const Acc (&sums)[kBlocks][kAccumulators],
                                                   const Item& item, u32& phases) const {
    using Sums = ClusterSums<Acc, kBlocks, C::kTileN, kOwners, C::kSplits, kVectorBytes>;
    const u32 mine = shared + kOffsetPartial + (loop.warpgroup * kGroupThreads + loop.thread) * 16;
    const Sums cluster_sums = {mine, partial_sums_here(), split};
    Acc own[kBlocks][kOwnColumns / 2];
    if (cluster_sums.add(sums, own)) finish<kOwnColumns>(own, item, split * kOwnColumns, phases);
  }
};

}  // namespace tessera::device
