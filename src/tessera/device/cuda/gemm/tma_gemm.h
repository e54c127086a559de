// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) on Hopper: a producer warp keeps a ring of
// tiles in shared memory filled by the copy engine (TMA), consumer warpgroups multiply them
// (wgmma).
//
// P is the operand that feeds wgmma's M, Q the one that feeds its N: A and B, or with swap_ab B and
// A. A block computes kTileM x kTileN of P x Q at a time and takes further tiles until none is
// left.
//   cooperative: the consumers share each tile's rows
//   pingpong:    two consumers take every other tile; one multiplies while the other stores
//   clusters:    kClusterM x kClusterN blocks fetch parts of the tiles that they share
//   kSplits:     as many blocks of a cluster share K and add up in a fixed order
//   kSlices:     as many blocks or clusters share K and add up through device memory
// The emitted text specialises Wgmma, one instruction.
#pragma once

#include "tessera/device/cuda/cluster_sums.h"
#include "tessera/device/cuda/gemm/tma_pack.h"
#include "tessera/device/cuda/gemm/tma_prepare.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/slices.h"
#include "tessera/device/cuda/tile_order.h"
#include "tessera/device/cuda/tma_store.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

template <class C>
struct TmaGemm {
  static_assert(C::kTileM % kWgmmaRows == 0 && C::kTileN % 8 == 0 && C::kTileN <= 256,
                "tile_m must be a multiple of 64, tile_n one of 8 up to 256");
  static_assert(C::kSplits == 1 || (C::kClusterM == 1 && C::kClusterN == 1 && !C::kPingpong),
                "splits of K make up the whole cluster and do not play pingpong");
  static_assert(C::kSlices == 1 || (C::kClusterM == 1 && C::kClusterN == 1 && !C::kPingpong),
                "slices of K share no tiles and do not play pingpong");
  static_assert(!C::kPingpong || C::kWaveM == 2, "pingpong takes 2 consumers");

  // ---- sizes ----

  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  static constexpr bool kBInLines = C::kBKContiguous || C::kPreshuffled;
  using TileP = OperandTile<typename If<C::kSwapAb, B, A>::Type, C::kTileM, C::kTileK,
                            C::kSwapAb ? kBInLines : C::kAKContiguous>;
  using TileQ = OperandTile<typename If<C::kSwapAb, A, B>::Type, C::kTileN, C::kTileK,
                            C::kSwapAb ? C::kAKContiguous : kBInLines>;
  using Instruction = Wgmma<typename TileP::Element, typename TileQ::Element, C::kTileN,
                            TileP::kFrom, TileQ::kFrom>;
  static constexpr bool kPackedP = C::kPreshuffled && C::kSwapAb;
  static constexpr bool kPackedQ = C::kPreshuffled && !C::kSwapAb;

  static constexpr int kConsumers = C::kWaveM;
  static constexpr int kProducerThreads = kConsumers == 1 ? 32 : kGroupThreads;
  static constexpr int kThreads = kConsumers * kGroupThreads + kProducerThreads;
  static constexpr int kMultiply = C::kTileK * static_cast<int>(sizeof(A)) / kWgmmaBytesK;
  static constexpr int kBlocks = C::kTileM / kWgmmaRows / (C::kPingpong ? 1 : kConsumers);
  static constexpr int kAccumulators = C::kTileN / 2;  // per block of 64 rows
  static_assert(kBlocks >= 1, "every consumer needs 64 rows");

  static constexpr int kMulticast = C::kClusterM * C::kClusterN;
  static constexpr int kCluster = kMulticast * C::kSplits;
  static constexpr int kReleases = C::kClusterM + C::kClusterN - 1;  // blocks that fill a stage

  // With splits, this many blocks of the cluster each add up and store a part of the columns.
  static constexpr int kOwners = C::kSplits < C::kTileN / 8 ? C::kSplits : C::kTileN / 8;
  static constexpr int kOwnColumns = C::kTileN / kOwners;
  static constexpr int kOwnVectors = kBlocks * kOwnColumns / 8;  // of 4 accumulators, a thread's
  static_assert(kOwnColumns * kOwners == C::kTileN && kOwnColumns % 8 == 0, "owners of columns");

