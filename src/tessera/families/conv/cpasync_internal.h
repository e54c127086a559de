// The kernels of src/tessera/device/cuda/conv/gather_conv.h on the host: what a launch of a problem
// looks like, without addresses.
#pragma once

#include "tessera/device/cuda/conv/gather_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/tmaws.h"

namespace tessera::conv {

// Sizes count what a kernel multiplies, with the channels that fill up runs; of residues, the one
// with most pixels.
struct GatherPlan {
  std::int64_t together, products;  // groups in a product, products in all
  bool taps_in_run;
  std::int64_t run, padded_run, lead;
  std::int64_t rows, columns, depth;
  std::int64_t residues;
  std::int64_t tiles_down, tiles_right, tiles;
};
// The problem has its strides.
GatherPlan gather_plan(const ConvProblem& problem, const Shape3& tile);

// What a kernel multiplies, see tile/tmaws.h.
tile::Product gather_product(const ConvSignature& signature);

// Operands without addresses count as aligned.
device::GatherArguments gather_arguments(const ConvProblem& problem, const GatherPlan& plan,
                                         const ConvOperands& operands);

Launch bind_cpasync(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
                    const ConvOperands& operands);

}  // namespace tessera::conv
