// How a team of threads shares a GEMM.
#pragma once

#include "tessera/device/cpu/abi.h"

namespace tessera::device {

struct Range {
  i64 begin, end;
};

inline i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
inline i64 blocks_of(i64 size, i64 block) { return (size + block - 1) / block; }

// Part `index` of `parts` of [0, size), cut at multiples of `block`.
inline Range part(i64 size, i64 block, i64 parts, i64 index) {
  const i64 total = blocks_of(size, block);
  const i64 begin = total * index / parts * block;
  const i64 end = total * (index + 1) / parts * block;
  return {smaller(begin, size), smaller(end, size)};
}

struct Grid {
  int batch, m, n;
};

// The first element of a batch's matrix.
template <class T>
inline const T* matrix_of(const GemmArguments& g, const void* operand, i64 batch_stride,
                          i64 batch) {
  if (g.pointer_arrays != 0) return static_cast<const T* const*>(operand)[batch];
  return static_cast<const T*>(operand) + batch * batch_stride;
}

// The arguments of one batch, whose operands are matrices. A preshuffled B stays as it is.
template <class C>
inline GemmArguments one_batch(const GemmArguments& all, i64 batch) {
  using Out = typename C::Out;
  GemmArguments g = all;
  g.batch = 1;
  g.pointer_arrays = 0;
  g.a = matrix_of<typename C::A>(all, all.a, all.batch_stride_a, batch);
  if (!C::kPreshuffled) g.b = matrix_of<typename C::B>(all, all.b, all.batch_stride_b, batch);
  g.c = matrix_of<Out>(all, all.c, all.batch_stride_c, batch);
  for (int i = 0; i < C::kNumD; ++i) {
    g.d[i] = matrix_of<typename C::D>(all, all.d[i], all.batch_stride_d[i], batch);
  }
  g.out = const_cast<Out*>(matrix_of<Out>(all, all.out, all.batch_stride_out, batch));
  return g;
}

// The split of `threads` over batch, M and N with the least work for the busiest thread: its
// multiplications plus the packing of its rows and columns, which costs about as much as `lanes`
// multiplications an element. limit_m and limit_n: 0 for no limit.
inline Grid best_grid(const GemmArguments& g, int threads, int limit_m, int limit_n, i64 block_m,
                      i64 block_n, int lanes) {
  Grid best{1, 1, 1};
  double least = -1;
  const bool any_free = limit_m == 0 || limit_n == 0;
  const i64 batches = any_free ? smaller(threads, g.batch) : 1;
  for (int b = 1; b <= batches; ++b) {
    const i64 most_m = smaller(limit_m ? limit_m : threads, threads / b);
    for (int m = 1; m <= most_m; ++m) {
      const int free_n = threads / (b * m);
      const int n = static_cast<int>(smaller(limit_n ? limit_n : free_n, free_n));
      const double rows = static_cast<double>(blocks_of(blocks_of(g.m, block_m), m) * block_m);
      const double columns = static_cast<double>(blocks_of(blocks_of(g.n, block_n), n) * block_n);
      const double work =
          static_cast<double>(blocks_of(g.batch, b)) * (rows * columns + lanes * (rows + columns));
      if (least < 0 || work < least) {
        least = work;
        best = {b, m, n};
      }
    }
  }
  return best;
}

}  // namespace tessera::device
