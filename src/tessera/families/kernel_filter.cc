#include "tessera/families/kernel_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"
#include "tessera/spec/fields_internal.h"

namespace tessera {
namespace {

constexpr std::string_view kNameField = "name";

bool is_open(std::string_view pattern) { return pattern.find('*') != std::string_view::npos; }
bool is_everything(std::string_view pattern) { return pattern.empty() || pattern == "*"; }

// Nine digits always fit into an int.
bool is_number_or_star(std::string_view text) {
  constexpr std::size_t kDigits = 9;
  return text == "*" || (!text.empty() && text.size() <= kDigits &&
                         text.find_first_not_of("0123456789") == std::string_view::npos);
}

[[noreturn]] void refuse_pattern(std::string_view field, std::string_view expected,
                                 std::string_view pattern) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} must be {}, got '{}'", field, expected, pattern));
}

// Since each place holds a number or one '*', the pattern as a whole is a wildcard over the text.
void check_shape(std::string_view field, std::string_view pattern) {
  const std::vector<std::string_view> places = split(pattern, 'x');
  if (places.size() == 3 && std::all_of(places.begin(), places.end(), is_number_or_star)) return;
  refuse_pattern(field, "three numbers or '*' such as 128x*x64", pattern);
}

std::string read_derived(const DerivedField& field, std::string_view pattern) {
  const std::vector<std::string> known = field.words();
  if (!is_open(pattern) && std::find(known.begin(), known.end(), pattern) == known.end()) {
    throw Error(ErrorCode::parse_error, unknown_word(field.name, pattern, known));
  }
  return std::string(pattern);
}

// A pattern as fields of this type spell it.
template <class Value>
std::string read_pattern(std::string_view field, std::string_view pattern) {
  if constexpr (std::is_same_v<Value, Shape3>) {
    check_shape(field, pattern);
  } else if constexpr (Worded<Value>) {
    if (!is_open(pattern)) parse_word<Value>(pattern);
  } else if constexpr (std::is_same_v<Value, Epilogue>) {
    if (!is_open(pattern)) return to_string(parse_epilogue(pattern));
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (pattern != "true" && pattern != "false") refuse_pattern(field, "true or false", pattern);
  } else {
    static_assert(std::is_integral_v<Value>);
    if (!is_number_or_star(pattern)) refuse_pattern(field, "a number or '*'", pattern);
  }
  return std::string(pattern);
}

template <class Value>
std::string word(const Value& value) {
  if constexpr (Worded<Value>) {
    return std::string(word_of(value));
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<Value>) {
    return std::to_string(value);
  } else {
    return to_string(value);
  }
}

// Calls visit(name, value) for each field of the family's signature, then of the algorithm.
template <class Visit>
void for_each_wish_field(const Family& family, Visit&& visit) {
  const auto one = [&](const std::string& key, const auto& value, const auto&, const Rule&) {
    visit(key, value);
  };
  std::visit([&](const auto& fields) { for_each_field(fields, one); }, blank_signature(family.op));
  const Algorithm algorithm;
  for_each_field(algorithm, one);
}

// The pattern in the form in which it is compared with words.
std::string read_wish(const Family& family, const Wish& wish) {
  const std::vector<std::string> fields = wish_fields(family);
  if (std::find(fields.begin(), fields.end(), wish.field) == fields.end()) {
    const std::string noun = fmt::format("{} field", to_string(family.op));
    throw Error(ErrorCode::parse_error, unknown_word(noun, wish.field, fields));
  }
  if (is_everything(wish.pattern)) return "*";
  for (const DerivedField& field : family.derived()) {
    if (field.name == wish.field) return read_derived(field, wish.pattern);
  }
  std::string pattern = wish.pattern;
  for_each_wish_field(family, [&](const std::string& name, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if (name == wish.field) pattern = read_pattern<Value>(name, wish.pattern);
  });
  return pattern;
}

}  // namespace

std::vector<std::string> wish_fields(const Family& family) {
  std::vector<std::string> names;
  for (const DerivedField& field : family.derived()) names.emplace_back(field.name);
  for_each_wish_field(family, [&](const std::string& name, const auto&) { names.push_back(name); });
  names.emplace_back(kNameField);
  return names;
}

KernelFilter::KernelFilter(const Family& family, std::span<const Wish> wishes)
    : derived_(family.derived()) {
  for (const Wish& wish : wishes) {
    std::string pattern = read_wish(family, wish);
    auto found = std::find_if(wanted_.begin(), wanted_.end(),
                              [&](const Wanted& wanted) { return wanted.field == wish.field; });
    if (found == wanted_.end()) found = wanted_.insert(found, {wish.field, {}});
    found->patterns.push_back(std::move(pattern));
  }
  std::erase_if(wanted_, [](const Wanted& wanted) {
    return std::any_of(wanted.patterns.begin(), wanted.patterns.end(), is_everything);
  });
}

const KernelFilter::Wanted* KernelFilter::find(std::string_view field) const {
  const auto found = std::find_if(wanted_.begin(), wanted_.end(),
                                  [&](const Wanted& wanted) { return wanted.field == field; });
  return found == wanted_.end() ? nullptr : &*found;
}

bool KernelFilter::has(std::string_view field) const { return find(field) != nullptr; }

bool KernelFilter::accepts_word(std::string_view field, std::string_view word) const {
  const Wanted* wanted = find(field);
  if (wanted == nullptr) return true;
  return std::any_of(wanted->patterns.begin(), wanted->patterns.end(),
                     [&](const std::string& each) { return matches_wildcard(each, word); });
}

template <class Struct>
bool KernelFilter::accepts_fields(const Struct& object) const {
  bool accepted = true;
  for_each_field(object, [&](const std::string& key, const auto& value, const auto&, const Rule&) {
    if (accepted && has(key)) accepted = accepts_word(key, word(value));
  });
  return accepted;
}

bool KernelFilter::accepts(const Signature& signature) const {
  if (wanted_.empty()) return true;
  for (const DerivedField& field : derived_) {
    if (has(field.name) && !accepts_word(field.name, field.word(signature))) return false;
  }
  return std::visit([&](const auto& fields) { return accepts_fields(fields); }, signature);
}

bool KernelFilter::accepts(const Algorithm& algorithm) const {
  return wanted_.empty() || accepts_fields(algorithm);
}

bool KernelFilter::accepts(const KernelSpec& spec) const {
  return accepts(spec.signature) && accepts(spec.algorithm) && accepts_name(spec);
}

bool KernelFilter::accepts_name(const KernelSpec& spec) const {
  return !has(kNameField) || accepts_word(kNameField, name_of(spec));
}

std::string to_string(const KernelFilter::Wanted& wanted) {
  return fmt::format("{}={}", wanted.field, join(wanted.patterns, ","));
}

}  // namespace tessera
