// Which fields of an algorithm each pipeline uses.
#pragma once

#include <string>

#include "tessera/spec/kernel_spec.h"

namespace tessera::tile {

// Whether every field that the pipeline does not use is at its default.
bool unused_at_default(const Algorithm& algorithm);

// A sentence about the first such field that is not at its default: "scheduler must be standard
// with packab, got pingpong". Empty when there is none.
std::string unused_field(const Algorithm& algorithm);

}  // namespace tessera::tile
