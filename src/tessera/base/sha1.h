// SHA-1, for names that other programs make of it. Nothing relies on its strength.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string sha1_hex(std::string_view text);  // 40 digits

}  // namespace tessera