  // ---- shared memory: the ring's P and Q tiles, store buffers, partial sums, barriers ----

  static constexpr int kStageBytes = TileP::kBytes + TileQ::kBytes;
  static constexpr int kVectorBytes = kConsumers * kGroupThreads * 16;
  static constexpr int kPartialBytes = (C::kSplits - 1) * kOwnVectors * kVectorBytes;
  // D tensors of m x n that come to the store areas by the copy engine, and their barriers.
  static constexpr int kMatrices = copied_matrices<C>(kBlocks * kOwnColumns / 2);
  static constexpr bool kAsksForD = kMatrices > 0;
  static constexpr int kBarriers = 2 * C::kStages + 1 + (kAsksForD ? kConsumers * kMatrixSlots : 0);
  static constexpr int kFixedBytes = C::kStages * kStageBytes + kPartialBytes + kBarriers * 8;
  static constexpr StoreArea kArea = store_area(kFixedBytes, kConsumers, kOwnColumns, kMatrices);
  static constexpr int kAreaBytes = kArea.bytes;
  static constexpr int kOffsetQ = C::kStages * TileP::kBytes;
  static constexpr int kOffsetStore = C::kStages * kStageBytes;
  static constexpr int kOffsetPartial = kOffsetStore + kConsumers * kAreaBytes;
  static constexpr int kOffsetBarriers = kOffsetPartial + kPartialBytes;
  static constexpr int kSharedBytes = kFixedBytes + kConsumers * kAreaBytes;
  static_assert(kSharedBytes == C::kSharedBytes, "the host counts other bytes of shared memory");

  // One consumer leaves room for further blocks; their number bounds the registers of a thread.
  static constexpr int kRegistersWanted = 88 + kBlocks * kAccumulators + kOwnVectors * 4;
  static constexpr int kFitShared = kSharedLimit / (kSharedBytes + 1024);
  static constexpr int kFitRegisters = 65536 / (kRegistersWanted * kThreads);
  static constexpr int kFit = kFitShared < kFitRegisters ? kFitShared : kFitRegisters;
  static constexpr int kMinBlocks = kConsumers > 1 || kFit<1 ? 1 : kFit> 3 ? 3 : kFit;

  // ---- where this thread and block are ----

  using Ring = device::Ring<C::kStages>;
  struct Tile {
    int p, q, batch;  // first rows and columns of this block's tile
    int index;        // of the tile, all batches counted
    int slice;
  };

  const CudaGemmArguments& arguments;
  u32 shared;        // base address
  int warpgroup;     // kConsumers: the producer
  int thread;        // in the warpgroup
  int at_p, at_q;    // in the multicast cluster
  int split;         // which part of K
  int cluster;       // index of this block's cluster
  int num_clusters;  // that run
  TileOrder order;   // of the cluster's tiles
  int tiles;         // of all batches, as many times as there are slices
  int k_tiles;       // of K

  __device__ __forceinline__ u32 full(u32 stage) const {
    return shared + kOffsetBarriers + stage * 8;
  }
  __device__ __forceinline__ u32 empty(u32 stage) const { return full(C::kStages + stage); }
  __device__ __forceinline__ u32 partial_sums_here() const { return full(2 * C::kStages); }
  __device__ __forceinline__ u32 d_here() const {
    return full(2 * C::kStages + 1 + warpgroup * kMatrixSlots);
  }

  // Slices of a tile follow each other.
  __device__ __forceinline__ Tile tile_of(int i) const {
    const int index = i / C::kSlices;
    const TileOrder::Tile at = order.tile(index);
    return {(at.p * C::kClusterM + at_p) * C::kTileM, (at.q * C::kClusterN + at_q) * C::kTileN,
            at.batch, index, i % C::kSlices};
  }

