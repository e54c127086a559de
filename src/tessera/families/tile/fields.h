// Which fields of an algorithm each pipeline uses, as a rule of every family.
#pragma once

#include <string>

#include "tessera/families/tile/rules.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera::tile {

// Whether every field that the pipeline does not use is at its default.
bool unused_at_default(const Algorithm& algorithm);

// A sentence about the first such field that is not at its default: "scheduler must be standard
// with packab, got pingpong". Empty when there is none.
std::string unused_field(const Algorithm& algorithm);

inline constexpr AlgorithmRule kUnusedFields = {unused_at_default, unused_field};
// Kernels whose warp tile means nothing.
inline constexpr AlgorithmRule kWarpTileOfOne = {
    [](const Algorithm& a) { return a.warp_tile == Shape3{}; },
    [](const Algorithm& a) { return "warp tile must be 1x1x1, got " + to_string(a.warp_tile); }};

}  // namespace tessera::tile
