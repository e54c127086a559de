// The bound of every time that a caller gives.
#pragma once

#include <string_view>

namespace tessera {

// A day. What shall take longer can be repeated, and no call is to have no end.
inline constexpr double kMostCallSeconds = 86'400;

// Throws Error{invalid_argument} unless the value is a number from 0 to kMostCallSeconds.
void check_seconds(std::string_view field, double value);

}  // namespace tessera
