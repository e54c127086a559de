// Loadable files that no disk holds.
#pragma once

#include <string>
#include <string_view>

#include "tessera/jit/cache.h"

namespace tessera::jit {

// The binary as an anonymous file in memory; where the system has none, or this process has taken
// half of its descriptors, a file in the temporary folder that goes away with the artifact. Throws
// Error{io_error}.
Artifact memory_artifact(const std::string& name, const std::string& key, std::string_view binary);

// TMPDIR, or /tmp.
std::filesystem::path temporary_folder();

}  // namespace tessera::jit