  // The tiles of K that this block multiplies.
  struct Range {
    int first, last;
  };
  __device__ __forceinline__ Range k_of(const Tile& tile) const {
    constexpr int kParts = C::kSplits * C::kSlices;
    if constexpr (kParts == 1) return {0, k_tiles};
    const i64 part = tile.slice * C::kSplits + split;
    return {static_cast<int>(k_tiles * part / kParts),
            static_cast<int>(k_tiles * (part + 1) / kParts)};
  }

  __device__ __forceinline__ explicit TmaGemm(const CudaGemmArguments& a) : arguments(a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const GemmArguments& g = a.gemm;
    shared = shared_address(memory);
    warpgroup = uniform(threadIdx.x / kGroupThreads);
    thread = threadIdx.x % kGroupThreads;
    const int rank = kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
    at_p = kMulticast > 1 ? rank % C::kClusterM : 0;
    at_q = kMulticast > 1 ? rank / C::kClusterM : 0;
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
  }

  // ---- roles ----

  static __device__ __forceinline__ void run(const CudaGemmArguments& arguments) {
    TmaGemm block(arguments);
    block.init();
    if (block.warpgroup == kConsumers) {
      if constexpr (kConsumers > 1) registers_shrink<kConsumers == 3 ? 32 : 40>();
      block.produce();
    } else {
      if constexpr (kConsumers > 1) registers_grow<kConsumers == 3 ? 160 : 232>();
      block.consume();
    }
    if constexpr (kMulticast > 1) cluster_sync();  // peers may still signal this block's barriers
  }

  __device__ __forceinline__ void init() const {
    if (warpgroup == kConsumers && thread == 0 && arguments.gemm.k > 0) {
      tma_prefetch(&arguments.a_map);
      if (!C::kPreshuffled) tma_prefetch(&arguments.b_map);
      if (!C::kDirectStore) tma_prefetch(&arguments.out_map);
      if (kAsksForD) tma_prefetch(&arguments.d_maps[0]);
    }
    if (threadIdx.x == 0) {
      for (u32 i = 0; i < C::kStages; ++i) {
        barrier_init(full(i), 1);
        barrier_init(empty(i), (C::kPingpong ? 1 : kConsumers) * kReleases);
      }
      for (int i = 2 * C::kStages; i < kBarriers; ++i) barrier_init(full(i), 1);
      barrier_init_fence();
      if (C::kSplits > 1) barrier_expect(partial_sums_here(), kPartialBytes);
    }
    if constexpr (kMulticast > 1) {
      cluster_sync();
    } else {
      if constexpr (C::kSplits > 1) cluster_arrive();  // waited for before the first partial sum
      __syncthreads();
    }
  }

  // ---- the producer: one thread fills the ring ----

  __device__ __forceinline__ void produce() const {
    if (uniform(thread / 32) == 0 && elect_one()) {
      Ring ring;
#pragma unroll 1
      for (int i = cluster; i < tiles; i += num_clusters) {
        const Tile tile = tile_of(i);
        const Range range = k_of(tile);
#pragma unroll 1
        for (int k = range.first; k < range.last; ++k) {
          barrier_wait(empty(ring.stage), ring.phase ^ 1);
          barrier_expect(full(ring.stage), kStageBytes);
          fetch(ring.stage, tile, k * C::kTileK);
          ring.next();
        }
      }
    }
    if constexpr (C::kSplits > 1) cluster_wait();
  }

