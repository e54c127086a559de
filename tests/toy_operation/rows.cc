// A way: kernels whose threads take whole rows. They serve every problem.
#include <fmt/format.h>

#include "tessera/families/tile/ceil_div.h"
#include "toy_operation/toy.h"

namespace tessera::toy {
namespace {

bool is_rows_tile(const Shape3& tile) { return tile.m >= 1 && tile.n == 1 && tile.k == 1; }

constexpr tile::Rule<Case> kRowsRules[] = {
    {[](const Case& c) { return is_rows_tile(c.algorithm.tile); },
     [](const Case& c) {
       return fmt::format("tile must be m x 1 x 1, got {}", to_string(c.algorithm.tile));
     }},
};

std::vector<Algorithm> rows_algorithms(const Target& target) {
  return algorithms_with(target, Pipeline::rows, is_rows_tile);
}

Source emit_rows(const KernelSpec& spec, const Target& target) {
  return source_of(spec, target, "toy_rows.h", "ToyRows",
                   fmt::format("  static constexpr int kTileM = {};\n", spec.algorithm.tile.m));
}

Estimate estimate_rows(const KernelSpec& spec, const NormProblem& p, const Target& target,
                       int threads) {
  return estimate_of(p, target, threads, tile::ceil_div(p.rows, spec.algorithm.tile.m));
}

}  // namespace

const Way kRows = {.backend = "cpu",
                   .pipeline = Pipeline::rows,
                   .rules = kRowsRules,
                   .algorithms = rows_algorithms,
                   .emit = emit_rows,
                   .bind = bind,
                   .estimate = estimate_rows};

}  // namespace tessera::toy
