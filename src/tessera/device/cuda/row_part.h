// Rows whose elements lie in the registers of several warps. threadIdx.x counts the threads of a
// row, threadIdx.y the rows of a block.
#pragma once

#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

// kVectors runs of kVector neighbours for each of kThreads threads: the columns from `begin` on, of
// which the first `width` count.
template <int kThreads, int kVectors, int kVector>
struct RowPart {
  static constexpr int kWidth = kThreads * kVectors * kVector;
  float x[kVectors][kVector];
  i64 begin;
  int width;

  __device__ __forceinline__ void place(i64 first, i64 end) {
    begin = first;
    width = end - first < kWidth ? static_cast<int>(end - first) : kWidth;
  }
  __device__ __forceinline__ bool is_whole() const { return width == kWidth; }
  // Where run v of this thread begins, from `begin` on.
  __device__ __forceinline__ static int offset(int v) {
    return v * (kThreads * kVector) + static_cast<int>(threadIdx.x) * kVector;
  }
  // How many columns count from there on; none if it is not above zero.
  __device__ __forceinline__ int left(int v) const { return width - offset(v); }

  // Loads runs of a row: all of them are asked for before the first one is used.
  template <class T>
  __device__ __forceinline__ void load(const T* row, bool aligned,
                                       Neighbours<T, kVector> (&runs)[kVectors]) const {
    if (aligned && is_whole()) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        runs[v] = load_run<kVector>(row + offset(v), true, kVector);
    } else {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        runs[v] = load_run<kVector>(row + offset(v), aligned, left(v));
    }
  }
  // Calls visit(x, whether it counts).
  template <class Visit>
  __device__ __forceinline__ void each(Visit visit) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) visit(x[v][i], i < left(v));
    }
  }
  // Four sums side by side hide the latency of an addition.
  template <class Term>
  __device__ __forceinline__ float sum(Term term) const {
    float sums[4] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[i % 4] += term(x[v][i]);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  __device__ __forceinline__ int count() const {
    int all = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) all += max(0, min(left(v), kVector));
    return all;
  }
};

// What merged(a, b) makes of the values of all threads of a row; every thread gets it. Called once
// in a kernel with a meet(), in which the warps of the row wait for each other. Value: floats only,
// exchanged(value, distance) is another lane's value.
template <int kRows, int kWarps, class Value, class Exchange, class Merge, class Meet>
__device__ __forceinline__ Value merge_over_row(Value mine, Exchange exchanged, Merge merged,
                                                Meet meet) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    mine = merged(mine, exchanged(mine, distance));
  }
  if constexpr (kWarps > 1) {
    __shared__ Value warps[kRows][kWarps];
    const int row = static_cast<int>(threadIdx.y);
    if (threadIdx.x % 32 == 0) warps[row][threadIdx.x / 32] = mine;
    meet();
    mine = warps[row][0];
    for (int w = 1; w < kWarps; ++w) mine = merged(mine, warps[row][w]);
  }
  return mine;
}
template <int kRows, int kWarps, class Value, class Exchange, class Merge>
__device__ __forceinline__ Value merge_over_row(Value mine, Exchange exchanged, Merge merged) {
  return merge_over_row<kRows, kWarps>(mine, exchanged, merged, [] { __syncthreads(); });
}

// The warps of this thread's row meet, after all of the block met for the last time. A row has a
// barrier of its own, of which a block has 16, by a constant number: unknown ones take up all.
template <int kRows, int kWarps, int kRow = 0>
__device__ __forceinline__ void meet_row() {
  static_assert(kRows <= 16 && kWarps > 1, "one warp needs no barrier, and 16 rows have one each");
  if constexpr (kRow + 1 < kRows) {
    if (threadIdx.y != kRow) return meet_row<kRows, kWarps, kRow + 1>();
  }
  asm volatile("bar.sync %0, %1;" : : "n"(kRow), "n"(kWarps * 32) : "memory");
}

}  // namespace tessera::device
