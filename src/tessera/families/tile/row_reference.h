// References of operations that compute each row of their outputs from the inputs alone.
#pragma once

#include <functional>

#include "tessera/families/family.h"
#include "tessera/families/tile/epilogue.h"

namespace tessera::tile {

// Writes what a row of every output should be; outputs in the order of the tensors.
using ComputeRow = std::function<void(std::int64_t row, Bounded* const* outputs)>;

// The same of one output, counted in the order of the tensors, where outputs have rows of their
// own.
using ComputeOutputRow =
    std::function<void(std::size_t output, std::int64_t row, Bounded* elements)>;
// What the given rows of each output should be.
Reference reference_of_rows(const Family& family, const Problem& problem,
                            std::vector<std::vector<std::int64_t>> rows,
                            const ReferenceLimits& limits, const ComputeOutputRow& compute);
// One row from each of equal parts of an output, as many as the limits afford, the first and the
// last among them. cost: of one element, in multiplications.
std::vector<std::int64_t> spread_rows(const Tensor& tensor, const ReferenceLimits& limits,
                                      double cost);

// Of large problems, rows spread over all of them. cost: of one element, in multiplications.
Reference row_reference(const Family& family, const Problem& problem, const ReferenceLimits& limits,
                        double cost, const ComputeRow& compute);
Mismatch compare_rows(const Family& family, const Problem& problem, const Operands& operands,
                      const Reference& reference);
// Throws Error{invalid_argument} when an operand that is read is an output.
void require_unchanged_inputs(const Family& family, const Problem& problem,
                              const Operands& operands);
// The same, and then reference and comparison.
Mismatch verify_rows(const Family& family, const Problem& problem, const Operands& operands);

}  // namespace tessera::tile
