// The rules of pointers, the same for every operation.
#pragma once

#include "tessera/families/family.h"

namespace tessera {

// Throws Error{invalid_argument} for a pointer that is null or misaligned, and for an output that
// overlaps another operand where the family does not allow it. Never reads what a pointer points
// to, because that may lie in a device's memory.
void validate_operands(const Family& family, const Problem& problem, const Operands& operands);
// The same for the tensors of the problem, where the caller has them.
void validate_operands(const Family& family, const Tensors& tensors, const Operands& operands);

}  // namespace tessera
