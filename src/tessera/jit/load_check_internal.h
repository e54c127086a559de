// Asks a worker process whether kernels' libraries can be loaded, so that a bad library harms only
// the worker.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::jit {

struct LibraryToLoad {
  std::string name;  // the kernel's name, which is also its symbol
  std::filesystem::path file;
};

// For each library, why it cannot be loaded, or an empty string when it can. The value is unset
// when that is unknown: there is no worker program, or the disk is mounted noexec.
std::vector<std::optional<std::string>> load_damages(const std::filesystem::path& worker,
                                                     std::span<const LibraryToLoad> libraries);
std::optional<std::string> load_damage(const std::filesystem::path& worker,
                                       const LibraryToLoad& library);

}  // namespace tessera::jit
