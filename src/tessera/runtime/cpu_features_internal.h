// What this processor and its operating system can execute.
#pragma once

#include <string_view>

namespace tessera::runtime {

// Whether the machine has a feature, in the spelling of Target::features; false for unknown words.
bool cpu_has(std::string_view feature);

}  // namespace tessera::runtime
