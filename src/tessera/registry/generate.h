// Writing the sources of a kernel set into a folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/families/instances.h"
#include "tessera/registry/registry.h"

namespace tessera {

struct GenerateResult {
  std::size_t written = 0;
  std::vector<std::string> errors;  // one sentence per kernel that failed
};

// Writes one source for each kernel, the headers that the sources include (under include/), and
// index.json with the name, file, hash and spec of each kernel. The files are byte-identical every
// time, whatever `jobs` is. `progress` is called once for each kernel, by one thread at a time.
// Throws Error{io_error} when the folder cannot be written.
GenerateResult generate(const KernelSet& set, const Target& target,
                        const std::filesystem::path& folder, int jobs,
                        const std::function<void(std::size_t done, std::size_t total,
                                                 const std::string& name)>& progress = {});

// The same for instances of another library's templates: one header for each kernel under the
// library's name for it, the files that register them, and index.json, whose kernels also have
// "instance", that name. A kernel whose instance has the name of another one's is an error.
GenerateResult generate_instances(
    const InstanceSource& source, const KernelSet& set, const Target& target,
    const std::filesystem::path& folder, int jobs,
    const std::function<void(std::size_t done, std::size_t total, const std::string& name)>&
        progress = {});

}  // namespace tessera
