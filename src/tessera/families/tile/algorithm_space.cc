#include "tessera/families/tile/algorithm_space.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/base/forever.h"

namespace tessera::tile {

const AlgorithmSpace& space_of(Op op, const Target& target) {
  const auto found = target.spaces.find(op);
  if (found != target.spaces.end()) return found->second;
  throw Error(ErrorCode::unsupported,
              fmt::format("{0}: the row of target {1} has no space for {0}; add spaces.{0} to it",
                          to_string(op), target.name));
}

const std::vector<Shape3>& warp_tiles_for(const AlgorithmSpace& space, DType operand) {
  static const Forever<std::vector<Shape3>> kNone;
  auto found = space.warp_tiles.find(operand);
  if (found == space.warp_tiles.end() && operand == DType::tf32) {
    found = space.warp_tiles.find(DType::fp32);
  }
  return found == space.warp_tiles.end() ? *kNone : found->second;
}

std::vector<Algorithm> shapes_with(const AlgorithmSpace& space, Pipeline pipeline,
                                   const std::vector<Shape3>& warp_tiles) {
  std::vector<Algorithm> all;
  for_each_shape(space, space.tiles, warp_tiles, [&](const Algorithm& a) {
    if (a.pipeline == pipeline) all.push_back(a);
  });
  return all;
}

void sort_by_name(std::vector<KernelSpec>& specs) {
  std::vector<std::pair<std::string, std::size_t>> names(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) names[i] = {name_of(specs[i]), i};
  std::sort(names.begin(), names.end());
  std::vector<KernelSpec> sorted;
  sorted.reserve(specs.size());
  for (const auto& name : names) sorted.push_back(std::move(specs[name.second]));
  specs = std::move(sorted);
}

}  // namespace tessera::tile
