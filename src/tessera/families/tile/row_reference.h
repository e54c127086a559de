// References of operations that compute each row of their outputs from the inputs alone.
#pragma once

#include <functional>

#include "tessera/families/family.h"
#include "tessera/families/tile/epilogue.h"

namespace tessera::tile {

// Writes what a row of every output should be; outputs in the order of the tensors.
using ComputeRow = std::function<void(std::int64_t row, Bounded* const* outputs)>;

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
