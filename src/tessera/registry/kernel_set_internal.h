// Wildcards over a family's kernels, and what is said when they match none.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"

namespace tessera {

// A group of kernels as it was declared.
struct SpecGroup {
  std::optional<Op> op;
  std::vector<Wish> wishes;
};

// The legal kernels of the group. Throws Error{not_found}, led by `who`, when there are none: with
// the words that the target's row lists of a field where it lists none that is wished for, else
// with the rule that refuses most of the kernels that the wishes leave.
std::vector<KernelSpec> expand(const SpecGroup& group, const Target& target, std::string_view who);

// Sorted by name, each name once.
std::vector<KernelSpec> unique_by_name(std::vector<KernelSpec> specs);

// The set of that name, of whichever family has it. Throws Error{not_found} with the nearest name.
std::vector<KernelSpec> preselected_specs(std::string_view set, const Target& target);

}  // namespace tessera
