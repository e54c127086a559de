#include "tessera/families/tile/sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/text.h"

namespace tessera::tile {
namespace {

// The path of a target's sets among the embedded files. With "" for the target, the folder of the
// operation's sets.
std::string path_of(Op op, std::string_view target) {
  const std::string file = target.empty() ? "" : fmt::format("{}.json", target);
  return fmt::format("{}/sets/{}", to_string(op), file);
}

// A file holds one object: set name -> list of kernel names.
nlohmann::json sets_of(const std::string& path) {
  for (const EmbeddedFile& file : kernel_sets()) {
    if (file.path == path) return nlohmann::json::parse(file.content);
  }
  return nlohmann::json::object();
}

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

// All kernels of a file's essential sets. They are read once, because every choice asks for them.
const std::set<std::string>& essentials_of(const std::string& path) {
  static Forever<Mutex> mutex;
  static Forever<std::map<std::string, std::set<std::string>>> remembered;
  const std::lock_guard lock(*mutex);
  const auto [found, is_new] = remembered->try_emplace(path);
  if (!is_new) return found->second;
  const nlohmann::json sets = sets_of(path);
  for (const auto& [name, kernels] : sets.items()) {
    if (!name.ends_with("_essential")) continue;
    for (const auto& kernel : kernels) found->second.insert(kernel.get<std::string>());
  }
  return found->second;
}

}  // namespace

const std::set<std::string>& essential_names(Op op, const Target& target) {
  return essentials_of(path_of(op, target.name));
}

bool is_essential(Op op, const KernelSpec& spec, const Target& target) {
  const std::set<std::string>& names = essential_names(op, target);
  return !names.empty() && names.contains(name_of(spec));
}

std::vector<std::string> preselected_names(Op op) {
  const std::string folder = path_of(op, "");
  std::set<std::string> names;
  for (const EmbeddedFile& file : kernel_sets()) {
    if (!file.path.starts_with(folder)) continue;
    for (std::string& key : keys_of(nlohmann::json::parse(file.content))) {
      names.insert(std::move(key));
    }
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
  const nlohmann::json sets = sets_of(path_of(op, target.name));
  const auto found = sets.find(std::string(set));
  if (found == sets.end()) {
    throw Error(ErrorCode::not_found, no_set(op, set, target, keys_of(sets)));
  }
  std::vector<std::string> names = found->get<std::vector<std::string>>();
  std::sort(names.begin(), names.end());
  // A row of the user's own may lack instructions that the shipped row has.
  std::vector<KernelSpec> specs;
  for (const std::string& name : names) {
    KernelSpec spec = parse_name(name);
    if (is_legal(spec, target)) specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace tessera::tile
