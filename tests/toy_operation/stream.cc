// A way: kernels whose threads share out parts of few long rows.
#include <fmt/format.h>

#include "tessera/families/tile/ceil_div.h"
#include "toy_operation/toy.h"

namespace tessera::toy {
namespace {

constexpr int kLeastColumns = 256;
constexpr std::int64_t kMostRows = 16;

bool is_stream_tile(const Shape3& tile) {
  return tile.m == 1 && tile.n >= kLeastColumns && tile.k == 1;
}

constexpr tile::Rule<Case> kStreamRules[] = {
    {[](const Case& c) { return is_stream_tile(c.algorithm.tile); },
     [](const Case& c) {
       return fmt::format("tile must be 1 x n x 1, n at least {}, got {}", kLeastColumns,
                          to_string(c.algorithm.tile));
     }},
};

Verdict stream_serves(const KernelSpec&, const NormProblem& p, const Target&) {
  if (p.rows <= kMostRows) return {};
  return {fmt::format("stream serves at most {} rows, got {}", kMostRows, p.rows)};
}

std::vector<Algorithm> stream_algorithms(const Target& target) {
  return algorithms_with(target, Pipeline::stream, is_stream_tile);
}

Source emit_stream(const KernelSpec& spec, const Target& target) {
  return source_of(spec, target, "toy_stream.h", "ToyStream",
                   fmt::format("  static constexpr int kTileN = {};\n", spec.algorithm.tile.n));
}

Estimate estimate_stream(const KernelSpec& spec, const NormProblem& p, const Target& target,
                         int threads) {
  const std::int64_t parts = p.rows * tile::ceil_div(p.columns, spec.algorithm.tile.n);
  return estimate_of(p, target, threads, parts);
}

}  // namespace

const Way kStream = {.backend = "cpu",
                     .pipeline = Pipeline::stream,
                     .rules = kStreamRules,
                     .serves = stream_serves,
                     .algorithms = stream_algorithms,
                     .emit = emit_stream,
                     .bind = bind,
                     .estimate = estimate_stream};

}  // namespace tessera::toy
