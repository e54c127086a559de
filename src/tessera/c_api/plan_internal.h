// What launches of plans and of plans over a range share.
#pragma once

#include <cstddef>

#include "tessera/c_api/handles_internal.h"

namespace tessera::c_api {

// The operands at addresses in the order of the plan's tensors, and by name in any order.
Operands operands_of(const tsr_plan_t& plan, const void* const* given, std::size_t count);
Operands operands_of(const tsr_plan_t& plan, const tsr_operand_t* given, std::size_t count);
// The first operand that a call of the C ABI must give and does not; null where it gives all.
const Tensor* missing_of(const tsr_plan_t& plan, const Operands& operands);
// Throws what missing_of() finds, and what the launch throws.
void launch(const tsr_plan_t& plan, const Operands& operands, const tsr_launch_options_t* given);

}  // namespace tessera::c_api
