#include "tessera/families/rule_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

// A shape such as 64x128 is three numbers: an x between digits does not make them a word.
std::string rule_of(std::string_view reason) {
  std::string rule;
  bool in_word = false;
  for (std::size_t i = 0; i < reason.size(); ++i) {
    const char c = reason[i];
    const bool after_digit = i > 0 && is_digit(reason[i - 1]);
    if (!is_digit(c)) {
      in_word = is_letter(c) && !(c == 'x' && after_digit && !in_word);
      rule += c;
    } else if (in_word) {
      rule += c;
    } else if (!after_digit) {
      rule += '#';
    }
  }
  return rule;
}

std::vector<RefusalCount> count_by_rule(std::span<const std::string_view> reasons) {
  std::map<std::string, RefusalCount> counts;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const auto [found, is_new] = counts.try_emplace(rule_of(reasons[i]), RefusalCount{0, i});
    ++found->second.count;
  }
  std::vector<RefusalCount> rows;
  for (const auto& [rule, count] : counts) rows.push_back(count);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const RefusalCount& a, const RefusalCount& b) { return a.count > b.count; });
  return rows;
}

void refuse_problem_set(std::string_view name, std::span<const std::string_view> known) {
  const std::vector<std::string> names(known.begin(), known.end());
  throw Error(ErrorCode::not_found, fmt::format("unknown problem set '{}'{} (known: {})", name,
                                                did_you_mean(name, names), join(names, ", ")));
}

}  // namespace tessera
