// The release that the library belongs to.
#pragma once

#include <string_view>

#pragma GCC visibility push(default)
namespace tessera {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace tessera
#pragma GCC visibility pop
