// Loadable files in memory.
#pragma once

#include <string>
#include <string_view>

#include "tessera/jit/cache.h"

namespace tessera::jit {

// The binary as an anonymous file in memory. If the system has no anonymous files, or this process
// uses half of its descriptors, a file in the temporary folder that is removed with the artifact.
// Throws Error{io_error}.
Artifact memory_artifact(const std::string& name, const std::string& key, std::string_view binary);

// TMPDIR, or /tmp.
std::filesystem::path temporary_folder();

}  // namespace tessera::jit