  __device__ __forceinline__ void fetch(u32 stage, const Tile& tile, int k) const {
    const GemmArguments& g = arguments.gemm;
    const int batch_a = g.batch_stride_a == 0 ? 0 : tile.batch;
    const int batch_b = g.batch_stride_b == 0 ? 0 : tile.batch;
    // P is shared by the blocks with the same at_p, Q by those with the same at_q.
    u16 mask_p = 0;
#pragma unroll
    for (int i = 0; i < C::kClusterN; ++i) mask_p |= 1U << (at_p + C::kClusterM * i);
    const u16 mask_q = ((1U << C::kClusterM) - 1) << (C::kClusterM * at_q);
    // Few rows of A meet all of B: it is read once and need not stay in L2.
    constexpr u64 kPolicyB = C::kSplits > 1 ? kEvictFirst : kEvictNormal;
    const TmaTarget to_p = {shared + stage * TileP::kBytes, full(stage), 0,
                            C::kSwapAb ? kPolicyB : kEvictNormal};
    const TmaTarget to_q = {shared + kOffsetQ + stage * TileQ::kBytes, full(stage), 0,
                            C::kSwapAb ? kEvictNormal : kPolicyB};
    const TilePlace place_p = {tile.p, k, C::kSwapAb ? batch_b : batch_a};
    const TilePlace place_q = {tile.q, k, C::kSwapAb ? batch_a : batch_b};
    load<TileP, C::kClusterN, kPackedP, C::kSwapAb>(to_p, place_p, {at_q, mask_p});
    load<TileQ, C::kClusterM, kPackedQ, !C::kSwapAb>(to_q, place_q, {at_p, mask_q});
  }

  template <class Operand, int kParts, bool kPacked, bool kIsB>
  __device__ __forceinline__ void load(const TmaTarget& target, const TilePlace& place,
                                       const TileShare& share) const {
    if constexpr (kPacked) {
      const char* packed = static_cast<const char*>(arguments.gemm.b);
      const i64 offset = PackedB<C>::offset(arguments.gemm, place);
      Operand::template load_packed<kParts>(target, packed + offset, share);
    } else {
      const CudaTensorMap* map = kIsB ? &arguments.b_map : &arguments.a_map;
      Operand::template load<kParts>(target, map, place, share);
    }
  }

  // ---- the consumers ----

  using Release = device::Release<(kReleases > 1)>;
  __device__ __forceinline__ Release release() const {
    if constexpr (kReleases == 1) {
      return {empty(0), thread == 0};
    } else {
      // The first kClusterM warps serve the blocks with our at_q, the others those with our at_p.
      const int warp = uniform(thread / 32);
      const int other = warp - C::kClusterM;
      const int rank = warp < C::kClusterM
                           ? warp + C::kClusterM * at_q
                           : at_p + C::kClusterM * (other + (other >= at_q ? 1 : 0));
      const bool serves = warp < kReleases;
      return {in_block(empty(0), serves ? rank : 0), serves && thread % 32 == 0};
    }
  }

  // Named barriers: 1 to 3 are the consumers' own, 4 and 5 say whose turn it is to multiply.
  static constexpr int kTurn = 4;

  __device__ __forceinline__ void consume() const {
    const Release free = release();
    Ring ring;
    int i = cluster;
    if constexpr (C::kPingpong) {
      if (warpgroup == 1) {
        i += num_clusters;
        ring.skip(k_tiles);
        threads_arrive(kTurn, 2 * kGroupThreads);
      }
    }
    u32 phases = 0;                         // of the barriers at d_here()
    Acc sums[kBlocks][kAccumulators] = {};  // stays zero when there is nothing to multiply
#pragma unroll 1
    for (; i < tiles; i += (C::kPingpong ? 2 : 1) * num_clusters) {
      const Tile tile = tile_of(i);
      // Of slices only the one that comes last stores.
      constexpr bool kAskEarly = kAsksForD && C::kSplits == 1 && C::kSlices == 1;
      if constexpr (kAskEarly) store_of<C::kTileN>(phases).ask(store_place(tile, 0));
      if constexpr (C::kPingpong) threads_sync(kTurn + warpgroup, 2 * kGroupThreads);
      const Range range = k_of(tile);
      multiply(sums, ring, free, range.last - range.first);
      if constexpr (C::kPingpong) ring.skip(k_tiles);
      if constexpr (C::kSplits > 1) {
        add_partial_sums(sums, tile, phases);
      } else {
        finish<C::kTileN>(sums, tile, 0, phases);
      }
    }
    if (!C::kDirectStore && thread == 0) stores_wait_all();
  }

