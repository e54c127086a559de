// The preselected kernels of every family: families/<op>/sets/<backend>.json.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"

namespace tessera::tile {

// The kernels of a target's set that are legal on the target, in name order. Throws
// Error{not_found} with the nearest name.
std::vector<KernelSpec> preselected(Op op, std::string_view set, const Target& target,
                                    Verdict (*is_legal)(const KernelSpec&, const Target&));

// The sentence that the target has no set of the name, with the nearest of those that it has.
std::string no_set(Op op, std::string_view set, const Target& target,
                   const std::vector<std::string>& known);

// The names of the sets of all shipped targets.
std::vector<std::string> preselected_names(Op op);

// The kernels of the target's sets named *_essential. They stay as long as the process runs.
const std::set<std::string>& essential_names(Op op, const Target& target);
// Whether one of these sets holds the kernel.
bool is_essential(Op op, const KernelSpec& spec, const Target& target);

}  // namespace tessera::tile
