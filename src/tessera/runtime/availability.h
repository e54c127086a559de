// Whether this machine can run a target's kernels.
#pragma once

#include <string>

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

// A sentence that says why this machine cannot build, load and run kernels of the target; empty
// when it can.
std::string why_not_here(const Target& target);

}  // namespace tessera::runtime
