// What the reference of a product shares with that of its gated or quantised outputs.
#pragma once

#include <vector>

#include "tessera/device/gemm/scales.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

using Indices = std::vector<std::int64_t>;

struct Plan {
  Indices batches, rows, columns;
};

// What a reference keeps: the value and the error of every (batch, row, column), columns innermost.
struct Elements {
  Plan plan;
  std::vector<Bounded> wanted;
};

// Which elements are checked, within the limits.
Plan plan_of(const GemmProblem& p, const ReferenceLimits& limits);

// The elements of the product after its epilogue. Rows are the product's; none is of no row.
Elements product_elements(const GemmProblem& p, const GemmOperands& o,
                          const device::ScaledArguments& scales, const ReferenceLimits& limits,
                          const Plan& plan);

}  // namespace tessera::gemm
