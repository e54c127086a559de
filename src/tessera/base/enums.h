// Checks of enums that callers pass, perhaps as numbers from another language. A number that is not
// in the enum is refused with a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

// Empty when `number` is 0 to `last`; else "<field> must be a number from 0 to 7, got 99".
std::string number_reason(std::string_view field, std::int64_t number, std::int64_t last);

// Throws Error{invalid_argument} with that sentence when the value is not in 0 to `last`.
template <class Enum>
void check_enum(std::string_view field, Enum value, Enum last) {
  const auto number = static_cast<std::int64_t>(value);
  const auto most = static_cast<std::int64_t>(last);
  if (number >= 0 && number <= most) return;
  throw Error(ErrorCode::invalid_argument, number_reason(field, number, most));
}

// The row for a value, in a table that has one row for each value in enum order.
template <class Table, class Enum>
auto& row_of_enum(Table& table, std::string_view field, Enum value) {
  check_enum(field, value, static_cast<Enum>(table.size() - 1));
  return table[static_cast<std::size_t>(value)];
}

}  // namespace tessera
