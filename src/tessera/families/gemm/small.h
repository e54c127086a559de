// Kernels for short calls: the pipeline `small`. Its shapes follow from the code in
// src/tessera/device/cpu/, so they are listed here and not in the targets' rows.
#pragma once

#include <vector>

#include "tessera/device/cpu/small_sizes.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// What a kernel does with B, by its shapes.
using device::SmallKind;
SmallKind small_kind(const Algorithm& algorithm, const Target& target);
// Whether words of B are kept in a panel for the rows that follow.
inline bool keeps_panel(const Algorithm& a) { return a.tile.m > a.warp_tile.m; }

// The elements of a word if memory holds words of this type as they are multiplied; otherwise 0.
int words_in_memory(DType dtype);

// The kernels of a signature without their waves, in name order.
const std::vector<Algorithm>& small_shapes(const GemmSignature& signature, const Target& target);

// In small_estimate.cc. The problem's strides must be filled in.
Estimate estimate_small(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                        int threads);

}  // namespace tessera::gemm
