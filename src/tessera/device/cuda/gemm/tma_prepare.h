// The entry _prepare, a kernel that runs before a tmaws kernel. It copies operands that the copy
// engine cannot read to rows at multiples of 16 bytes, transposed to lie along k when wgmma needs
// that. Batches that an array of pointers names lie one after the other in the copy. It also sets
// sums to zero that will be added atomically.
#pragma once

#include "tessera/device/cuda/copy_lines.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"

namespace tessera::device {

template <class C>
struct TmaPrepare {
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 4;  // with more, the compiler spills registers
  using A = typename C::A;
  using B = typename C::B;

  static __device__ __forceinline__ void run(const CudaGemmArguments& arguments) {
    const GemmArguments& g = arguments.gemm;
    const bool in_array = g.pointer_arrays != 0;
    if (arguments.a_copy.offset != 0) {
      constexpr bool kAlongK = C::kAKContiguous && !C::kTransposeA;
      copy<A, C::kTransposeA>(
          arguments, arguments.a_copy,
          {g.a, in_array, kAlongK ? g.k : g.m, kAlongK ? g.m : g.k, g.ld_a,
           g.batch_stride_a == 0 ? 1 : g.batch, g.batch_stride_a, nullptr, 0, 0});
    }
    if (arguments.b_copy.offset != 0) {
      constexpr bool kAlongK = C::kBKContiguous && !C::kTransposeB;
      copy<B, C::kTransposeB>(
          arguments, arguments.b_copy,
          {g.b, in_array, kAlongK ? g.k : g.n, kAlongK ? g.n : g.k, g.ld_b,
           g.batch_stride_b == 0 ? 1 : g.batch, g.batch_stride_b, nullptr, 0, 0});
    }
    if constexpr (C::kAtomicSplit) clear_sums(arguments);
  }

  template <class T, bool kTranspose>
  static __device__ __forceinline__ void copy(const CudaGemmArguments& arguments,
                                              const CudaCopy& copy, Lines<T> lines) {
    lines.to = static_cast<char*>(arguments.workspace) + copy.offset;
    lines.to_ld = copy.ld;
    lines.to_batch_stride = copy.batch_stride;
    if constexpr (kTranspose) {
      TransposeLines<T>::run(lines);
    } else {
      CopyLines<T>::run(lines);
    }
  }

  static __device__ __forceinline__ void clear_sums(const CudaGemmArguments& arguments) {
    constexpr u32 kZeros[4] = {};
    char* sums = static_cast<char*>(arguments.workspace) + arguments.partial_sums;
    const i64 step = i64{gridDim.x} * blockDim.x * 16;
    i64 at = (i64{blockIdx.x} * blockDim.x + threadIdx.x) * 16;
    for (; at < arguments.partial_bytes; at += step) store_global(sums + at, kZeros);
  }
};

}  // namespace tessera::device
