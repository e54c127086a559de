// How deep a JSON text from outside may nest.
#pragma once

#include <string_view>

namespace tessera {

// Throws Error{parse_error} where lists and objects of a JSON text nest so deep that functions
// which call themselves for each level could run out of stack.
void check_json_depth(std::string_view text, std::string_view what);

}  // namespace tessera
