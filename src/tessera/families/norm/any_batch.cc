// What the bits of a row follow besides its own operands, and which problems stand for any number
// of rows.
#include <fmt/format.h>

#include "tessera/families/norm/norm.h"

namespace tessera::norm {
namespace {

constexpr std::int64_t kUsualRows[] = {64, 1, 4096};
// More rows than slices serve among them.
constexpr std::int64_t kUnusualRows[] = {3, std::int64_t{1} << 20};

}  // namespace

// On a CPU the statistics of chunks of tile_n columns are merged in their order, and those of
// slices. On a GPU a thread adds up what it reads of each tile_n columns, and the threads of a row
// merge their sums. How many rows are under way at a time does not matter.
std::string order_of_sums(const KernelSpec& spec, const Problem& problem, const Target& target) {
  if (is_elementwise(std::get<NormProblem>(problem).kind)) return "no sums";
  const Algorithm& a = spec.algorithm;
  const std::int64_t columns = std::get<NormProblem>(problem).columns;
  if (target.backend == "cpu") {
    const bool is_one = a.slices == 1 && columns <= a.tile.n;
    return fmt::format("chunks of {} in {} slices", is_one ? 0 : a.tile.n, a.slices);
  }
  return fmt::format("1/{} of {} warps by {} columns in {} blocks and {} slices", a.warp_tile.m,
                     a.wave.n, a.tile.n, a.cluster_n, a.slices);
}

AnyBatch any_batch(const Problem& problem) {
  NormProblem p = std::get<NormProblem>(problem);
  if (p.ld_in == columns_of_in(p)) p.ld_in = kPacked;
  for (std::int64_t* ld : {&p.ld_residual, &p.ld_out, &p.ld_sum}) {
    if (*ld == p.columns) *ld = kPacked;
  }
  const auto with = [&](std::int64_t rows) {
    p.rows = rows;
    return p;
  };
  AnyBatch any{problem, {}, {}};
  for (const std::int64_t rows : kUsualRows) any.usual.emplace_back(with(rows));
  for (const std::int64_t rows : kUnusualRows) any.unusual.emplace_back(with(rows));
  return any;
}

}  // namespace tessera::norm
