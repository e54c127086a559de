// The errors of the readers of model files.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

// Throws parse_error: "what: why".
[[noreturn]] inline void refuse_file(std::string_view what, const std::string& why) {
  throw Error(ErrorCode::parse_error, fmt::format("{}: {}", what, why));
}

}  // namespace tessera
