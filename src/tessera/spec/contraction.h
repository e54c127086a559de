// What is left of a contraction, or of operands with several sources, once its operands are
// matrices: a plain product. Pure functions of problems.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/spec/gemm_problem.h"

namespace tessera {

// The operands that have dimensions, in the order of their pointers.
enum class Arranged : std::uint8_t { a, b, c, d0, d1, d2, d3, out };
inline constexpr std::size_t kArrangedOperands = 8;
inline constexpr std::size_t kMostArrangedRank = 6;  // of an operand

// An operand's dimensions without those of one element, innermost first.
struct ArrangedView {
  std::size_t rank = 0;
  std::array<std::int64_t, kMostDims> sizes{};
  std::array<std::int64_t, kMostDims> strides{};  // of the first source
  std::array<std::int64_t, kMostDims> dense{};    // of the matrix
  std::int64_t elements = 1;
};

// What the product reads or writes in the place of an operand.
struct ArrangedMatrix {
  bool is_used = false;
  bool is_copy = false;  // in the workspace; otherwise where the operand lies
  std::int64_t ld = 0, batch_stride = 0;
  std::int64_t offset = 0, bytes = 0;  // of the copy
};

struct DenseProduct {
  GemmProblem problem;  // plain, with strides
  std::array<ArrangedMatrix, kArrangedOperands> matrices{};
  std::int64_t bytes = 0;  // of all copies
  const ArrangedMatrix& of(Arranged operand) const {
    return matrices[static_cast<std::size_t>(operand)];
  }
};

// The problem's dimensions; of one without, those that its sizes and strides stand for. Strides
// must be filled in, here and below.
GemmDims dims_of(const GemmProblem& p);
DenseProduct dense_product(const GemmProblem& p);
// What a job goes through: without dimensions that all batches share where it is a copy.
ArrangedView view_of(const GemmProblem& p, const DenseProduct& dense, Arranged operand);
// All of the operand's dimensions.
ArrangedView whole_view_of(const GemmProblem& p, const DenseProduct& dense, Arranged operand);
std::int64_t sources_of(const GemmProblem& p, Arranged operand);
DType type_of(const GemmProblem& p, Arranged operand);

// The strides of a further source of A or B, as view_of() orders them.
std::array<std::int64_t, kMostDims> source_strides(const GemmProblem& p, const ArrangedView& view,
                                                   Arranged operand, std::size_t source);

}  // namespace tessera
