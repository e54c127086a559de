// The main loop of Hopper kernels, independent of the operation. One thread of a producer warp
// keeps a ring of stages in shared memory filled through two loaders (TMA). Consumer warpgroups
// multiply the stages (wgmma).
//
// P feeds wgmma's M and Q its N. A block multiplies kTileM x kTileN of P x Q at a time.
//   cooperative: the consumers share each tile's rows
//   pingpong:    two consumers take every other tile; one multiplies while the other stores
//   clusters:    kClusterM x kClusterN blocks fetch parts of the tiles that they share
// The emitted text specialises Wgmma, one instruction.
#pragma once

#include "tessera/device/cuda/loaders.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

// The tiles along k from `first` up to, but not including, `last`.
struct StepRange {
  int first, last;
};

template <class C, class LoaderP, class LoaderQ>
struct TmaMainLoop {
  static_assert(C::kTileM % kWgmmaRows == 0 && C::kTileN % 8 == 0 && C::kTileN <= 256,
                "tile_m must be a multiple of 64, tile_n one of 8 up to 256");
  static_assert(!C::kPingpong || C::kWaveM == 2, "pingpong takes 2 consumers");

  // ---- sizes ----

  using Acc = typename C::Acc;
  using TileP = typename LoaderP::Tile;
  using TileQ = typename LoaderQ::Tile;
  static constexpr WgmmaFrom from(bool along_k) {
    return along_k ? WgmmaFrom::k_lines : WgmmaFrom::row_lines;
  }
  using Instruction = Wgmma<typename TileP::Element, typename TileQ::Element, C::kTileN,
                            from(TileP::kAlongK), from(TileQ::kAlongK)>;

  static constexpr int kConsumers = C::kWaveM;
  static constexpr int kThreads = tma_threads(kConsumers);
  static constexpr int kProducerThreads = kThreads - kConsumers * kGroupThreads;
  static constexpr int kMultiply =
      C::kTileK * static_cast<int>(sizeof(typename TileP::Element)) / kWgmmaBytesK;
  static constexpr int kBlocks =
      tma_parts({C::kTileM, C::kTileN, kConsumers, 1, C::kPingpong}).row_blocks;
  static constexpr int kAccumulators = C::kTileN / 2;  // per block of 64 rows
  static_assert(kBlocks >= 1, "every consumer needs 64 rows");

  static constexpr int kMulticast = C::kClusterM * C::kClusterN;
  static constexpr int kReleases = C::kClusterM + C::kClusterN - 1;  // how many blocks fill a stage

  static constexpr int kStageBytes = TileP::kBytes + TileQ::kBytes;
  static constexpr int kOffsetQ = C::kStages * TileP::kBytes;

  // ---- the place of this thread and block ----

  u32 stages;      // all tiles of P, then all of Q
  u32 barriers;    // barriers for full stages, then for empty ones
  int warpgroup;   // kConsumers: the producer
  int thread;      // in the warpgroup
  int at_p, at_q;  // place in the multicast cluster

  static __device__ __forceinline__ TmaMainLoop at(u32 stages, u32 barriers, int rank) {
    const int warpgroup = uniform(threadIdx.x / kGroupThreads);
    const int thread = threadIdx.x % kGroupThreads;
    return {stages, barriers, warpgroup, thread, rank % C::kClusterM, rank / C::kClusterM};
  }

