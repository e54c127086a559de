// Gates, rows by index and outputs of 8 bits: what kernels of every backend are told of them. See
// GemmGate, GemmIndexing and GemmProblem::quant in src/tessera/spec/gemm_problem.h.
#pragma once

#include "tessera/device/gemm/groups.h"

namespace tessera::device {

// The values of GemmGate and of GemmIndexing.
enum class Gate : int { none, silu_mul, gelu_mul, gelu_tanh_mul };
enum class Indexing : int { none, gathered, scattered };

// Plain C layout; a change here raises the family's ABI number. With indexing, the steps of
// operands that lie along the rows that the index names are 0.
struct OutputArguments {
  GroupArguments groups;  // grouping none: of the batches of `gemm`
  const int* row_index;   // one for each row of the product
  i64 index_room;         // a number that is not below it names no row
  const float* out_scale;
  float* out_scales;
  // Elements from one row of out to the next, from one block, from one matrix; and, where the rows
  // of groups follow each other, the step of GroupArguments.
  i64 row_of_scales, block_of_scales, matrix_of_scales, step_of_scales;
};

// One product of a launch: a batch, or a part of a group.
struct OutputPart {
  GemmArguments gemm;
  i64 first;      // its first row, counted as row_index is
  float* scales;  // of its first row of out
};

// The row that the index names for a row of the product, or -1. `x` are the arguments of any kernel
// that has such an index.
template <class Arguments>
constexpr i64 named_row(const Arguments& x, i64 row) {
  const i64 named = x.row_index[row];
  return named < x.index_room ? (named < 0 ? -1 : named) : -1;
}

}  // namespace tessera::device
