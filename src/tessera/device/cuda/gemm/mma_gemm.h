// The cpasync kernel on tensor cores, see mma_tile.h.
#pragma once

#include "tessera/device/cuda/gemm/cpasync_gemm.h"
#include "tessera/device/cuda/mma_tile.h"

namespace tessera::device {

template <class C>
class MmaEngine {
 public:
  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  using Math = MmaTile<C, A, B, C::kAKContiguous, C::kBKContiguous>;
  using ShapeA = typename Math::ShapeA;
  using ShapeB = typename Math::ShapeB;

  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  static constexpr bool kStores = false;
  using CopyA = TileCopy<A, ShapeA, C::kTileM, C::kTileK, C::kAKContiguous, kThreads>;
  using CopyB = TileCopy<B, ShapeB, C::kTileN, C::kTileK, C::kBKContiguous, kThreads>;
  static constexpr int kStageBytes = Math::kStageBytes;
  static constexpr int kBlocksA = Math::kBlocksA;
  static constexpr int kBlocksB = Math::kBlocksB;
  // With more than 8 copies in a thread, the compiler keeps their addresses in registers.
  static constexpr int kRegisters = kBlocksA * kBlocksB * 2 +
                                    (kBlocksA + kBlocksB) * 2 * Math::kParts + 40 +
                                    12 * larger(0, CopyA::kCopies + CopyB::kCopies - 8);

  __device__ __forceinline__ explicit MmaEngine(u32 thread) : math(thread) {}

  __device__ __forceinline__ void accumulate(const GemmArguments& g, const TileCorner& corner,
                                             u32 shared) {
    for_each_stage(g, corner, shared,
                   [this](u32 stage) { math.multiply(stage, stage + ShapeA::kBytes); });
  }

  // Calls multiply(stage) for the tiles of A and B along k, one after the other. Stage i of the
  // ring is filled kStages - 1 turns before it is multiplied. One loop has the turns that only
  // fill, those that do both, and those that only multiply.
  template <class Multiply>
  static __device__ __forceinline__ void for_each_stage(const GemmArguments& g,
                                                        const TileCorner& corner, u32 shared,
                                                        const Multiply& multiply) {
    constexpr int kAhead = C::kStages - 1;
    OperandCopies<C, CopyA, CopyB> copies(g, corner, threadIdx.x);
    i64 k_left = g.k;
    u32 fill = 0;
    u32 use = 0;
    const i64 turns = (g.k + C::kTileK - 1) / C::kTileK + kAhead;
#pragma unroll 1
    for (i64 turn = 0; turn < turns; ++turn) {
      if (turn >= kAhead) {
        copies_wait<kAhead - 1>();
        __syncthreads();
      }
      if (k_left > 0) {
        const u32 stage = shared + fill * kStageBytes;
        copies.a.fetch(stage, k_left);
        copies.b.fetch(stage + ShapeA::kBytes, k_left);
        k_left -= C::kTileK;
        fill = fill + 1 == C::kStages ? 0 : fill + 1;
      }
      copies_commit();
      if (turn >= kAhead) {
        multiply(shared + use * kStageBytes);
        use = use + 1 == C::kStages ? 0 : use + 1;
      }
    }
    copies_wait<0>();
    __syncthreads();
  }

  __device__ __forceinline__ void put(Acc* tile) const {
    math.for_each(
        [tile](u32 row, u32 column, Acc sum) { TileOutput<C, 0>::put(tile, row, column, sum); });
  }

 private:
  Math math;
};

template <class C>
using MmaGemm = CpasyncGemm<C, MmaEngine>;

}  // namespace tessera::device
