#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/rule_counts.h"
#include "tessera/registry/kernel_set_internal.h"

namespace tessera {
namespace {

// The rule that refuses most kernels is counted over this many kernels at most.
constexpr std::size_t kMostCombinations = 10'000;

// "gemm dtype=fp32,bf16 tile=128x*x64"
std::string text_of(Op op, const KernelFilter& wishes) {
  std::string text(to_string(op));
  for (const KernelFilter::Wanted& wanted : wishes.wanted()) text += " " + to_string(wanted);
  return text;
}

template <class Values>
std::vector<std::string> words_of(const Values& values) {
  std::vector<std::string> words;
  for (const auto& value : values) words.emplace_back(to_string(value));
  return words;
}

std::vector<std::string> listed_dtypes(const AlgorithmSpace& space, const KernelFilter&) {
  std::vector<std::string> words;
  for (const auto& [dtype, shapes] : space.warp_tiles) words.emplace_back(to_string(dtype));
  return words;
}

// Over the data types that pass the wishes.
std::vector<std::string> listed_warp_tiles(const AlgorithmSpace& space,
                                           const KernelFilter& wishes) {
  std::vector<std::string> words;
  for (const auto& [dtype, shapes] : space.warp_tiles) {
    if (!wishes.accepts_word("dtype", to_string(dtype))) continue;
    for (const std::string& word : words_of(shapes)) {
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
  }
  return words;
}

// The words of a field that the target's row lists.
struct ListedField {
  std::string_view name;
  std::vector<std::string> (*words)(const AlgorithmSpace&, const KernelFilter&);
};
constexpr std::array kListedFields = {
    ListedField{"dtype", listed_dtypes},
    ListedField{"pipeline",
                [](const AlgorithmSpace& s, const KernelFilter&) { return words_of(s.pipelines); }},
    ListedField{"tile",
                [](const AlgorithmSpace& s, const KernelFilter&) { return words_of(s.tiles); }},
    ListedField{"wave",
                [](const AlgorithmSpace& s, const KernelFilter&) { return words_of(s.waves); }},
    ListedField{"warp_tile", listed_warp_tiles},
    ListedField{"scheduler", [](const AlgorithmSpace& s,
                                const KernelFilter&) { return words_of(s.schedulers); }},
};

// A sentence about the wish that matches none of the words that the target's row lists; empty when
// every wish matches one.
std::string unlisted(const KernelFilter& wishes, const AlgorithmSpace& space) {
  for (const ListedField& field : kListedFields) {
    const std::vector<std::string> words = field.words(space, wishes);
    const auto passes = [&](const std::string& word) {
      return wishes.accepts_word(field.name, word);
    };
    if (words.empty() || std::any_of(words.begin(), words.end(), passes)) continue;
    const auto& wanted = wishes.wanted();
    const auto found = std::find_if(wanted.begin(), wanted.end(),
                                    [&](const auto& each) { return each.field == field.name; });
    return fmt::format("{} matches none of {}", to_string(*found), join(words, ", "));
  }
  return {};
}

// The rule that refuses most of the kernels, and the first kernel that it refuses.
std::string most_frequent_refusal(const std::vector<KernelSpec>& specs, const Target& target) {
  std::vector<std::string> reasons;
  for (const KernelSpec& spec : specs) {
    reasons.push_back(family_of(spec).is_legal(spec, target).reason);
  }
  const std::vector<std::string_view> views(reasons.begin(), reasons.end());
  const std::size_t example = count_by_rule(views).front().example;
  return fmt::format("for one, {}: {}", name_of(specs[example]), reasons[example]);
}

// The last field without whose wishes there would be kernels, and how many there would be.
std::string better_without(const SpecGroup& group, const KernelFilter& wishes,
                           const Target& target) {
  const auto& all = wishes.wanted();
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    const KernelFilter::Wanted& wanted = *each;
    std::vector<Wish> others = group.wishes;
    std::erase_if(others, [&](const Wish& wish) { return wish.field == wanted.field; });
    const std::size_t count = family_of(*group.op).enumerate(target, others).size();
    if (count > 0) return fmt::format("without {} there are {}", to_string(wanted), count);
  }
  return "not even without one of these";
}

[[noreturn]] void refuse_empty(const SpecGroup& group, const Target& target, std::string_view who) {
  const Family& family = family_of(*group.op);
  const KernelFilter wishes(family, group.wishes);
  const auto specs = family.combinations(target, group.wishes, kMostCombinations);
  if (specs.empty()) {
    const std::string missing = unlisted(wishes, target.spaces.at(*group.op));
    if (!missing.empty()) {
      throw Error(ErrorCode::not_found,
                  fmt::format("{}: on target '{}', {}", who, target.name, missing));
    }
  }
  throw Error(ErrorCode::not_found,
              fmt::format("{}: no kernel of target '{}' is legal with {}; {}", who, target.name,
                          text_of(*group.op, wishes),
                          specs.empty() ? better_without(group, wishes, target)
                                        : most_frequent_refusal(specs, target)));
}

}  // namespace

std::vector<KernelSpec> expand(const SpecGroup& group, const Target& target, std::string_view who) {
  std::vector<KernelSpec> specs = family_of(*group.op).enumerate(target, group.wishes);
  if (specs.empty()) refuse_empty(group, target, who);
  return specs;
}

const Family& family_of_set(std::string_view set) {
  std::vector<std::string> all;
  for (const Family* family : all_families()) {
    const std::vector<std::string> names = family->preselected_names();
    if (std::find(names.begin(), names.end(), set) != names.end()) return *family;
    all.insert(all.end(), names.begin(), names.end());
  }
  throw Error(ErrorCode::not_found, fmt::format("unknown kernel set '{}'{} (known: {})", set,
                                                did_you_mean(set, all), join(all, ", ")));
}

}  // namespace tessera
