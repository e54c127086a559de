// The checks that every backend makes before it runs a launch.
#pragma once

#include <cstddef>
#include <string>

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

// Throws Error{internal} for a step that runs an entry which the kernel does not have.
void check_entry(const std::string& kernel, std::size_t entry, std::size_t entries);

// Whether the caller brings a workspace; its size is then the caller's too.
inline bool brings_workspace(const LaunchOptions& options) {
  return options.workspace != nullptr || options.workspace_bytes > 0;
}
// Throws Error{invalid_argument} for a caller's workspace that is null, too small or misaligned.
void check_workspace(const std::string& kernel, std::size_t wanted, std::size_t alignment,
                     const LaunchOptions& options);

}  // namespace tessera::runtime
