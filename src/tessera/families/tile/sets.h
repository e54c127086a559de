// The preselected kernels of every family: families/<op>/sets/<target>.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"

namespace tessera::tile {

// The kernels of a target's set that are legal on the target, in name order. Throws
// Error{not_found} with the nearest name.
std::vector<KernelSpec> preselected(Op op, std::string_view set, const Target& target,
                                    Verdict (*is_legal)(const KernelSpec&, const Target&));

// The names of the sets of all shipped targets.
std::vector<std::string> preselected_names(Op op);

// Whether one of the target's sets named *_essential holds the kernel.
bool is_essential(Op op, const KernelSpec& spec, const Target& target);

}  // namespace tessera::tile
