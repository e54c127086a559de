// The list of pipelines.
#include <array>

#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/space.h"

namespace tessera::conv {

std::span<const Way> ways() {
  static const std::array kAll = {kDirectCpu,    kDirectCuda,    kPackedCpu,
                                  kDepthwiseCpu, kDepthwiseCuda, kTmaws,
                                  kCpasync,      kPointwiseCpu,  kPointwiseCuda};
  return kAll;
}

namespace {

bool is_of(const Algorithm& a, const Way& way) {
  return way.pointwise == a.pointwise && (a.pointwise || way.pipeline == a.pipeline);
}

}  // namespace

std::vector<Algorithm> blocked_algorithms(const Target& target, Pipeline pipeline) {
  const AlgorithmSpace& space = tile::space_of(Op::conv, target);
  std::vector<Shape3> warp_tiles;
  for (const auto& [dtype, shapes] : space.warp_tiles) {
    warp_tiles.insert(warp_tiles.end(), shapes.begin(), shapes.end());
  }
  std::vector<Algorithm> all;
  tile::for_each_shape(space, space.tiles, warp_tiles, [&](const Algorithm& a) {
    if (a.pipeline == pipeline) all.push_back(a);
  });
  return all;
}

std::string serves_all(const KernelSpec&, const ConvProblem&, const Target&) { return {}; }

const Way* find_way(std::string_view backend, const Algorithm& algorithm) {
  for (const Way& way : ways()) {
    if (way.backend == backend && is_of(algorithm, way)) return &way;
  }
  return nullptr;
}

// A launch is bound without the target's row. Only CPUs leave the number of threads to the caller.
const Way* find_way(const Algorithm& algorithm) {
  const bool on_cpu = algorithm.wave.m == 0;
  for (const Way& way : ways()) {
    if (!is_of(algorithm, way)) continue;
    if (way.pointwise || (way.backend == "cpu") == on_cpu) return &way;
  }
  return nullptr;
}

}  // namespace tessera::conv
