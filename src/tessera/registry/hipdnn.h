// Kernels as a folder of data for AMD's hipDNN, which makes an engine of it. Experimental: nobody
// has loaded such a folder, and no kernel in it was timed.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/registry/registry.h"

namespace tessera {

struct HipdnnResult {
  std::size_t written = 0;
  std::vector<std::string> refused;  // a sentence for each kernel that the format cannot express
  std::vector<std::string> errors;   // a sentence for each kernel that was not built
};

// The descriptors of the kernels of one operation for one target: the texts of JSON files by their
// names. `file_of` names the code object of a kernel, relative to the folder. The texts depend on
// the kernels alone. Throws Error{internal} for a kernel that is refused.
std::map<std::string, std::string> describe_for_hipdnn(
    const std::vector<KernelSpec>& specs, const Target& target,
    const std::function<std::string(const KernelSpec&)>& file_of);

// Builds the kernels of a set that hipDNN can be told of, and writes their code objects, their
// descriptors and a README. Folders of several targets and operations may be one: what they share
// has equal bytes. Throws Error{invalid_argument} for a target that is no GPU of AMD,
// Error{unsupported} with the first reason when every kernel is refused, what a missing compiler
// throws, and Error{io_error}.
HipdnnResult export_for_hipdnn(const KernelSet& set, const Target& target,
                               const std::filesystem::path& folder, int jobs,
                               const std::function<void(std::size_t done, std::size_t total,
                                                        const std::string& name)>& progress = {});

}  // namespace tessera
