// Kernels by MFMA on operands with scales of blocks. Config has also what scaled_gemm.h describes.
//
// ScaledSums: the sums of each block of k are multiplied by both scales and added in fp32, in a
//             second set of registers. A block is a whole number of steps of a matrix instruction,
//             and a tile a whole number of blocks.
// MxSums:     gfx950 multiplies by powers of two itself, one for each row and 32 along k.
#pragma once

#include "tessera/device/hip/gemm/mfma_gemm.h"
#include "tessera/device/hip/gemm/scaled_gemm.h"

namespace tessera::device {

// Where the wave's part of a tile begins.
struct WavePlace {
  int row, column;
};

// Rows and columns past the end take the scales of the last ones: their sums are not stored.
__device__ __forceinline__ int within(i64 place, i64 end) {
  return static_cast<int>(place < end ? place : end - 1);
}

// ---- sums of blocks ----

struct ScaledSums {
  template <class First, class Second, int kSide>
  using Op = MatrixOp<First, Second, kSide>;

  template <class C, class Matrix, int kBlocksM, int kBlocksN>
  struct Scales {
    using Sum = typename Matrix::Sum;
    static constexpr bool kAny = true;
    static constexpr int kSide = C::kWarpTileM, kSums = kSide * kSide / kLanes;
    static constexpr int kDepth = scaled_depth<C>();
    static constexpr bool kByColumn = C::kScaleB != 0 && C::kScaleRowsB == 1;
    static_assert(C::kTileK % kDepth == 0 && kDepth % C::kWarpTileK == 0, "tiles hold blocks");

    float a[kBlocksM];
    typename If<kByColumn, Sum, float>::Type b[kBlocksN];
    Sum totals[kBlocksM * kBlocksN];

    __device__ __forceinline__ Scales() {
#pragma unroll
      for (int i = 0; i < kBlocksM * kBlocksN; ++i) totals[i] = 0;
    }

    static constexpr bool begins(int depth) { return depth % kDepth == 0; }
    // The scales of the block that begins at k, which may be past the end.
    template <class Part>
    __device__ __forceinline__ void begin(const GemmArguments& g, const Part& part,
                                          const HipTile& at, const WavePlace& wave, int lane,
                                          int k) {
      const bool exists = k < g.k;
      const auto of_a = BlockScales<C>::a(part, at.batch, 0);
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i) {
        const int row = within(wave.row + i * kSide + lane % kSide, g.m);
        a[i] = exists ? of_a.apply(1.0F, row, k) : 0.0F;
      }
      const auto of_b = BlockScales<C>::b(part, at.batch, 0);
#pragma unroll
      for (int j = 0; j < kBlocksN; ++j) {
        const int column = wave.column + j * kSide;
        if constexpr (kByColumn) {
#pragma unroll
          for (int s = 0; s < kSums; ++s) {
            const int quad = Matrix::first_quad(lane) + Matrix::more_quads(s / 4);
            b[j][s] = exists ? of_b.apply(1.0F, within(column + 4 * quad + s % 4, g.n), k) : 0.0F;
          }
        } else {
          b[j] = exists ? of_b.apply(1.0F, within(column, g.n), k) : 0.0F;
        }
      }
    }

    template <class Lane>
    static __device__ __forceinline__ Sum step(int part, const Lane& first, const Lane& second,
                                               const Sum& sum, int) {
      return Matrix::step(part, first, second, sum);
    }
    // Behind a step that ends at `depth` of a tile.
    __device__ __forceinline__ void end(int depth, Sum (&sums)[kBlocksM * kBlocksN]) {
      if (depth % kDepth != 0) return;
#pragma unroll
      for (int i = 0; i < kBlocksM * kBlocksN; ++i) {
        totals[i] += sums[i] * (b[i % kBlocksN] * a[i / kBlocksN]);
        sums[i] = 0;
      }
    }
    __device__ __forceinline__ void finish(Sum (&sums)[kBlocksM * kBlocksN]) {
#pragma unroll
      for (int i = 0; i < kBlocksM * kBlocksN; ++i) sums[i] = totals[i];
    }
  };
};

