// Where this user's kernel cache is, for callers that must not make it.
#pragma once

#include <filesystem>

namespace tessera::jit {

// The folder that the environment names; empty when it names none. It may not exist yet.
std::filesystem::path cache_folder_here();

}  // namespace tessera::jit
