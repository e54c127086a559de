// Writing the sources of a kernel set into a folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/registry/registry.h"

namespace tessera {

struct GenerateResult {
  std::size_t written = 0;
  std::vector<std::string> errors;  // one sentence per kernel that failed
};

// One source per kernel, the headers they include under include/, and index.json with name, file,
// hash and spec of each. Byte-identical every time and independent of `jobs`. `progress` is called
// once per kernel, from one thread at a time. Throws Error{io_error} when the folder is unusable.
GenerateResult generate(const KernelSet& set, const Target& target,
                        const std::filesystem::path& folder, int jobs,
                        const std::function<void(std::size_t done, std::size_t total,
                                                 const std::string& name)>& progress = {});

}  // namespace tessera
