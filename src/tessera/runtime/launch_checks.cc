#include <fmt/format.h>

#include <cstdint>

#include "tessera/base/error.h"
#include "tessera/runtime/launch_checks_internal.h"

namespace tessera::runtime {

void refuse_entry(const std::string& kernel, std::size_t entry, std::size_t entries) {
  throw Error(ErrorCode::internal, fmt::format("{}: a step runs entry {}, the kernel has entries "
                                               "0 to {}",
                                               kernel, entry, entries - 1));
}

void check_workspace(const std::string& kernel, std::size_t wanted, std::size_t alignment,
                     const LaunchOptions& options) {
  if (options.workspace == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the workspace must not be null when workspace_bytes is {}; set it "
                            "to 0 to use the library's own",
                            kernel, options.workspace_bytes));
  }
  if (options.workspace_bytes < wanted) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the workspace must hold at least {} bytes for this launch, got {}",
                            kernel, wanted, options.workspace_bytes));
  }
  const auto excess = reinterpret_cast<std::uintptr_t>(options.workspace) % alignment;
  if (excess == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: the workspace must begin at a multiple of {} bytes, got an address "
                          "{} past one",
                          kernel, alignment, excess));
}

}  // namespace tessera::runtime
