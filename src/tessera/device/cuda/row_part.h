// Rows whose elements lie in the registers of several warps. threadIdx.x counts the threads of a
// row, threadIdx.y the rows of a block.
#pragma once

#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

// kVectors runs of kVector neighbours for each of kThreads threads: the columns from `begin` on, of
// which those before `end` count.
template <int kThreads, int kVectors, int kVector>
struct RowPart {
  float x[kVectors][kVector];
  i64 begin, end;

  // Where run v of this thread begins.
  __device__ __forceinline__ i64 column(int v) const {
    return begin + v * (kThreads * kVector) + static_cast<int>(threadIdx.x) * kVector;
  }
  // Calls visit(x, whether it counts).
  template <class Visit>
  __device__ __forceinline__ void each(Visit visit) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) visit(x[v][i], column(v) + i < end);
    }
  }
  template <class Term>
  __device__ __forceinline__ float sum(Term term) {
    float all = 0;
    each([&](float value, bool) { all += term(value); });
    return all;
  }
  __device__ __forceinline__ int count() {
    int all = 0;
    each([&](float, bool counts) { all += counts ? 1 : 0; });
    return all;
  }
};

// What merged(a, b) makes of the values of all threads of a row; every thread gets it. Called once
// in a kernel. Value: floats only, exchanged(value, distance) is that of another lane.
template <int kRows, int kWarps, class Value, class Exchange, class Merge>
__device__ __forceinline__ Value merge_over_row(Value mine, Exchange exchanged, Merge merged) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    mine = merged(mine, exchanged(mine, distance));
  }
  if constexpr (kWarps > 1) {
    __shared__ Value warps[kRows][kWarps];
    const int row = static_cast<int>(threadIdx.y);
    if (threadIdx.x % 32 == 0) warps[row][threadIdx.x / 32] = mine;
    __syncthreads();
    mine = warps[row][0];
    for (int w = 1; w < kWarps; ++w) mine = merged(mine, warps[row][w]);
  }
  return mine;
}

}  // namespace tessera::device
