// The list of pipelines.
#include <array>

#include "tessera/families/conv/conv.h"

namespace tessera::conv {

std::span<const Way> ways() {
  static const std::array kAll = {kDirectCpu, kDirectCuda, kPackedCpu, kTmaws};
  return kAll;
}

std::string serves_all(const KernelSpec&, const ConvProblem&) { return {}; }

const Way* find_way(std::string_view backend, Pipeline pipeline) {
  for (const Way& way : ways()) {
    if (way.backend == backend && way.pipeline == pipeline) return &way;
  }
  return nullptr;
}

const Way* find_way(Pipeline pipeline) {
  for (const Way& way : ways()) {
    if (way.pipeline == pipeline) return &way;
  }
  return nullptr;
}

}  // namespace tessera::conv
