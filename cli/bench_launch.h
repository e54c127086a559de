// What a launch through a plan of the C ABI costs beyond the launch of the bound kernel.
#pragma once

#include <string>

namespace tessera::cli {

struct LaunchCost {
  double plan = 0;    // seconds of tsr_launch(), with the kernel
  double kernel = 0;  // seconds of LoadedKernel::launch() on the same arguments, bound before
};

// Times the first problem of bench/usual/launch.txt on one thread: medians of batches of calls,
// which take turns. On a GPU the calls enqueue only.
LaunchCost time_launch(const std::string& target);

}  // namespace tessera::cli
