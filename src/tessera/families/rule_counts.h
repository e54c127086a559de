// Refusals counted by their rule, and those that all families say alike.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The rule that a refusal quotes: its sentence with '#' in place of each number, because the
// numbers differ from case to case. A word with digits in it, such as bf16, is no number.
std::string rule_of(std::string_view reason);

struct RefusalCount {
  std::size_t count = 0;
  std::size_t example = 0;  // index of the first reason that quotes the rule
};

// One row per rule, the most frequent first.
std::vector<RefusalCount> count_by_rule(std::span<const std::string_view> reasons);

// Throws Error{not_found} with the nearest of the names.
[[noreturn]] void refuse_problem_set(std::string_view name,
                                     std::span<const std::string_view> known);

}  // namespace tessera
