// What became of a measurement, and what it is filed under.
#pragma once

#include <string>
#include <string_view>

#include "tessera/spec/target.h"

namespace tessera::measure {

// failed: it could not be built, or its machine had no room. refused: it was not run at all.
enum class Outcome { ok, wrong, crashed, timeout, failed, refused };
std::string_view to_string(Outcome outcome);

// Throws Error{parse_error} for an unknown word.
Outcome parse_outcome(std::string_view text);

// What measurements of this target are filed under: the processor's model, or the GPU's; the
// target's own name where there is no such GPU.
std::string device_name(const Target& target, int device = 0);

// The number of threads that they are filed under: GPU kernels have none, which counts as 1.
int filed_threads(const Target& target, int threads);

}  // namespace tessera::measure
