// The cpasync kernel on tensor cores for operands with scales of blocks, of any kind, layout and
// stride: each block of k is summed by mma_tile.h, multiplied by its scales and added in fp32.
#pragma once

#include "tessera/device/cuda/gemm/mma_gemm.h"
#include "tessera/device/cuda/gemm/scales.h"

namespace tessera::device {

template <class C>
class ScaledMmaEngine {
 public:
  using Acc = typename C::Acc;
  using Plain = MmaEngine<C>;
  using Math = typename Plain::Math;
  static_assert(kSame<Acc, float> && sizeof(typename C::A) == 1, "operands are fp8 or bf8");

  static constexpr bool kStores = false;
  static constexpr int kStageBytes = Plain::kStageBytes;
  static constexpr int kBlocksA = Math::kBlocksA;
  static constexpr int kBlocksB = Math::kBlocksB;
  static constexpr int kRegisters =
      Plain::kRegisters + kBlocksA * kBlocksB * 2 + kBlocksA + kBlocksB * 2;

  // How many elements along k have the same scales: of either operand, so the smaller block's.
  static constexpr int kDepth =
      (C::kScaleRowsA != 0 && C::kScaleKA == 32) || (C::kScaleRowsB != 0 && C::kScaleKB == 32)
          ? 32
          : 128;
  static constexpr int kStepK = 32;
  static_assert(C::kTileK % kDepth == 0 || kDepth % C::kTileK == 0, "blocks do not fit the tile");

  using ScalesA = BlockScales<C::kScaleRowsA, C::kScaleKA, C::kScaleE8m0>;
  using ScalesB = BlockScales<C::kScaleRowsB, C::kScaleKB, C::kScaleE8m0>;

  __device__ __forceinline__ explicit ScaledMmaEngine(u32 thread) : math(thread) {}

  __device__ __forceinline__ void accumulate(const GemmArguments& g, const TileCorner& corner,
                                             u32 shared, const CudaScaledGemmArguments& x) {
    const Block block = {g, corner, ScalesA(x.a, corner.batch, x.quads != 0),
                         ScalesB(x.b, corner.batch, x.quads != 0)};
    i64 k = 0;
    Plain::for_each_stage(g, corner, shared, [&](u32 stage) {
      multiply(stage, k, block);
      k += C::kTileK;
    });
    if constexpr (C::kTileK < kDepth) {
      if (k % kDepth != 0) promote(k - 1, block);
    }
  }

  __device__ __forceinline__ void put(Acc* tile) const {
#pragma unroll
    for (int i = 0; i < kBlocksA; ++i) {
#pragma unroll
      for (int j = 0; j < kBlocksB; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          TileOutput<C, 0>::put(tile, math.row_at(i), math.column_at(j, e), sums[i][j][e]);
        }
      }
    }
  }

 private:
  struct Block {
    const GemmArguments& g;
    const TileCorner& corner;
    ScalesA a;
    ScalesB b;
  };

  // The stage holds elements from k on; those behind the end are zero.
  __device__ __forceinline__ void multiply(u32 stage, i64 k, const Block& block) {
#pragma unroll
    for (int step = 0; step < Math::kSteps; ++step) {
      math.multiply_one(stage, stage + Plain::ShapeA::kBytes, step);
      if constexpr (C::kTileK >= kDepth) {
        if ((step + 1) * kStepK % kDepth == 0) promote(k + (step + 1) * kStepK - kDepth, block);
      }
    }
    if constexpr (C::kTileK < kDepth) {
      if ((k + C::kTileK) % kDepth == 0) promote(k, block);
    }
  }

  // Adds the sums of the block that holds k, and starts the next one. A row or column that does not
  // exist takes the scale of the last one, and a block that does not exist is left out.
  __device__ __forceinline__ void promote(i64 k, const Block& block) {
    if (k / kDepth * kDepth >= block.g.k) return;
    float scale_a[kBlocksA];
    float scale_b[kBlocksB][2];
#pragma unroll
    for (int i = 0; i < kBlocksA; ++i) {
      scale_a[i] = block.a.at(least(block.corner.row + math.row_at(i), block.g.m - 1), k);
    }
#pragma unroll
    for (int j = 0; j < kBlocksB; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const i64 column = block.corner.column + math.column_at(j, e);
        scale_b[j][e] = block.b.at(least(column, block.g.n - 1), k);
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocksA; ++i) {
#pragma unroll
      for (int j = 0; j < kBlocksB; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          Acc& sum = math.sum(i, j, e);
          sums[i][j][e] += scale_a[i] * scale_b[j][e] * sum;
          sum = 0;
        }
      }
    }
  }

  static __device__ __forceinline__ i64 least(i64 a, i64 b) { return a < b ? a : b; }

  Math math;
  Acc sums[kBlocksA][kBlocksB][2] = {};
};

template <class C>
struct ScaledMmaGemm {
  using Gemm = CpasyncGemm<C, ScaledMmaEngine>;
  static constexpr int kThreads = Gemm::kThreads;
  static constexpr int kMinBlocks = Gemm::kMinBlocks;
  static_assert(C::kSlices == 1, "slices are those of fp32");

  static __device__ __forceinline__ void run(const CudaScaledGemmArguments& arguments) {
    Gemm::run(arguments.cuda, arguments);
  }
};

}  // namespace tessera::device
