// Kernels whose tiles fit a problem's rows, and stream-K.
#pragma once

#include <span>
#include <vector>

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

// The sides of tiles that so many rows can be cut into with little left over at the edge; none for
// many rows. Of all problems together, and of one.
std::vector<int> all_fitted_sides();
std::vector<int> fitted_sides(std::int64_t rows);

// Adds the algorithms with these sides, with A and B swapped, and those of stream-K without, legal
// or not. Nothing where the target has no tmaws kernels.
void add_fitted(const GemmSignature& signature, const Target& target, std::span<const int> sides,
                std::vector<Algorithm>& all);

}  // namespace tessera::gemm
