// The table of kernels over a range, for `tessera explain`.
#pragma once

#include "tessera/commands/console.h"
#include "tessera/tools.hpp"

namespace tessera::commands {

// Prints the parts of the range: from which value to which, the kernel, its predicted times at both
// ends, and why it was chosen at the first value.
int explain_range(const RangedProblem& ranged, const Target& target, const ChooseOptions& options,
                  const Console& console);

}  // namespace tessera::commands
