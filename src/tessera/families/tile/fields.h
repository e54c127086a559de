// Which fields of an algorithm a pipeline gives a meaning to.
#pragma once

#include <string>

#include "tessera/spec/kernel_spec.h"

namespace tessera::tile {

// Whether every field that means nothing to the pipeline is at its default.
bool unused_at_default(const Algorithm& algorithm);

// The first field that is not: "scheduler must be standard with packab, got pingpong"; else empty.
std::string unused_field(const Algorithm& algorithm);

}  // namespace tessera::tile
