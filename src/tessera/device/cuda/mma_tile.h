// The products of a block's tile on tensor cores (mma.sync of sm_80 and later): each warp has a
// part of the tile's sums. Types are tf32, fp16, bf16, int8, and fp8 and bf8 in any mix. fp8 and
// bf8 become fp16 in registers, which holds each of their values.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/fragments.h"

namespace tessera::device {

template <class C, class A, class B, bool kAAlongK, bool kBAlongK>
class MmaTile {
 public:
  using Acc = typename C::Acc;
  using ShapeA = TileShape<A, C::kTileM, C::kTileK, kAAlongK>;
  using ShapeB = TileShape<B, C::kTileN, C::kTileK, kBAlongK>;

  static constexpr int kWarpM = C::kTileM / C::kWaveM;
  static constexpr int kWarpN = C::kTileN / C::kWaveN;
  static constexpr int kBlocksA = kWarpM / 8;
  static constexpr int kBlocksB = kWarpN / 8;
  static constexpr int kSteps = C::kTileK * static_cast<int>(sizeof(A)) / 32;
  static constexpr int kParts = Operand<A>::kParts;
  static constexpr int kStageBytes = ShapeA::kBytes + ShapeB::kBytes;
  static_assert(kSteps >= 1 && sizeof(A) == sizeof(B), "tile_k must be a multiple of 32 bytes");

  using WarpA = WarpOperand<A, ShapeA, kAAlongK, kBlocksA, false>;
  using WarpB = WarpOperand<B, ShapeB, kBAlongK, kBlocksB, true>;

  __device__ __forceinline__ explicit MmaTile(u32 thread)
      : lane(thread & 31),
        row(thread / 32 / C::kWaveN * kWarpM),
        column(thread / 32 % C::kWaveN * kWarpN),
        warp_a(row, lane),
        warp_b(column, lane) {}

  // Adds the products of one stage.
  __device__ __forceinline__ void multiply(u32 a_tile, u32 b_tile) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) multiply_one(a_tile, b_tile, step);
  }
  // Adds those of its 32 bytes of k with number `step`.
  __device__ __forceinline__ void multiply_one(u32 a_tile, u32 b_tile, int step) {
    Fragment a[kBlocksA];
    Fragment b[kBlocksB];
    warp_a.load(a_tile, step, a);
    warp_b.load(b_tile, step, b);
    multiply_step(a, b);
  }

  // The thread has a row in each block of A and two columns in each block of B: their places in the
  // tile, and the sum at both.
  __device__ __forceinline__ u32 row_at(int i) const { return row + WarpA::row_of(i, lane >> 2); }
  __device__ __forceinline__ u32 column_at(int j, int which) const {
    return column + WarpB::row_of(j, (lane & 3) * 2 + which);
  }
  __device__ __forceinline__ Acc& sum(int i, int j, int which) {
    return acc[i / 2][j][i % 2 * 2 + which];
  }

  // Calls visit(row, column, sum) for each of the thread's sums.
  template <class Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kBlocksA; ++i) {
#pragma unroll
      for (int j = 0; j < kBlocksB; ++j) {
        visit(row_at(i), column_at(j, 0), acc[i / 2][j][i % 2 * 2]);
        visit(row_at(i), column_at(j, 1), acc[i / 2][j][i % 2 * 2 + 1]);
      }
    }
  }

 private:
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

}  // namespace tessera::device
