// Instructions of grouped kernels that other kernels have no use for.
#pragma once

#include "tessera/device/cuda/fragments.h"

namespace tessera::device {

// As mma(), over half the depth: 8 elements. A has 16 rows, the first 8 in `a`.
template <class T>
__device__ __forceinline__ void mma_half(float (&c)[4], u32 a, u32 low, u32 b) {
  if constexpr (kSame<T, bf16>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a), "r"(low), "r"(b));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a), "r"(low), "r"(b));
  }
}

// Whether the predicate holds for any lane of the warp.
__device__ __forceinline__ bool any_of_warp(bool predicate) {
  return __any_sync(0xffffffffU, predicate) != 0;
}
__device__ __forceinline__ u32 from_neighbour(u32 word) {
  return __shfl_xor_sync(0xffffffffU, word, 1);
}

}  // namespace tessera::device
