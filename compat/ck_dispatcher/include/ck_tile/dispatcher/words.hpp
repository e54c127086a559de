// The words of enumerations: a table for each, in the order of the enumerators.
#pragma once

#include <cstddef>
#include <string>

namespace ck_tile::dispatcher::detail {

template <class Enumeration, std::size_t count>
const char* word_of(const char* const (&words)[count], Enumeration value) {
  const auto place = static_cast<std::size_t>(value);
  return place < count ? words[place] : "unknown";
}

// The first that has the word; `other` where none has it.
template <class Enumeration, std::size_t count>
Enumeration from_word(const char* const (&words)[count], const std::string& word,
                      Enumeration other) {
  for (std::size_t i = 0; i < count; ++i) {
    if (word == words[i]) return static_cast<Enumeration>(i);
  }
  return other;
}

}  // namespace ck_tile::dispatcher::detail
