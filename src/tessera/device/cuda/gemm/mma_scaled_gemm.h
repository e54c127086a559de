// The cpasync kernel on tensor cores for operands with scales of blocks, of any kind, layout and
// stride: each block of k is summed by mma_tile.h, multiplied by its scales and added in fp32.
#pragma once

#include "tessera/device/cuda/gemm/clear_k.h"
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
                                             u32 shared, const LaunchScales& all) {
    accumulate(g, corner, shared, ProductScales{all, corner.batch, 0, 0});
  }

  // Tiles of k begin where blocks do. What the first one has ahead of the product's own k is set
  // to zero.
  __device__ __forceinline__ void accumulate(const GemmArguments& own, const TileCorner& corner,
                                             u32 shared, const ProductScales& x) {
    const int ahead = own.k > 0 ? static_cast<int>(x.k % kWhole) : 0;
    const GemmArguments g = with_k_ahead(own, ahead);
    const CudaScales& scales = x.all.scales;
    const bool quads = scales.quads != 0;
    const Block block = {own,
                         corner,
                         x,
                         x.k + own.k,
                         ScalesA(scales.a, x.matrix, quads),
                         ScalesB(scales.b, x.matrix, quads)};
    i64 k = x.k - ahead;
    Plain::for_each_stage(g, corner, shared, [&](u32 stage) {
      if (k < x.k) clear_ahead(stage, ahead);
      multiply(stage, k, block);
      k += C::kTileK;
    });
    if constexpr (C::kTileK < kDepth) {
      if (k % kDepth != 0 && own.k > 0) promote(k - 1, block);
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
    const ProductScales& product;
    i64 end;  // of k, as blocks are counted
    ScalesA a;
    ScalesB b;
  };

  static constexpr int kWhole = smaller(C::kTileK, kDepth);

  static __device__ __forceinline__ GemmArguments with_k_ahead(GemmArguments g, int ahead) {
    g.a = moved(g.a, -ahead * (C::kAKContiguous ? 1 : g.ld_a));
    g.b = moved(g.b, -ahead * (C::kBKContiguous ? 1 : g.ld_b));
    g.k += ahead;
    return g;
  }

  static __device__ __forceinline__ void clear_ahead(u32 stage, int ahead) {
    using ShapeA = typename Plain::ShapeA;
    clear_first<ShapeA, C::kAKContiguous>(stage, ahead, threadIdx.x, Plain::kThreads);
    clear_first<typename Plain::ShapeB, C::kBKContiguous>(stage + ShapeA::kBytes, ahead,
                                                          threadIdx.x, Plain::kThreads);
    __syncthreads();
  }

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
    if (k / kDepth * kDepth >= block.end) return;
    float scale_a[kBlocksA];
    float scale_b[kBlocksB][2];
#pragma unroll
    for (int i = 0; i < kBlocksA; ++i) {
      const i64 row = least(block.corner.row + math.row_at(i), block.g.m - 1);
      scale_a[i] = block.a.at(block.product.all.row_of_a(block.product.row + row), k);
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

  static __device__ __forceinline__ void run(const CudaScaledGemmArguments& x) {
    run(x.cuda, {x.scales});
  }
  static __device__ __forceinline__ void run(const CudaGemmArguments& x,
                                             const LaunchScales& scales) {
    Gemm::run(x, scales);
  }
};

}  // namespace tessera::device
