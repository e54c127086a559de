// Letters and digits of ASCII. isdigit() and isalnum() ask the host's locale, which may have more.
#pragma once

namespace tessera {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace tessera
