// The CK Tile Dispatcher's arch_specs.json as rows of targets.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/target.h"

namespace tessera {

// The architectures that a text describes. Throws Error{parse_error} with the place.
std::vector<std::string> cktile_archs(std::string_view text, const std::string& source);

struct ImportedTarget {
  Target target;
  std::vector<std::string> taken;  // a sentence for each part of the text that is in the row
  std::vector<std::string> left;   // and for each that is not, with the reason
};

// The row of an architecture. The text says wave size, LDS, and the waves and warp tiles of CK
// Tile's kernels of the operation, which replace the row's list for it; everything else
// comes from the row that `base` returns, and the row's sources say so. Throws Error{parse_error}
// with the place, and Error{not_found} for an architecture that the text does not describe.
ImportedTarget import_cktile_arch(std::string_view text, const std::string& source,
                                  const std::string& arch, Op op,
                                  const std::function<Target()>& base);

}  // namespace tessera
