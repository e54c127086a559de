// The cpasync kernel on the ordinary cores: fp32 by fused multiply-add. The 32 lanes of a warp
// stand in a grid over its part of the tile; each keeps kWarpTileM x kWarpTileN accumulators.
#pragma once

#include "tessera/device/cuda/cpasync_gemm.h"

namespace tessera::device {

__device__ __forceinline__ void load_vector(u32 from, float (&out)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
               : "r"(from)
               : "memory");
}

// One lane's rows of an operand: kCount rows, `kLanes` lanes share those of a warp. Rows are chosen
// so that lanes read different banks: one after the other where k is contiguous, else 4 in a row.
template <class Shape, bool kKContiguous, int kCount, int kLanes>
class LaneOperand {
 public:
  static_assert((kLanes & (kLanes - 1)) == 0, "lanes must be a power of two");

  // Of the warp's rows from `first_row`.
  __device__ __forceinline__ LaneOperand(u32 first_row, u32 lane_row)
      : first(first_row), lane(lane_row) {
    start = kKContiguous ? Shape::at(first + lane, 0) : Shape::at(0, first / 4 + lane);
  }

  // The row of the tile of this lane's row `index`.
  __device__ __forceinline__ u32 row_of(u32 index) const {
    const u32 vector = index / 4 * kLanes + lane;
    return first + (kKContiguous ? index * kLanes + lane : vector * 4 + index % 4);
  }

  // The elements of k = 4 * step + 0 .. 3.
  __device__ __forceinline__ void load(u32 tile, int step, float (&out)[4][kCount]) const {
    float vector[4];
    if constexpr (kKContiguous) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const u32 swizzled = start ^ (step ^ Shape::way(i * kLanes)) * 16;
        load_vector(tile + swizzled + i * kLanes * Shape::kLineBytes, vector);
#pragma unroll
        for (int k = 0; k < 4; ++k) out[k][i] = vector[k];
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const u32 line = tile + start + step * 4 * Shape::kLineBytes;
          load_vector(line + k * Shape::kLineBytes + i / 4 * kLanes * 16, vector);
#pragma unroll
          for (int e = 0; e < 4; ++e) out[k][i + e] = vector[e];
        }
      }
    }
  }

 private:
  u32 first, lane, start;
};

template <class C>
class FmaEngine {
 public:
  using ShapeA = TileShape<float, C::kTileM, C::kTileK, C::kAKContiguous>;
  using ShapeB = TileShape<float, C::kTileN, C::kTileK, C::kBKContiguous>;

  static constexpr int kWarpM = C::kTileM / C::kWaveM;
  static constexpr int kWarpN = C::kTileN / C::kWaveN;
  static constexpr int kRows = C::kWarpTileM;
  static constexpr int kColumns = C::kWarpTileN;
  static constexpr int kLanesM = kWarpM / kRows;
  static constexpr int kLanesN = kWarpN / kColumns;
  static_assert(kLanesM * kLanesN == 32, "the lanes of a warp must cover its part of the tile");
  static_assert(kRows % 4 == 0 && kColumns % 4 == 0 && C::kTileK % 4 == 0, "vectors of 4");
  static constexpr int kRegisters = kRows * kColumns + 8 * (kRows + kColumns);

  using LaneA = LaneOperand<ShapeA, C::kAKContiguous, kRows, kLanesM>;
  using LaneB = LaneOperand<ShapeB, C::kBKContiguous, kColumns, kLanesN>;

  __device__ __forceinline__ explicit FmaEngine(u32 thread)
      : a(thread / 32 / C::kWaveN * kWarpM, thread % 32 / kLanesN),
        b(thread / 32 % C::kWaveN * kWarpN, thread % 32 % kLanesN) {}

  __device__ __forceinline__ void multiply(u32 a_tile, u32 b_tile) {
#pragma unroll 2
    for (int step = 0; step < C::kTileK / 4; ++step) {
      float x[4][kRows];
      float y[4][kColumns];
      a.load(a_tile, step, x);
      b.load(b_tile, step, y);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) acc[i][j] = fmaf(x[k][i], y[k][j], acc[i][j]);
        }
      }
    }
  }

  __device__ __forceinline__ void put(float* tile) const {
    using Output = TileOutput<C, 0>;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        Output::put(tile, a.row_of(i), b.row_of(j), acc[i][j]);
      }
    }
  }

 private:
  LaneA a;
  LaneB b;
  float acc[kRows][kColumns] = {};
};

template <class C>
using FmaGemm = CpasyncGemm<C, FmaEngine>;

}  // namespace tessera::device
