// Products of rows in shared memory on the ordinary cores of a GPU.
#pragma once

#include "tessera/device/cuda/fmha/token_rows.h"

namespace tessera::device {

struct alignas(16) FourFloats {
  float x[4];
};

// x[r] = <row r, mine>, of `count` elements, in runs of 16 bytes of `mine`. A lane of a warp has a
// row of its own in `mine`, all lanes the same `rows`, which are `row_bytes` apart.
template <class T, int kRows>
__device__ __forceinline__ void multiply_rows(const float* rows, int row_bytes, const T* mine,
                                              int count, float (&x)[kRows]) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  using Run = Neighbours<T, kVector>;
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = 0;
#pragma unroll 1
  for (int element = 0; element < count; element += kVector) {
    const Run run = *reinterpret_cast<const Run*>(mine + element);
#pragma unroll
    for (int part = 0; part < kVector; part += 4) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const FourFloats y =
            *reinterpret_cast<const FourFloats*>(rows + r * (row_bytes / 4) + element + part);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[r] += y.x[i] * to_float(run.x[part + i]);
      }
    }
  }
}

}  // namespace tessera::device
