// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) on Hopper for operands with scales of blocks
// of 128 along k, by tma_scaled_loop.h. Operands have 8 bits and lie along k; scales are fp32.
//
// P is A and Q is B, or with swap_ab the other way round. A block computes further tiles of the
// output until none is left. With kSlices, as many blocks share K and add up through device memory.
#pragma once

#include "tessera/device/cuda/gemm/tma_scales.h"
#include "tessera/device/cuda/slices.h"
#include "tessera/device/cuda/tile_order.h"
#include "tessera/device/cuda/tma_store.h"

namespace tessera::device {

template <class C>
struct TmaScaledGemm {
  static_assert(C::kSplits == 1 && !C::kStreamK && !C::kAtomicSplit && !C::kPreshuffled,
                "K is cut into slices only");
  static_assert(C::kAKContiguous && C::kBKContiguous, "operands lie along k");

  // ---- sizes ----

  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  using TileP = OperandTile<typename If<C::kSwapAb, B, A>::Type, C::kTileM, C::kTileK, true>;
  using TileQ = OperandTile<typename If<C::kSwapAb, A, B>::Type, C::kTileN, C::kTileK, true>;
  using LoaderP = MatrixLoader<TileP, C::kClusterN>;
  using LoaderQ = MatrixLoader<TileQ, C::kClusterM>;
  using Loop = TmaScaledLoop<C, LoaderP, LoaderQ>;
  using Plain = typename Loop::Plain;
  using Ring = typename Plain::Ring;
  using Scales = typename Loop::Scales;
  static constexpr int kConsumers = Plain::kConsumers;
  static constexpr int kThreads = Plain::kThreads;
  static constexpr int kBlocks = Plain::kBlocks;
  static constexpr int kAccumulators = Plain::kAccumulators;
  static constexpr int kMulticast = Plain::kMulticast;
  static constexpr TmaShape kShape = {C::kTileM, C::kTileN, kConsumers, 1, false, C::kSwapAb};

  // ---- shared memory: the ring's P and Q tiles, store buffers, barriers, scales ----

  static constexpr int kStageBytes = Plain::kStageBytes;
  static constexpr int kMatrices = copied_matrices<C>(kBlocks * kAccumulators);
  static constexpr bool kAsksForD = kMatrices > 0;
  static constexpr TmaSizes kSizes = tma_sizes(kShape, C::kStages, kStageBytes, kMatrices);
  static constexpr int kBarriers = kSizes.barriers;
  static constexpr int kPass = kSizes.area.pass;
  static constexpr int kAreaBytes = kSizes.area.bytes;
  static constexpr int kOffsetStore = C::kStages * kStageBytes;
  static constexpr int kOffsetBarriers = kOffsetStore + kConsumers * kAreaBytes;
  static constexpr int kOffsetScales = kSizes.shared_bytes;
  static constexpr int kSharedBytes = kOffsetScales + C::kStages * Loop::kScaleBytes;
  static_assert(kOffsetScales == kOffsetBarriers + kBarriers * 8, "scales follow the barriers");
  static_assert(kSharedBytes == C::kSharedBytes, "the host counts other bytes of shared memory");

  static constexpr int kMinBlocks = Loop::min_blocks(kSharedBytes);

  // ---- the place of this thread and block ----

  struct Tile {
    int p, q, batch;  // first rows and columns of this block's tile
    int index;        // index of the tile, counted over all batches
    int slice;
  };

  const CudaScaledGemmArguments& x;
  Loop scaled;
  u32 shared;        // base address
  int cluster;       // index of this block's cluster
  int num_clusters;  // clusters that run
  TileOrder order;   // the order of the cluster's tiles
  int tiles;         // tiles of all batches, times the number of slices
  int k_tiles;       // tiles of K

  __device__ __forceinline__ const GemmArguments& g() const { return x.cuda.gemm; }
  __device__ __forceinline__ const Plain& loop() const { return scaled.loop; }
  __device__ __forceinline__ int rows_of_p() const {
    return static_cast<int>(C::kSwapAb ? g().n : g().m);
  }
  __device__ __forceinline__ int rows_of_q() const {
    return static_cast<int>(C::kSwapAb ? g().m : g().n);
  }

  __device__ __forceinline__ explicit TmaScaledGemm(const CudaScaledGemmArguments& arguments)
      : x(arguments) {
    extern __shared__ __align__(1024) unsigned char memory[];
    shared = shared_address(memory);
    const int rank = kMulticast > 1 ? static_cast<int>(cluster_rank()) : 0;
    scaled = {Plain::at(shared, shared + kOffsetBarriers, rank), shared + kOffsetScales};
    cluster = blockIdx.x / kMulticast;
    num_clusters = gridDim.x / kMulticast;
    constexpr int kRowsP = C::kTileM * C::kClusterM;
    constexpr int kRowsQ = C::kTileN * C::kClusterN;
    order = {(rows_of_p() + kRowsP - 1) / kRowsP, (rows_of_q() + kRowsQ - 1) / kRowsQ,
             static_cast<int>(g().batch), C::kSwapAb ? -x.cuda.raster_group : x.cuda.raster_group};
    tiles = order.tiles_p * order.tiles_q * order.batches * C::kSlices;
    k_tiles = static_cast<int>((g().k + C::kTileK - 1) / C::kTileK);
  }

  // The slices of a tile have consecutive numbers.
  __device__ __forceinline__ Tile tile_of(int i) const {
    const int index = i / C::kSlices;
    const TileOrder::Tile at = order.tile(index);
    return {(at.p * C::kClusterM + loop().at_p) * C::kTileM,
            (at.q * C::kClusterN + loop().at_q) * C::kTileN, at.batch, index, i % C::kSlices};
  }
  __device__ __forceinline__ StepRange k_of(const Tile& tile) const {
    if constexpr (C::kSlices == 1) return {0, k_tiles};
    const i64 part = tile.slice;
    return {static_cast<int>(k_tiles * part / C::kSlices),
            static_cast<int>(k_tiles * (part + 1) / C::kSlices)};
  }

