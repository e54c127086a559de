// The cpasync kernel on tensor cores: mma.sync of sm_80 and later. Types are tf32, fp16, bf16,
// int8, and fp8 and bf8 in any mix. fp8 and bf8 become fp16 in registers, which holds each of their
// values.
#pragma once

#include "tessera/device/cuda/fragments.h"
#include "tessera/device/cuda/gemm/cpasync_gemm.h"

namespace tessera::device {

template <class C>
class MmaEngine {
 public:
  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  using ShapeA = TileShape<A, C::kTileM, C::kTileK, C::kAKContiguous>;
  using ShapeB = TileShape<B, C::kTileN, C::kTileK, C::kBKContiguous>;

  static constexpr int kWarpM = C::kTileM / C::kWaveM;
  static constexpr int kWarpN = C::kTileN / C::kWaveN;
  static constexpr int kBlocksA = kWarpM / 8;
  static constexpr int kBlocksB = kWarpN / 8;
  static constexpr int kSteps = C::kTileK * static_cast<int>(sizeof(A)) / 32;
  static constexpr int kParts = Operand<A>::kParts;
  static_assert(kSteps >= 1 && sizeof(A) == sizeof(B), "tile_k must be a multiple of 32 bytes");

  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  using CopyA = TileCopy<A, ShapeA, C::kTileM, C::kTileK, C::kAKContiguous, kThreads>;
  using CopyB = TileCopy<B, ShapeB, C::kTileN, C::kTileK, C::kBKContiguous, kThreads>;
  static constexpr int kStageBytes = ShapeA::kBytes + ShapeB::kBytes;
  // With more than 8 copies in a thread, the compiler keeps their addresses in registers.
  static constexpr int kRegisters = kBlocksA * kBlocksB * 2 + (kBlocksA + kBlocksB) * 2 * kParts +
                                    40 + 12 * larger(0, CopyA::kCopies + CopyB::kCopies - 8);

  using WarpA = WarpOperand<A, ShapeA, C::kAKContiguous, kBlocksA, false>;
  using WarpB = WarpOperand<B, ShapeB, C::kBKContiguous, kBlocksB, true>;

  __device__ __forceinline__ explicit MmaEngine(u32 thread)
      : lane(thread & 31),
        row(thread / 32 / C::kWaveN * kWarpM),
        column(thread / 32 % C::kWaveN * kWarpN),
        warp_a(row, lane),
        warp_b(column, lane) {}

  // Stage i of the ring is filled kStages - 1 turns before it is multiplied. One loop has the turns
  // that only fill, those that do both, and those that only multiply.
  __device__ __forceinline__ void accumulate(const GemmArguments& g, const TileCorner& corner,
                                             u32 shared) {
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
        const u32 stage = shared + use * kStageBytes;
        multiply(stage, stage + ShapeA::kBytes);
        use = use + 1 == C::kStages ? 0 : use + 1;
      }
    }
    copies_wait<0>();
    __syncthreads();
  }

  __device__ __forceinline__ void put(Acc* tile) const {
    using Output = TileOutput<C, 0>;
#pragma unroll
    for (int i = 0; i < kBlocksA; ++i) {
      const u32 at_row = row + WarpA::row_of(i, lane >> 2);
#pragma unroll
      for (int j = 0; j < kBlocksB; ++j) {
        const u32 at_column = column + WarpB::row_of(j, (lane & 3) * 2);
        const u32 second = column + WarpB::row_of(j, (lane & 3) * 2 + 1);
        Output::put(tile, at_row, at_column, acc[i / 2][j][i % 2 * 2]);
        Output::put(tile, at_row, second, acc[i / 2][j][i % 2 * 2 + 1]);
      }
    }
  }

 private:
  __device__ __forceinline__ void multiply(u32 a_tile, u32 b_tile) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Fragment a[kBlocksA];
      Fragment b[kBlocksB];
      warp_a.load(a_tile, step, a);
      warp_b.load(b_tile, step, b);
      multiply_step(a, b);
    }
  }

  __device__ __forceinline__ void multiply_step(const Fragment (&a)[kBlocksA],
                                                const Fragment (&b)[kBlocksB]) {
    u32 columns[kBlocksB][kParts][2];
#pragma unroll
    for (int j = 0; j < kBlocksB; ++j) {
      const Operand<B> operand(b[j]);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        columns[j][part][0] = operand.words[part][0];
        columns[j][part][1] = operand.words[part][1];
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocksA; i += 2) {
      const Operand<A> upper(a[i]);
      const Operand<A> lower(a[i + 1]);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int j = 0; j < kBlocksB; ++j) {
          mma<A>(acc[i / 2][j], upper.words[part], lower.words[part], columns[j][part]);
        }
      }
    }
  }

  u32 lane, row, column;
  WarpA warp_a;
  WarpB warp_b;
  Acc acc[kBlocksA / 2][kBlocksB][4] = {};
};

template <class C>
using MmaGemm = CpasyncGemm<C, MmaEngine>;

}  // namespace tessera::device
