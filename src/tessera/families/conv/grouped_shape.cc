// What a grouped kernel's name and a problem's channels say: the shape of a block, its products,
// and how many registers a thread takes.
#include <algorithm>

#include "tessera/families/conv/grouped_internal.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv {

GroupedShape grouped_shape(ConvDirection direction, const Algorithm& a) {
  GroupedShape s{};
  s.by_weight = direction == ConvDirection::backward_weight;
  s.by_data = direction == ConvDirection::backward_data;
  s.results = a.tile.m, s.columns = a.tile.n, s.channels = a.tile.k;
  s.products = a.warp_tile.k;
  s.rows = a.warp_tile.m, s.warp_columns = a.warp_tile.n;
  s.warps = a.wave.m * a.wave.n;
  s.sharers = s.by_weight ? a.wave.n : 1;
  s.stages = a.stages;
  s.joined = !s.by_weight && s.stages == 1 && s.columns == 8 && s.products % 2 == 0 ? 2 : 1;
  return s;
}

// Groups of 1, 2 or 4 channels fill a chunk of 8 together.
GroupedProduct grouped_product(const ConvProblem& p) {
  const bool by_data = p.direction == ConvDirection::backward_data;
  const std::int64_t depth = (by_data ? p.k : p.c) / p.g, columns = (by_data ? p.c : p.k) / p.g;
  const bool shares = depth == 1 || depth == 2 || depth == 4;
  const std::int64_t together = shares ? std::min<std::int64_t>(8 / depth, p.g) : 1;
  return {together, tile::ceil_div(p.g, together), depth * together, columns * together};
}

// As many as compile without spills.
int grouped_registers(const ConvSignature& s, const Algorithm& a) {
  const int sums = grouped_shape(s.direction, a).sums();
  const int spatial = s.ndim == 3 ? 8 : 0;
  if (s.direction == ConvDirection::backward_weight) return sums + spatial + 72;
  // By mma with less than this the compiler keeps addresses in memory, with more it only keeps
  // numbers that the arguments hold anyway.
  if (a.stages == 1) return sums + spatial + num_ops(s.epilogue) * 12 + (sums > 16 ? 56 : 60);
  const int more = s.direction == ConvDirection::backward_data ? 8 : 0;
  const int others = (sums > 32 ? 80 : 74) + more;
  return sums * 8 / 5 + spatial + num_ops(s.epilogue) * 12 + others;
}

}  // namespace tessera::conv
