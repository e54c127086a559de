#include "tessera/families/tile/sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/text.h"

namespace tessera::tile {
namespace {

// A chosen word for each key of a row.
using Choice = std::vector<std::pair<std::string_view, std::string_view>>;

// Every way to choose a word of each of the row's lists. An empty target stands for all of them.
std::vector<Choice> choices_of(const nlohmann::json& row, std::string_view target) {
  std::vector<Choice> all = {{}};
  for (const auto& list : row.items()) {
    std::vector<Choice> longer;
    for (const std::string_view word : split_words(list.value().get_ref<const std::string&>())) {
      if (list.key() == "target" && !target.empty() && word != target) continue;
      for (const Choice& choice : all) {
        longer.push_back(choice);
        longer.back().emplace_back(list.key(), word);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string set_name(std::string_view pattern, const Choice& choice) {
  std::string text(pattern);
  for (const auto& [key, word] : choice) {
    const std::size_t at = text.find(fmt::format("{{{}}}", key));
    if (at != std::string::npos) text.replace(at, key.size() + 2, word);
  }
  return text;
}

// Within a kernel's name, words such as "backward_data" have no underscore.
std::string kernel_name(std::string_view pattern, const Choice& choice) {
  std::vector<std::string> words;
  words.reserve(choice.size());
  Choice joined;
  for (const auto& [key, word] : choice) {
    std::string& text = words.emplace_back(word);
    if (key != "kernel") std::erase(text, '_');
    joined.emplace_back(key, text);
  }
  return set_name(pattern, joined);
}

// Calls visit(name of a set, make_name) for each kernel of each set of the target in the file;
// make_name() returns the kernel's name. An empty target stands for all of them.
template <class Visit>
void for_each_kernel(const EmbeddedFile& file, std::string_view target, const Visit& visit) {
  constexpr bool kThrows = true;
  constexpr bool kHasComments = true;
  const auto parts = nlohmann::json::parse(file.content, nullptr, kThrows, kHasComments);
  for (const auto& part : parts) {
    const auto& set_pattern = part.at("set").get_ref<const std::string&>();
    const auto& name_pattern = part.at("name").get_ref<const std::string&>();
    for (const auto& row : part.at("rows")) {
      for (const Choice& choice : choices_of(row, target)) {
        visit(set_name(set_pattern, choice), [&] { return kernel_name(name_pattern, choice); });
      }
    }
  }
}

std::vector<const EmbeddedFile*> files_of(Op op) {
  const std::string folder = fmt::format("{}/sets/", to_string(op));
  std::vector<const EmbeddedFile*> files;
  for (const EmbeddedFile& file : kernel_sets()) {
    if (file.path.starts_with(folder)) files.push_back(&file);
  }
  return files;
}

// The names of the kernels in the sets whose names pass, and the names of all of the target's sets.
struct Found {
  std::set<std::string> kernels, sets;
};
template <class Passes>
Found find_kernels(Op op, const Target& target, const Passes& passes) {
  Found found;
  const std::string path = fmt::format("{}/sets/{}.json", to_string(op), target.backend);
  for (const EmbeddedFile& file : kernel_sets()) {
    if (file.path != path) continue;
    for_each_kernel(file, target.name, [&](const std::string& set, const auto& make_name) {
      if (passes(set)) found.kernels.insert(make_name());
      found.sets.insert(set);
    });
  }
  return found;
}

}  // namespace

// They are found once, because every choice asks for them.
const std::set<std::string>& essential_names(Op op, const Target& target) {
  static Forever<Mutex> mutex;
  static Forever<std::map<std::pair<Op, std::string>, std::set<std::string>>> remembered;
  const std::lock_guard lock(*mutex);
  const auto [found, is_new] = remembered->try_emplace({op, target.name});
  if (is_new) {
    const auto is_essential = [](const std::string& set) { return set.ends_with("_essential"); };
    found->second = find_kernels(op, target, is_essential).kernels;
  }
  return found->second;
}

bool is_essential(Op op, const KernelSpec& spec, const Target& target) {
  const std::set<std::string>& names = essential_names(op, target);
  return !names.empty() && names.contains(name_of(spec));
}

std::vector<std::string> preselected_names(Op op) {
  std::set<std::string> names;
  for (const EmbeddedFile* file : files_of(op)) {
    for_each_kernel(*file, "", [&](const std::string& set, const auto&) { names.insert(set); });
  }
  return {names.begin(), names.end()};
}

std::string no_set(Op op, std::string_view set, const Target& target,
                   const std::vector<std::string>& known) {
  return fmt::format("{}: {} has no preselected set '{}'{}", to_string(op), target.name, set,
                     did_you_mean(set, known));
}

std::vector<KernelSpec> preselected(Op op, std::string_view set, const Target& target,
                                    Verdict (*is_legal)(const KernelSpec&, const Target&)) {
  const Found found =
      find_kernels(op, target, [&](const std::string& name) { return name == set; });
  if (found.kernels.empty()) {
    throw Error(ErrorCode::not_found,
                no_set(op, set, target, {found.sets.begin(), found.sets.end()}));
  }
  // A row of the user's own may lack instructions that the shipped row has.
  std::vector<KernelSpec> specs;
  for (const std::string& name : found.kernels) {
    KernelSpec spec = parse_name(name);
    if (is_legal(spec, target)) specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace tessera::tile
