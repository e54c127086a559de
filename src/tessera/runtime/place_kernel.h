// Giving a loaded kernel to its device ahead of the first launch.
#pragma once

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

// Gives a GPU's kernel to the options' device, which the first launch there would do. A CPU's
// kernel is in place when it is loaded. Throws what that launch would.
void place_kernel(const LoadedKernel& kernel, const LaunchOptions& options);

}  // namespace tessera::runtime
