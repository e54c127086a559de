#include "tessera/base/python_packages.h"

#include <link.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <system_error>

#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"

namespace tessera {
namespace {

using Folders = std::vector<fs::path>;

struct Told {
  Mutex mutex;
  Folders prefixes;
};
Told& told() {
  static Forever<Told> all;
  return *all;
}

void add_packages(const fs::path& prefix, Folders& packages) {
  Folders pythons;
  for (const char* lib : {"lib", "lib64"}) {
    std::error_code missing;
    for (const fs::directory_entry& entry : fs::directory_iterator(prefix / lib, missing)) {
      const bool is_python = entry.path().filename().string().starts_with("python3");
      if (is_python) pythons.push_back(entry.path());
    }
  }
  std::sort(pythons.begin(), pythons.end(), std::greater<>());
  for (const fs::path& python : pythons) {
    packages.push_back(python / "site-packages");
    packages.push_back(python / "dist-packages");
  }
}

}  // namespace

void add_python_prefix(const fs::path& prefix) {
  const std::lock_guard lock(told().mutex);
  Folders& all = told().prefixes;
  if (std::find(all.begin(), all.end(), prefix) == all.end()) all.push_back(prefix);
}

std::vector<fs::path> python_prefixes() {
  Folders all;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = environment(name); !prefix.empty()) all.emplace_back(prefix);
  }
  {
    const std::lock_guard lock(told().mutex);
    all.insert(all.end(), told().prefixes.begin(), told().prefixes.end());
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    all.push_back(fs::path(home) / ".local");
  }
  for (const char* prefix : {"/usr/local", "/usr"}) all.emplace_back(prefix);
  return all;
}

std::vector<fs::path> python_packages() {
  Folders packages;
  for (const fs::path& prefix : python_prefixes()) add_packages(prefix, packages);
  return packages;
}

std::vector<fs::path> loaded_libraries(const std::string& name) {
  struct Search {
    const std::string& name;
    Folders found;
  };
  Search search = {name, {}};
  const auto visit = [](dl_phdr_info* info, std::size_t, void* data) {
    auto& [wanted, found] = *static_cast<Search*>(data);
    const fs::path file = info->dlpi_name == nullptr ? "" : info->dlpi_name;
    if (file.is_absolute() && file.filename().string().starts_with(wanted)) found.push_back(file);
    return 0;
  };
  dl_iterate_phdr(visit, &search);
  return search.found;
}

}  // namespace tessera
