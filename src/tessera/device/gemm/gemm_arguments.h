// The arguments that GEMM kernels of every backend take. Plain C layout; a change here raises the
// family's ABI number (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// Strides count elements.
struct GemmArguments {
  i64 m, n, k, batch;
  const void* a;
  const void* b;  // packed when the kernel is a preshuffle kernel
  const void* c;  // null when beta is 0
  const void* d[4];
  void* out;
  i64 ld_a, ld_b, ld_c, ld_out, ld_d[4];
  i64 batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_out, batch_stride_d[4];
  float alpha, beta, clamp_lo, clamp_hi;
  // Not 0: a, b, c, d and out are arrays of `batch` pointers to the batches' matrices, and batch
  // strides are not used. The arrays of a, b and c exist even when their matrices are not read.
  int pointer_arrays;
};

// The sizes of the output, by the names that the code for stores uses for every operation.
constexpr i64 rows_of(const GemmArguments& g) { return g.m; }
constexpr i64 columns_of(const GemmArguments& g) { return g.n; }

}  // namespace tessera::device
