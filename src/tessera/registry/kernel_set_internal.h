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
  SpecFilter filter;
  std::optional<Epilogue> epilogue;  // of every kernel of the group

  // '*' and the empty string leave everything in. Throw Error{parse_error} with the nearest word.
  void add_dtype(std::string_view value);
  void add_layout(std::string_view value);
  void add_variant(std::string_view value);
  void set_pipeline(std::string_view value);
};

// Checks "128x*x64"; throws Error{invalid_argument} naming the field.
std::string shape_pattern(std::string_view field, std::string_view value);

// The legal kernels of the group. Throws Error{not_found}, led by `who`, with the values that exist
// when a value matches none, else with the rule that forbids the first combination.
std::vector<KernelSpec> expand(const SpecGroup& group, const Target& target, std::string_view who);

// Sorted by name, each name once.
std::vector<KernelSpec> unique_by_name(std::vector<KernelSpec> specs);

// The set of that name, of whichever family has it. Throws Error{not_found} with the nearest name.
std::vector<KernelSpec> preselected_specs(std::string_view set, const Target& target);

}  // namespace tessera
