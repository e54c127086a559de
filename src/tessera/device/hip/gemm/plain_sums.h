// What kernels by matrix instructions have in place of scales of blocks (mfma_scaled_gemm.h).
#pragma once

#include "tessera/device/hip/matrix.h"

namespace tessera::device {

struct PlainSums {
  template <class First, class Second, int kSide>
  using Op = MatrixOp<First, Second, kSide>;

  template <class C, class Matrix, int kBlocksM, int kBlocksN>
  struct Scales {
    static constexpr bool kAny = false;
    template <class Lane, class Sum>
    static __device__ __forceinline__ Sum step(int part, const Lane& first, const Lane& second,
                                               const Sum& sum, int) {
      return Matrix::step(part, first, second, sum);
    }
    template <class Sums>
    static __device__ __forceinline__ void finish(Sums&) {}
  };
};

}  // namespace tessera::device
