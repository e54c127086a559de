// Wildcards over a family's kernels, and the error when they match none.
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

// The legal kernels of the group. Throws Error{not_found}, whose text begins with `who`, when there
// are none. If the target's row lists no word that a wish matches, the error names the words that
// the row lists; otherwise it names the rule that refuses most of the kernels that pass the wishes.
std::vector<KernelSpec> expand(const SpecGroup& group, const Target& target, std::string_view who);

// The specs sorted by name, each name once.
std::vector<KernelSpec> unique_by_name(std::vector<KernelSpec> specs);

// The family that has the set of this name. Throws Error{not_found} with the nearest name.
const Family& family_of_set(std::string_view set);

}  // namespace tessera
