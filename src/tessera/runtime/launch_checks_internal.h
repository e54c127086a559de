// The checks that every backend makes before it runs a launch.
#pragma once

#include <cstddef>
#include <string>

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

// Throws Error{internal}: a step runs an entry which the kernel does not have.
[[noreturn]] void refuse_entry(const std::string& kernel, std::size_t entry, std::size_t entries);

// Throws Error{invalid_argument} for a caller's workspace that is null, too small or misaligned.
void check_workspace(const std::string& kernel, std::size_t wanted, std::size_t alignment,
                     const LaunchOptions& options);

}  // namespace tessera::runtime
