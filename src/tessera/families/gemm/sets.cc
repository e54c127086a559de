#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/text.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

// sets/<target>.json holds one object: set name -> list of kernel names.
nlohmann::json sets_of(std::string_view target) {
  for (const EmbeddedFile& file : gemm_sets()) {
    const std::string_view name = file.path.substr(file.path.rfind('/') + 1);
    if (name.substr(0, name.rfind('.')) == target) return nlohmann::json::parse(file.content);
  }
  return nlohmann::json::object();
}

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

// All kernels of a shipped row's essential sets. They are read once: every choice asks for them.
const std::set<std::string>& essentials_of(const std::string& target) {
  static Forever<Mutex> mutex;
  static Forever<std::map<std::string, std::set<std::string>>> remembered;
  const std::lock_guard lock(*mutex);
  const auto [found, is_new] = remembered->try_emplace(target);
  if (!is_new) return found->second;
  const nlohmann::json sets = sets_of(target);
  for (const auto& [name, kernels] : sets.items()) {
    if (!name.ends_with("_essential")) continue;
    for (const auto& kernel : kernels) found->second.insert(kernel.get<std::string>());
  }
  return found->second;
}

}  // namespace

bool is_essential(const KernelSpec& spec, const Target& target) {
  const std::set<std::string>& names = essentials_of(target.name);
  return !names.empty() && names.contains(name_of(spec));
}

std::vector<std::string> preselected_names() {
  std::set<std::string> names;
  for (const EmbeddedFile& file : gemm_sets()) {
    for (std::string& key : keys_of(nlohmann::json::parse(file.content))) {
      names.insert(std::move(key));
    }
  }
  return {names.begin(), names.end()};
}

std::vector<KernelSpec> preselected(std::string_view set, const Target& target) {
  const nlohmann::json sets = sets_of(target.name);
  const auto found = sets.find(std::string(set));
  if (found == sets.end()) {
    throw Error(ErrorCode::not_found,
                fmt::format("gemm: {} has no preselected set '{}'{}", target.name, set,
                            did_you_mean(set, keys_of(sets))));
  }
  std::vector<std::string> names = found->get<std::vector<std::string>>();
  std::sort(names.begin(), names.end());
  // A row of the user's machine may lack instructions that the shipped row has.
  std::vector<KernelSpec> specs;
  for (const std::string& name : names) {
    KernelSpec spec = parse_name(name);
    if (is_legal(spec, target)) specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace tessera::gemm
