// What is found on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/commands/console.h"

namespace tessera::commands {

// One line of the doctor's findings.
struct Finding {
  std::string what;
  bool found = false;
  bool needed = false;  // true: nothing can be built without it
  std::string detail;   // what was found, or how to get it
};

// The compilers of kernels, the drivers of GPUs and the GPUs.
std::vector<Finding> find_tools();

// Prints what is found, with the findings of `others` (may be empty) among it. Returns 1 when
// something needed is missing.
int doctor(const Console& console, const std::function<std::vector<Finding>()>& others);

}  // namespace tessera::commands