  // sums = this consumer's rows of the tile, over so many tiles of K.
  __device__ __forceinline__ void multiply(Acc (&sums)[kBlocks][kAccumulators], Ring& ring,
                                           const Release& free, int count) const {
    const int first_block = C::kPingpong ? 0 : warpgroup * kBlocks;
    u32 before = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      barrier_wait(full(ring.stage), ring.phase);
      const u64 p = TileP::descriptor(shared + ring.stage * TileP::kBytes) +
                    TileP::descriptor_offset(first_block, 0);
      const u64 q = TileQ::descriptor(shared + kOffsetQ + ring.stage * TileQ::kBytes);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kMultiply; ++step) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          Instruction::multiply(sums[block], p + TileP::descriptor_offset(block, step),
                                q + TileQ::descriptor_offset(0, step), (k | step) != 0);
        }
      }
      wgmma_commit();
      wgmma_wait<1>();  // the tiles before these have been read
      if (k > 0) free(before);
      before = ring.stage;
      ring.next();
    }
    if constexpr (C::kPingpong) threads_arrive(kTurn + (warpgroup ^ 1), 2 * kGroupThreads);
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kBlocks * kAccumulators; ++i) {
      wgmma_done(sums[i / kAccumulators][i % kAccumulators]);
    }
    if (count > 0) free(before);
  }

  // With slices only the group that comes last has something to store.
  template <int kColumns>
  __device__ __forceinline__ void finish(Acc (&sums)[kBlocks][kColumns / 2], const Tile& tile,
                                         int first_column, u32& phases) const {
    if constexpr (C::kSlices > 1) {
      constexpr int kVectors = kBlocks * kColumns / 8;
      using Sums = SliceSums<Acc, kVectors, C::kAtomicSplit>;
      char* const workspace = static_cast<char*>(arguments.workspace);
      const int per_tile = kOwners * kConsumers;
      const Sums slices = {workspace + arguments.partial_sums,
                           reinterpret_cast<u32*>(workspace),
                           tile.index * per_tile + split * kConsumers + warpgroup,
                           tiles / C::kSlices * per_tile,
                           tile.slice,
                           C::kSlices,
                           1 + warpgroup,
                           thread};
      if (!slices.add(reinterpret_cast<Acc(&)[kVectors][4]>(sums))) return;
    }
    const auto store = store_of<kColumns>(phases);
    const StorePlace place = store_place(tile, first_column);
    if constexpr (C::kSplits > 1 || C::kSlices > 1) store.ask(place);
    store.store(sums, place);
  }

  template <int kColumns>
  __device__ __forceinline__ TileStore<C, GemmArguments, kBlocks, kColumns, kArea.pass, kAreaBytes>
  store_of(u32& phases) const {
    const u32 area = shared + kOffsetStore + warpgroup * kAreaBytes;
    return {
        arguments.gemm, &arguments.out_map, arguments.d_maps, area, 1 + warpgroup, thread, d_here(),
        phases};
  }
  __device__ __forceinline__ StorePlace store_place(const Tile& tile, int first_column) const {
    const int p = tile.p + (C::kPingpong ? 0 : warpgroup * kBlocks * kWgmmaRows);
    const int q = tile.q + first_column;
    return {C::kSwapAb ? q : p, C::kSwapAb ? p : q, tile.batch};
  }

  __device__ __forceinline__ void add_partial_sums(const Acc (&sums)[kBlocks][kAccumulators],
                                                   const Tile& tile, u32& phases) const {
    using Sums = ClusterSums<Acc, kBlocks, C::kTileN, kOwners, C::kSplits, kVectorBytes>;
    const u32 mine = shared + kOffsetPartial + (warpgroup * kGroupThreads + thread) * 16;
    const Sums cluster_sums = {mine, partial_sums_here(), split};
    Acc own[kBlocks][kOwnColumns / 2];
    if (cluster_sums.add(sums, own)) finish<kOwnColumns>(own, tile, split * kOwnColumns, phases);
  }
};

}  // namespace tessera::device