// ---- gfx950's scaled instruction ----

#if defined(__gfx950__)
// As matrix.h describes it, over 32 bytes of k in a lane: 16 of the first half of k and 16 of the
// second. The scales of lane l are those of row l % kSide and of the 32 along k with number
// l / kSide.
template <class First, class Second, int kSide>
struct MxMfma : MfmaLayout<kSide> {
  static constexpr int kLaneChunks = 2, kParts = 1;
  using Lane = Vec<int, 8>;
  using Sum = Vec<float, kSide * kSide / 64>;
  template <class T>
  static constexpr int kFormat = kSame<T, bf8> ? 1 : 0;

  template <class Read>
  static __device__ __forceinline__ Lane read(Read read_chunk) {
    const Chunk low = read_chunk(0), high = read_chunk(MfmaLayout<kSide>::kGroups);
    return bits<Lane>(
        Vec<u32, 8>{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]});
  }
  static __device__ __forceinline__ Sum step(const Lane& first, const Lane& second, const Sum& sum,
                                             int scale_first, int scale_second) {
    if constexpr (kSide == 32) {
      return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
          first, second, sum, kFormat<First>, kFormat<Second>, 0, scale_first, 0, scale_second);
    } else {
      return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
          first, second, sum, kFormat<First>, kFormat<Second>, 0, scale_first, 0, scale_second);
    }
  }
};

struct MxSums {
  template <class First, class Second, int kSide>
  using Op = MxMfma<First, Second, kSide>;

  template <class C, class Matrix, int kBlocksM, int kBlocksN>
  struct Scales {
    using Sum = typename Matrix::Sum;
    static constexpr bool kAny = true;
    static constexpr int kSide = C::kWarpTileM, kBlock = 32;
    static_assert(C::kScaleA == kBlock && C::kScaleB == kBlock && C::kScaleBytes);

    int a[kBlocksM], b[kBlocksN];

    static constexpr bool begins(int) { return true; }
    template <class Part>
    __device__ __forceinline__ void begin(const GemmArguments& g, const Part& part,
                                          const HipTile& at, const WavePlace& wave, int lane,
                                          int k) {
      const int own = k + lane / kSide * kBlock;
      const auto of_a = BlockScales<C>::a(part, at.batch, 0);
      const auto of_b = BlockScales<C>::b(part, at.batch, 0);
      load(of_a, wave.row + lane % kSide, g.m, own, g.k, a);
      load(of_b, wave.column + lane % kSide, g.n, own, g.k, b);
    }
    template <class Lane>
    __device__ __forceinline__ Sum step(int, const Lane& first, const Lane& second, const Sum& sum,
                                        int block) const {
      return Matrix::step(first, second, sum, b[block % kBlocksN], a[block / kBlocksN]);
    }
    template <class Sums>
    static __device__ __forceinline__ void end(int, Sums&) {}
    template <class Sums>
    static __device__ __forceinline__ void finish(Sums&) {}

   private:
    // Past the end of k elements are 0, and any number scales them; nobody reads a row of no index.
    template <class Of, int kBlocks>
    static __device__ __forceinline__ void load(const Of& of, int row, i64 rows, int k, i64 end,
                                                int (&to)[kBlocks]) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const i64 own = of.rows.row(of.from.row + within(row + i * kSide, rows));
        to[i] = k < end && own >= 0 ? static_cast<int>(of.word(own, k)) : 127;
      }
    }
  };
};
#endif

template <class C>
using MfmaGroups = typename If<has_groups<C>(), HipGroups<C>, NoGroups>::Type;
template <class C>
using MfmaScaledGemm = MfmaGemm<C, GemmOperands<C>, MfmaGroups<C>, ScaledSums>;
#if defined(__gfx950__)
template <class C>
using MxGemm = MfmaGemm<C, GemmOperands<C>, MfmaGroups<C>, MxSums>;
#endif

}  // namespace tessera::device
