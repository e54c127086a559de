// Contractions as equations: "bqhd,bkhd->bhqk".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/spec/gemm_problem.h"

#pragma GCC visibility push(default)
namespace tessera {

// A tensor as it lies in memory, dimension by dimension as the equation names them. Without
// strides it has no gaps, and its last dimension is contiguous.
struct EinsumTensor {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides = {};  // in elements
};

struct Einsum {
  // The letters of A, of B and of out, each of them once in an operand. A letter of A and B that
  // out lacks is summed over.
  std::string equation;
  EinsumTensor a, b;
  // The strides of out, and of C and the D tensors, which have out's dimensions; empty: of out no
  // gaps, of the others as out.
  std::vector<std::int64_t> out, c;
  std::array<std::vector<std::int64_t>, kMaxD> d = {};
  // Types, alpha, beta, epilogue, merge_a and merge_b; its sizes, strides and layout do not matter.
  GemmProblem like;
};

// The problem of an equation. Neighbouring dimensions become one where their strides allow it in
// every operand. Where matrices are left, this is a plain product with batches, as if no equation
// had been given; otherwise the problem has dims, in the order and layout that copy the fewest
// bytes. Throws Error{invalid_argument} where letters, sizes and strides do not fit.
GemmProblem einsum_problem(const Einsum& einsum);

// Reads "einsum bqhd,bkhd->bhqk sizes=b:2,q:128,h:8,d:64,k:128 dtype=bf16", where further words are
// fields of a GEMM problem, and strides_a=..., strides_b=, strides_out=, strides_c= and strides_d0=
// to strides_d3= are the strides of the operands' letters. Throws Error{parse_error}, and what
// einsum_problem() throws.
GemmProblem parse_einsum(std::string_view line);

}  // namespace tessera
#pragma GCC visibility pop
