// The rules of pointers, the same for every operation.
#pragma once

#include "tessera/families/family.h"

namespace tessera {

// Memory that a launch writes to besides its outputs.
struct CallerMemory {
  std::string_view name = "the workspace";
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// Throws Error{invalid_argument} for a pointer that is null or misaligned, for an output that
// overlaps another operand where the family does not allow it, and for an operand in the caller's
// workspace. Never reads what a pointer points to, because that may lie in a device's memory.
void validate_operands(const Family& family, const Problem& problem, const Operands& operands,
                       const CallerMemory& workspace = {});
// The same for the tensors of the problem, where the caller has them.
void validate_operands(const Family& family, const Tensors& tensors, const Operands& operands,
                       const CallerMemory& workspace = {});

// The last rule alone. Operands that are null are passed over.
void check_memory_apart(const Family& family, const Tensors& tensors, const Operands& operands,
                        const CallerMemory& memory);

}  // namespace tessera
