// Small helpers on text: split, join, and the nearest known word.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Letters and digits of ASCII. isdigit() and isalnum() ask the host's locale, which may have more.
bool is_digit(char c);
bool is_alphanumeric(char c);

std::vector<std::string_view> split(std::string_view text, char separator);
std::vector<std::string_view> split_words(std::string_view text);
std::string join(std::span<const std::string> parts, std::string_view separator);

// The text without a UTF-8 byte order mark, which editors may put in front of it.
std::string_view without_byte_order_mark(std::string_view text);

// The text, cut to `most` bytes: a longer text keeps its beginning and its end, and says how many
// bytes are left out.
std::string shortened(std::string_view text, std::size_t most);

// How many letters must be inserted, removed, replaced or swapped with a neighbour to turn one word
// into the other (optimal string alignment distance).
int edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance; empty if there is none near enough to suggest
// (more than a third of the word would have to change), or if the word is longer than any name.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// ", did you mean 'x'?" for the nearest candidate, or an empty string.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// Whether `text` matches `pattern`, in which '*' stands for any run of characters.
bool matches_wildcard(std::string_view pattern, std::string_view text);

}  // namespace tessera
