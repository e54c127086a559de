// What this processor and its operating system can execute.
#pragma once

#include <string>
#include <string_view>

#include "tessera/spec/target.h"

namespace tessera::runtime {

// Whether the machine has a feature, in the spelling of Target::features; false for unknown words.
bool cpu_has(std::string_view feature);

// A sentence about the first compile flag of a CPU row that may make the compiler use what this
// processor lacks; empty when there is none. Features that the row lists are not asked for again.
std::string why_flags_not_here(const Target& target);

}  // namespace tessera::runtime