  // ---- roles ----

  static __device__ __forceinline__ void run(const CudaScaledGemmArguments& arguments) {
    TmaScaledGemm block(arguments);
    block.init();
    block.loop().run_roles(block);
    if constexpr (kMulticast > 1) cluster_sync();  // peers may still signal this block's barriers
  }

  __device__ __forceinline__ void init() const {
    if (loop().is_producer() && loop().thread == 0 && g().k > 0) {
      tma_prefetch(&x.cuda.a_map);
      tma_prefetch(&x.cuda.b_map);
      if (!C::kDirectStore) tma_prefetch(&x.cuda.out_map);
      if (kAsksForD) tma_prefetch(&x.cuda.d_maps[0]);
    }
    if (threadIdx.x == 0) {
      scaled.init_ring();
      for (int i = 2 * C::kStages; i < kBarriers; ++i) barrier_init(loop().full(i), 1);
      barrier_init_fence();
    }
    if constexpr (kMulticast > 1) {
      cluster_sync();
    } else {
      __syncthreads();
    }
  }

  // ---- the producer ----

  __device__ __forceinline__ void produce() const {
    if (!scaled.is_filling_warp()) return;
    const bool chosen = elect_one();
    Ring ring;
#pragma unroll 1
    for (int i = cluster; i < tiles; i += num_clusters) {
      const Tile tile = tile_of(i);
      const Scales scales = scales_of(tile);
      scaled.fill(
          ring, k_of(tile), [&] { return scales; }, chosen, [&] { return loaders_of(tile); });
    }
    copies_commit();
    copies_wait<0>();  // a thread stays until its copies are there
  }

  __device__ __forceinline__ typename Loop::Loaders loaders_of(const Tile& tile) const {
    const int batch_a = g().batch_stride_a == 0 ? 0 : tile.batch;
    const int batch_b = g().batch_stride_b == 0 ? 0 : tile.batch;
    const CudaTensorMap* const map_p = C::kSwapAb ? &x.cuda.b_map : &x.cuda.a_map;
    const CudaTensorMap* const map_q = C::kSwapAb ? &x.cuda.a_map : &x.cuda.b_map;
    return {{map_p, tile.p, C::kSwapAb ? batch_b : batch_a, loop().share_p()},
            {map_q, tile.q, C::kSwapAb ? batch_a : batch_b, loop().share_q()}};
  }

  __device__ __forceinline__ Scales scales_of(const Tile& tile) const {
    const int row = C::kSwapAb ? tile.q : tile.p;
    const int column = C::kSwapAb ? tile.p : tile.q;
    return tile_scales<C, Loop>(x.scales, g(), {row, 0, tile.batch}, {column, 0, tile.batch});
  }

  // ---- the consumers ----

  __device__ __forceinline__ void consume() const {
    const auto free = scaled.release();
    Ring ring;
    u32 phases = 0;  // parities of the barriers at d_here()
    Acc sums[kBlocks][kAccumulators];
#pragma unroll 1
    for (int i = cluster; i < tiles; i += num_clusters) {
      const Tile tile = tile_of(i);
      const StepRange range = k_of(tile);
      if constexpr (C::kSlices == 1) store_of(phases).ask(store_place(tile));
      scaled.multiply(sums, ring, free, range.last - range.first, [](u32, int) {});
      finish(sums, tile, phases);
    }
    if (!C::kDirectStore && loop().thread == 0) stores_wait_all();
  }

  // With slices, only the last group to arrive stores the tile.
  __device__ __forceinline__ void finish(Acc (&sums)[kBlocks][kAccumulators], const Tile& tile,
                                         u32& phases) const {
    const auto store = store_of(phases);
    const StorePlace place = store_place(tile);
    if constexpr (C::kSlices > 1) {
      constexpr int kVectors = kBlocks * kAccumulators / 4;
      if (!slice_sums(tile).add(reinterpret_cast<Acc(&)[kVectors][4]>(sums))) return;
      store.ask(place);
    }
    store.store(sums, place);
  }

  __device__ __forceinline__ SliceSums<Acc, kBlocks * kAccumulators / 4, false> slice_sums(
      const Tile& tile) const {
    char* const workspace = static_cast<char*>(x.cuda.workspace);
    return {workspace + x.cuda.partial_sums,
            reinterpret_cast<u32*>(workspace),
            tile.index * kConsumers + loop().warpgroup,
            tiles / C::kSlices * kConsumers,
            tile.slice,
            C::kSlices,
            1 + loop().warpgroup,
            loop().thread};
  }

  // The barriers for copied D tensors lie behind the ring's.
  __device__ __forceinline__ u32 d_here() const {
    return loop().full(2 * C::kStages + 1 + loop().warpgroup * kMatrixSlots);
  }
  __device__ __forceinline__ TileStore<C, GemmArguments, kBlocks, C::kTileN, kPass, kAreaBytes>
  store_of(u32& phases) const {
    const u32 area = shared + kOffsetStore + loop().warpgroup * kAreaBytes;
    return {g(),           &x.cuda.out_map, x.cuda.d_maps, area, 1 + loop().warpgroup,
            loop().thread, d_here(),        phases};
  }
  __device__ __forceinline__ StorePlace store_place(const Tile& tile) const {
    const int p = tile.p + loop().warpgroup * kBlocks * kWgmmaRows;
    return {C::kSwapAb ? tile.q : p, C::kSwapAb ? p : tile.q, tile.batch};
  }
};

}  // namespace tessera::device
