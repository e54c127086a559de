// The packs that come with the library, and those of packages that bring some for it.
#pragma once

#include <filesystem>
#include <vector>

namespace tessera::jit {

// A folder whose files *.pack are among the shipped ones from now on. Thread-safe.
void add_packs(const std::filesystem::path& folder);

// <folder of the library>/tessera/*.pack, <folder of the library>/*.pack and those of the folders
// that were added; sorted in each folder.
std::vector<std::filesystem::path> shipped_packs();

}  // namespace tessera::jit
