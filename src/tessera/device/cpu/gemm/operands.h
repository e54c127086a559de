// The operands of a GEMM (types and sizes of elements, the matrices of one batch), and how a team
// of threads shares the problem.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/gemm/gemm_arguments.h"

namespace tessera::device {

// The template arguments of a driver: everything that its code is compiled for.
template <class TypeA, class TypeB, class TypeMath, bool kAContiguous, bool kBContiguous>
struct OperandTypes {
  using A = TypeA;
  using B = TypeB;
  using Math = TypeMath;
  static constexpr bool kAKContiguous = kAContiguous;
  static constexpr bool kBKContiguous = kBContiguous;
};

// The bytes of an element of each matrix. C has the output's type.
struct ElementSizes {
  int a, b, d, out;
  int num_d;
  bool preshuffled;  // B is already packed
};

template <class C>
constexpr ElementSizes sizes_of() {
  return {sizeof(typename C::A),
          sizeof(typename C::B),
          sizeof(typename C::D),
          sizeof(typename C::Out),
          C::kNumD,
          C::kPreshuffled};
}

// The first element of a batch's matrix.
inline const void* matrix_of(const GemmArguments& g, const void* operand, i64 batch_stride,
                             int size, i64 batch) {
  if (g.pointer_arrays != 0) return static_cast<const void* const*>(operand)[batch];
  return static_cast<const char*>(operand) + batch * batch_stride * size;
}

// The arguments of one batch, with its matrices as operands.
inline GemmArguments one_batch(const GemmArguments& all, const ElementSizes& sizes, i64 batch) {
  GemmArguments g = all;
  g.batch = 1;
  g.pointer_arrays = 0;
  g.a = matrix_of(all, all.a, all.batch_stride_a, sizes.a, batch);
  if (!sizes.preshuffled) g.b = matrix_of(all, all.b, all.batch_stride_b, sizes.b, batch);
  g.c = matrix_of(all, all.c, all.batch_stride_c, sizes.out, batch);
  for (int i = 0; i < sizes.num_d; ++i) {
    g.d[i] = matrix_of(all, all.d[i], all.batch_stride_d[i], sizes.d, batch);
  }
  g.out = const_cast<void*>(matrix_of(all, all.out, all.batch_stride_out, sizes.out, batch));
  return g;
}

// The part of a product that a thread computes, and the place of its raw sums. Without `sums` the
// thread finishes the result into the output.
struct ProductJob {
  Range m, n, k;
  u32* sums;  // null, or raw sums with ld words between rows; row and column as in the output
  i64 ld;
};

struct Grid {
  int batch, m, n;
};

// The split of `threads` over batch, M and N with the least work for the busiest thread. Its work
// is its multiplications and the packing of its rows and columns; packing an element costs about as
// much as `lanes` multiplications. limit_m and limit_n may be 0 for no limit.
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
