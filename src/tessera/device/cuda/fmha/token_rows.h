// Rows of tokens in device memory, of any strides and alignment, and how the threads of a block
// read them.
#pragma once

#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

// The elements of one head, a row for each token. What lies behind the last row and behind the end
// of a row reads as zeros.
template <class T, int kWarps>
struct TokenRows {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  using Run = Neighbours<T, kVector>;

  const T* data;
  i64 token_stride, element_stride;
  i64 rows;
  int hdim;

  // Calls put(row, element, run) for all runs of kRows rows of up to kHdim elements. The lanes of a
  // warp take runs of a row where its elements are neighbours in memory, and runs of different rows
  // where they are not: then tokens may be.
  template <int kRows, int kHdim, class Put>
  __device__ __forceinline__ void bring(int lane, int warp, Put put) const {
    constexpr int kRuns = (kHdim + kVector - 1) / kVector;
    constexpr int kLanes = kRuns > 16 ? 32 : kRuns > 8 ? 16 : kRuns > 4 ? 8 : kRuns > 2 ? 4 : 2;
    constexpr int kTogether = 32 / kLanes;  // rows of a warp
    const bool along = element_stride == 1;
    const bool aligned = along && reinterpret_cast<u64>(data) % 16 == 0 &&
                         token_stride * static_cast<i64>(sizeof(T)) % 16 == 0;
    const int first = along ? lane % kLanes : warp;
    const int step = along ? kLanes : kWarps;
#pragma unroll 1
    for (int row = along ? warp * kTogether + lane / kLanes : lane; row < kRows;
         row += along ? kWarps * kTogether : 32) {
#pragma unroll 1
      for (int element = first * kVector; element < hdim; element += step * kVector) {
        put(row, element, load(aligned, row, element));
      }
    }
  }

 private:
  __device__ __forceinline__ Run load(bool aligned, int row, int element) const {
    const int left = row < rows ? hdim - element : 0;
    const T* const p = data + row * token_stride + element * element_stride;
    if (aligned && left >= kVector) return load_constants<kVector>(p, true, kVector);
    Run run = {};
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < left) run.x[i] = p[i * element_stride];
    }
    return run;
  }
};

}  // namespace tessera::device
