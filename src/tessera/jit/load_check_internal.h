// Whether kernels' libraries can be loaded, asked of a worker process, so that a bad one harms
// nobody.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::jit {

struct LibraryToLoad {
  std::string name;  // of the kernel, and of its symbol
  std::filesystem::path file;
};

// For each library why it cannot be loaded, or an empty string; nothing where nobody can tell:
// there is no worker program, or the disk is mounted so that nothing on it may be run.
std::vector<std::optional<std::string>> load_damages(const std::filesystem::path& worker,
                                                     std::span<const LibraryToLoad> libraries);
std::optional<std::string> load_damage(const std::filesystem::path& worker,
                                       const LibraryToLoad& library);

}  // namespace tessera::jit
