// The folders that generated files go into.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/files.h"

namespace tessera {

// Makes a folder and those above it. Throws Error{io_error} whose sentence `who` begins.
inline void make_folder(const fs::path& folder, std::string_view who) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (fs::is_directory(folder, error)) return;
  throw Error(ErrorCode::io_error,
              fmt::format("{}: cannot make the folder '{}': {}", who, folder.string(),
                          error ? error.message() : "something else is in the way"));
}

}  // namespace tessera
