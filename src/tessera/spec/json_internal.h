// Reading and writing JSON, for the .cc files of the library: malformed text is refused with line
// and column, a wrong value with the path of its field.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/spec/fields_internal.h"
#include "tessera/spec/json_depth.h"
#include "tessera/spec/words_internal.h"

namespace tessera {

// Throws Error{parse_error} "<what>: line 3, column 7: ...", also for a key given twice.
nlohmann::json parse_json(std::string_view text, std::string_view what);

// The text of a document: indented by 2, bytes that are not UTF-8 replaced.
std::string dump_json(const nlohmann::ordered_json& value);

// A KernelSpec as an object, for documents that hold several. `place` begins every message: "kernel
// set: kernels[3].algorithm.stages must be a positive integer, got 0".
nlohmann::ordered_json json_of(const KernelSpec& spec);
struct JsonPlace;
KernelSpec kernel_spec_from(const nlohmann::json& value, const JsonPlace& place);

// The document and the path of a value.
struct JsonPlace {
  std::string what;  // "target row"
  std::string path;  // "caches[1].bytes"; empty for the document itself

  JsonPlace key(std::string_view name) const;
  JsonPlace item(std::size_t index) const;
};

// Throws Error{parse_error}: "<what>: <path> must be <expected>, got <value><hint>".
[[noreturn]] void refuse_json(const JsonPlace& place, std::string_view expected,
                              const nlohmann::json& value, std::string_view hint = "");

// Throws unless `value` is an object all of whose keys are known.
void check_keys(const nlohmann::json& value, const JsonPlace& place,
                const std::vector<std::string>& known);

// Throws Error{parse_error} "<what>: <path> is missing".
[[noreturn]] void missing_json(const JsonPlace& place);

std::int64_t read_json_integer(const nlohmann::json& value, const JsonPlace& place, Range range,
                               std::int64_t most);
double read_json_number(const nlohmann::json& value, const JsonPlace& place, Range range);
const std::string& read_json_string(const nlohmann::json& value, const JsonPlace& place);
// "<what>: <path>", as messages begin.
std::string subject_of(const JsonPlace& place);
// What `parse` makes of a string; its errors get the place.
template <class T>
T read_json_by(T (*parse)(std::string_view), const nlohmann::json& value, const JsonPlace& place) {
  const std::string& text = read_json_string(value, place);
  try {
    return parse(text);
  } catch (const Error& error) {
    throw Error(ErrorCode::parse_error, subject_of(place) + ": " + error.what());
  }
}

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class K, class T>
struct IsMap<std::map<K, T>> : std::true_type {};

// Reads a word of an enum's table.
template <Worded Enum>
Enum read_json_word(const nlohmann::json& value, const JsonPlace& place) {
  Enum word{};
  if (!value.is_string()) refuse_json(place, one_of<Enum>(), value);
  const auto& text = value.template get_ref<const std::string&>();
  if (!read_word(text, word)) {
    refuse_json(place, one_of<Enum>(), value, did_you_mean(text, known_words<Enum>()));
  }
  return word;
}

// Reads any value of the spec: numbers, words, shapes, lists, maps keyed by words, and structs that
// have a table of fields.
template <class T>
void read_json(const nlohmann::json& value, const JsonPlace& place, Rule rule, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) refuse_json(place, "true or false", value);
    out = value.get<bool>();
  } else if constexpr (Worded<T>) {
    out = read_json_word<T>(value, place);
  } else if constexpr (std::is_integral_v<T>) {
    out = static_cast<T>(
        read_json_integer(value, place, rule.range, std::int64_t{std::numeric_limits<T>::max()}));
  } else if constexpr (std::is_floating_point_v<T>) {
    out = static_cast<T>(read_json_number(value, place, rule.range));
  } else if constexpr (std::is_same_v<T, std::string>) {
    out = read_json_string(value, place);
  } else if constexpr (std::is_same_v<T, Shape3>) {
    if (!value.is_string() || !read_shape(value.get_ref<const std::string&>(), out)) {
      refuse_json(place, "a shape such as \"128x256x64\"", value);
    }
  } else if constexpr (std::is_same_v<T, Epilogue>) {
    out = read_json_by(parse_epilogue, value, place);
  } else if constexpr (std::is_same_v<T, GemmDims>) {
    out = read_json_by(parse_gemm_dims, value, place);
  } else if constexpr (IsVector<T>::value) {
    if (!value.is_array()) refuse_json(place, "a list", value);
    out.assign(value.size(), typename T::value_type{});
    for (std::size_t i = 0; i < out.size(); ++i) read_json(value[i], place.item(i), rule, out[i]);
  } else if constexpr (IsMap<T>::value) {
    if (!value.is_object()) refuse_json(place, "an object", value);
    out.clear();
    for (const auto& [name, item] : value.items()) {
      typename T::key_type key{};
      read_json(nlohmann::json(name), place.key(name), kOptional, key);
      read_json(item, place.key(name), rule, out[key]);
    }
  } else {
    static_assert(HasFields<T>);
    std::vector<std::string> known;
    for_each_field(out, [&](const std::string& key, auto&, const auto&, const Rule&) {
      known.push_back(key);
    });
    check_keys(value, place, known);
    for_each_field(out, [&](const std::string& key, auto& field, const auto&, const Rule& of) {
      if (value.contains(key)) {
        read_json(value[key], place.key(key), of, field);
      } else if (of.required) {
        missing_json(place.key(key));
      }
    });
  }
}

// Whether fields at their defaults are written.
enum class Defaults : bool { omit, write };

// A number that JSON can hold; infinities and NaN become the strings "inf", "-inf", "nan".
nlohmann::ordered_json json_number(float value);
nlohmann::ordered_json json_number(double value);

// The inverse of read_json.
template <class T>
nlohmann::ordered_json write_json(const T& value, Defaults defaults) {
  if constexpr (Worded<T>) {
    return word_of(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return json_number(value);
  } else if constexpr (std::is_same_v<T, Shape3> || std::is_same_v<T, Epilogue> ||
                       std::is_same_v<T, GemmDims>) {
    return to_string(value);
  } else if constexpr (IsVector<T>::value) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& item : value) list.push_back(write_json(item, defaults));
    return list;
  } else if constexpr (IsMap<T>::value) {
    auto object = nlohmann::ordered_json::object();
    for (const auto& [key, item] : value) {
      object[write_json(key, defaults).template get<std::string>()] = write_json(item, defaults);
    }
    return object;
  } else if constexpr (HasFields<T>) {
    auto object = nlohmann::ordered_json::object();
    for_each_field(value, [&](const std::string& key, const auto& field, const auto& standard,
                              const Rule& rule) {
      if (rule.required || defaults == Defaults::write || !(field == standard)) {
        object[key] = write_json(field, defaults);
      }
    });
    return object;
  } else {
    return value;
  }
}

}  // namespace tessera