  __device__ __forceinline__ u32 full(u32 stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ u32 empty(u32 stage) const { return full(C::kStages + stage); }
  __device__ __forceinline__ int rank() const { return at_p + C::kClusterM * at_q; }
  __device__ __forceinline__ bool is_producer() const { return warpgroup == kConsumers; }

  // One thread calls this before a barrier of the block. `copiers` threads copy a part of each
  // stage besides what the copy engine brings.
  __device__ __forceinline__ void init_ring(u32 copiers = 0) const {
    for (u32 i = 0; i < C::kStages; ++i) {
      barrier_init(full(i), 1 + copiers);
      barrier_init(empty(i), (C::kPingpong ? 1 : kConsumers) * kReleases);
    }
  }

  // The registers of a thread of the producer and of a consumer. Producers whose threads copy need
  // more of them, and have at most two consumers.
  static constexpr int producer_registers(bool copies) {
    return kConsumers == 3 ? 32 : copies ? 72 : 40;
  }
  static constexpr int consumer_registers(bool copies) {
    return kConsumers == 3 ? 160 : copies ? 216 : 232;
  }

  // Runs the kernel's produce() in the producer warpgroup, and its consume() in the other
  // warpgroups.
  template <bool kCopies = false, class Kernel>
  __device__ __forceinline__ void run_roles(const Kernel& kernel) const {
    if (is_producer()) {
      if constexpr (kConsumers > 1) registers_shrink<producer_registers(kCopies)>();
      kernel.produce();
    } else {
      if constexpr (kConsumers > 1) registers_grow<consumer_registers(kCopies)>();
      kernel.consume();
    }
  }

  // ---- the producer: one thread fills the ring ----

  using Ring = device::Ring<C::kStages>;

  __device__ __forceinline__ bool is_filler() const {
    return uniform(thread / 32) == 0 && elect_one();
  }

  // P is shared by the blocks with the same at_p, Q by those with the same at_q.
  __device__ __forceinline__ TileShare share_p() const {
    u16 mask = 0;
#pragma unroll
    for (int i = 0; i < C::kClusterN; ++i) mask |= 1U << (at_p + C::kClusterM * i);
    return {at_q, mask};
  }
  __device__ __forceinline__ TileShare share_q() const {
    const u16 mask = ((1U << C::kClusterM) - 1) << (C::kClusterM * at_q);
    return {at_p, mask};
  }

  // The loaders of P and Q for a tile of the output.
  struct Loaders {
    LoaderP p;
    LoaderQ q;
  };

  // make_loaders() returns them. It is called inside the loop, so that its values cost no registers
  // between two tiles. The compiler moves values out of the loop where that is worth it.
  template <class MakeLoaders>
  __device__ __forceinline__ void fill(Ring& ring, const StepRange& range,
                                       const MakeLoaders& make_loaders) const {
#pragma unroll 1
    for (int step = range.first; step < range.last; ++step) {
      barrier_wait(empty(ring.stage), ring.phase ^ 1);
      barrier_expect(full(ring.stage), kStageBytes);
      const u32 to_p = stages + ring.stage * TileP::kBytes;
      const u32 to_q = stages + kOffsetQ + ring.stage * TileQ::kBytes;
      const Loaders from = make_loaders();
      from.p.fetch({to_p, full(ring.stage), 0, LoaderP::kHint}, step);
      from.q.fetch({to_q, full(ring.stage), 0, LoaderQ::kHint}, step);
      ring.next();
    }
  }

  // ---- the consumers ----

  using Release = device::Release<(kReleases > 1)>;
  __device__ __forceinline__ Release release() const {
    if constexpr (kReleases == 1) {
      return {empty(0), thread == 0};
    } else {
      // The first kClusterM warps signal the blocks with our at_q, the other warps those with our
      // at_p.
      const int warp = uniform(thread / 32);
      const int other = warp - C::kClusterM;
      const int rank = warp < C::kClusterM
                           ? warp + C::kClusterM * at_q
                           : at_p + C::kClusterM * (other + (other >= at_q ? 1 : 0));
      const bool serves = warp < kReleases;
      return {in_block(empty(0), serves ? rank : 0), serves && thread % 32 == 0};
    }
  }

  // Named barriers: 1 to 3 belong to one consumer each, 4 and 5 say which consumer may multiply.
  static constexpr int kTurn = 4;

  __device__ __forceinline__ void wait_turn() const {
    threads_sync(kTurn + warpgroup, 2 * kGroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    threads_arrive(kTurn + (warpgroup ^ 1), 2 * kGroupThreads);
  }

  // sums = this consumer's rows of the tile, multiplied over the given tiles of K. What threads
  // have copied becomes visible to wgmma by a fence.
  template <bool kByThreads = false>
  __device__ __forceinline__ void multiply(Acc (&sums)[kBlocks][kAccumulators], Ring& ring,
                                           const Release& free, int count) const {
    const int first_block = C::kPingpong ? 0 : warpgroup * kBlocks;
    u32 before = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      barrier_wait(full(ring.stage), ring.phase);
      if constexpr (kByThreads) copy_engine_fence();
      const u64 p = TileP::descriptor(stages + ring.stage * TileP::kBytes) +
                    TileP::descriptor_offset(first_block, 0);
      const u64 q = TileQ::descriptor(stages + kOffsetQ + ring.stage * TileQ::kBytes);
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
    if constexpr (C::kPingpong) pass_turn();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kBlocks * kAccumulators; ++i) {
      wgmma_done(sums[i / kAccumulators][i % kAccumulators]);
    }
    if (count > 0) free(before);
  }
};

}  // namespace tessera::device
