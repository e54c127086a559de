// Tables of a struct's fields, with one row for each field, and the ways to walk them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/base/forever.h"
#include "tessera/spec/words_internal.h"

namespace tessera {

enum class Range : std::uint8_t { any, not_negative, positive };

// The rule that a reader checks for a field.
struct Rule {
  bool required = false;
  Range range = Range::any;
};

inline constexpr Rule kOptional{};
inline constexpr Rule kRequired{.required = true};
inline constexpr Rule kPositive{.range = Range::positive};
inline constexpr Rule kNotNegative{.range = Range::not_negative};
inline constexpr Rule kRequiredPositive{.required = true, .range = Range::positive};

// The rows of a table, which are handed to a function all at once: list(visit) is visit(rows...). A
// tuple would do the same and take the compiler ten times as long.
template <class... Rows>
constexpr auto row_list(Rows... rows) {
  return [rows...](auto&& visit) { return visit(rows...); };
}

// What a field is where nobody sets it: a function of another field's value, such as the type of
// the first operand. Where source is null it is the struct's own default.
template <class Struct, class Value>
struct Follows {
  Value Struct::*source = nullptr;
  Value (*value_of)(Value) = nullptr;
};

template <class Value>
constexpr Value as_it_is(Value value) {
  return value;
}

template <class Struct, class Value>
constexpr Follows<Struct, Value> follows(Value Struct::*source,
                                         Value (*value_of)(Value) = as_it_is<Value>) {
  return {source, value_of};
}

// The ends of the keys of an array's elements.
using KeyEnds = std::span<const std::string_view>;
template <class Struct, class Value>
struct Field {
  std::string_view key;
  Value Struct::*member;
  Rule rule;
  KeyEnds ends;  // of an array: one for each element
  Follows<Struct, Value> follows;
};

template <class Struct, class Value>
constexpr Field<Struct, Value> field(std::string_view key, Value Struct::*member,
                                     Rule rule = kOptional) {
  return {key, member, rule, {}, {}};
}
template <class Struct, class Value>
constexpr Field<Struct, Value> field(std::string_view key, Value Struct::*member,
                                     Follows<Struct, Value> follows) {
  return {key, member, kOptional, {}, follows};
}

// An array: each element is a field of its own, whose key begins with `key`.
template <class Struct, std::size_t n>
constexpr Field<Struct, std::array<std::int64_t, n>> fields(
    std::string_view key, std::array<std::int64_t, n> Struct::*member,
    const std::array<std::string_view, n>& ends, Rule rule = kOptional) {
  return {key, member, rule, ends, {}};
}

template <class Struct>
struct Fields;

template <class Struct>
concept HasFields = requires {
  Fields<Struct>::kAll;
};

template <class T>
inline constexpr bool kIsArray = false;
template <class T, std::size_t n>
inline constexpr bool kIsArray<std::array<T, n>> = true;

// Calls visit(key, value, default value, rule) for each field, in the order of the table.
template <class Struct, class Visit>
void for_each_field(Struct& object, Visit&& visit) {
  using Plain = std::remove_const_t<Struct>;
  static const Forever<Plain> kDefaults;
  const auto one = [&](const auto& row) {
    auto& value = object.*row.member;
    const auto& standard = (*kDefaults).*row.member;
    if constexpr (kIsArray<std::remove_cvref_t<decltype(value)>>) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        visit(std::string(row.key).append(row.ends[i]), value[i], standard[i], row.rule);
      }
    } else {
      visit(std::string(row.key), value, standard, row.rule);
    }
  };
  Fields<Plain>::kAll([&](const auto&... rows) { (one(rows), ...); });
}

// Calls visit(value) for each field, in the order of the table.
template <class Struct, class Visit>
void for_each_value(const Struct& object, Visit&& visit) {
  Fields<Struct>::kAll([&](const auto&... rows) { (visit(object.*rows.member), ...); });
}

// Sets a field, and the fields that follow it.
template <class Struct, class Value>
void set_with_followers(Struct& object, Value Struct::*member, Value value) {
  object.*member = value;
  const auto one = [&](const auto& row) {
    if constexpr (std::is_same_v<decltype(row.follows.source), Value Struct::*>) {
      if (row.follows.source != member) return;
      set_with_followers(object, row.member, row.follows.value_of(value));
    }
  };
  Fields<Struct>::kAll([&](const auto&... rows) { (one(rows), ...); });
}

// Whether other fields follow this one.
template <class Struct, class Value>
constexpr bool has_followers(Value Struct::*member) {
  const auto one = [&](const auto& row) {
    if constexpr (std::is_same_v<decltype(row.follows.source), Value Struct::*>) {
      return row.follows.source == member;
    }
    return false;
  };
  return Fields<Struct>::kAll([&](const auto&... rows) { return (one(rows) || ...); });
}

// Throws Error{invalid_argument} for a number that is not in the enum: "<what>: <key> must be a
// number from 0 to 7, got 99".
template <class Struct>
void check_numbers(std::string_view what, const Struct& object) {
  const auto one = [&](const auto& row) {
    const auto& value = object.*row.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (Worded<Value>) {
      const std::int64_t last = std::ssize(Words<Value>::kAll) - 1;
      const std::string reason = number_reason(row.key, static_cast<std::int64_t>(value), last);
      if (reason.empty()) return;
      throw Error(ErrorCode::invalid_argument, std::string(what) + ": " + reason);
    }
  };
  Fields<Struct>::kAll([&](const auto&... rows) { (one(rows), ...); });
}

}  // namespace tessera
