// What learned models see of families that have no features of their own making.
#pragma once

#include <span>

#include "tessera/families/family.h"

namespace tessera::tile {

// Throws Error{invalid_argument} unless there is room for `features` numbers of each kernel, and
// there are as many uses or none.
void check_features(Op op, std::size_t features, std::size_t specs, std::size_t room,
                    std::size_t wanted);

// How many of the candidates want the feature; `wanted` is as for Family::extract.
std::size_t wanted_count(Op op, std::span<const FeatureUse> wanted, std::size_t feature,
                         std::size_t specs);

// The sizes that charts have axes for, least traffic, the algorithm, and the estimate.
std::span<const Feature> usual_features();
void extract_usual(const Problem& problem, const Target& target, int threads,
                   std::span<const KernelSpec> specs, std::span<double> columns,
                   std::span<const FeatureUse> wanted);

}  // namespace tessera::tile
