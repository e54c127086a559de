#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

using nlohmann::json;

// The parser names the byte at which it stopped; people count lines and columns.
std::string line_and_column(std::string_view text, std::size_t byte) {
  const std::size_t at = std::min(byte == 0 ? 0 : byte - 1, text.size());
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t begin = before.rfind('\n');
  const std::size_t column = at - (begin == std::string_view::npos ? 0 : begin + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

// Keeps what follows "... at line 1, column 5: " of the parser's message.
std::string reason_of(const json::parse_error& error) {
  const std::string_view text = error.what();
  const std::size_t column = text.find(": ", text.find("column "));
  return std::string(column == std::string_view::npos ? text : text.substr(column + 2));
}

std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string described(const json& value) {
  return shortened(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

std::string subject(const JsonPlace& place) {
  return place.path.empty() ? place.what + ": the document" : place.what + ": " + place.path;
}

std::string integer_rule(Range range) {
  if (range == Range::positive) return "a positive integer";
  return range == Range::not_negative ? "an integer not below 0" : "an integer";
}

template <class T>
bool in_range(T value, Range range) {
  if (range == Range::positive) return value > 0;
  return range == Range::any || value >= 0;
}

template <class T>
nlohmann::ordered_json number(T value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  return json::parse(fmt::format("{}", value));
}

// How deep lists and objects nest. Up to the byte at which a parser stops, the count is its own.
std::size_t depth_of(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (c == '\\' && in_string) ++i;  // the next byte ends no string
    if (in_string) continue;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return deepest;
}

}  // namespace

void check_json_depth(std::string_view text, std::string_view what) {
  constexpr std::size_t kMost = 64;
  const std::size_t depth = depth_of(text);
  if (depth <= kMost) return;
  throw Error(ErrorCode::parse_error,
              fmt::format("{}: lists and objects may lie at most {} deep in one another, got {}",
                          what, kMost, depth));
}

json parse_json(std::string_view text, std::string_view what) {
  check_json_depth(text, what);
  // The parser would silently keep the last of two equal keys.
  std::vector<std::set<std::string>> keys;
  const auto refuse_twice = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw Error(ErrorCode::parse_error, fmt::format("{}: the key {} is given twice in one object",
                                                      what, described(value)));
    }
    return true;
  };
  try {
    return json::parse(text, refuse_twice);
  } catch (const json::parse_error& error) {
    throw Error(
        ErrorCode::parse_error,
        fmt::format("{}: {}: {}", what, line_and_column(text, error.byte), reason_of(error)));
  } catch (const json::out_of_range&) {
    throw Error(ErrorCode::parse_error,
                fmt::format("{}: a number is too large for any field", what));
  }
}

std::string dump_json(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

JsonPlace JsonPlace::key(std::string_view name) const {
  return {what, path.empty() ? std::string(name) : fmt::format("{}.{}", path, name)};
}

JsonPlace JsonPlace::item(std::size_t index) const {
  return {what, fmt::format("{}[{}]", path, index)};
}

void refuse_json(const JsonPlace& place, std::string_view expected, const json& value,
                 std::string_view hint) {
  throw Error(ErrorCode::parse_error, fmt::format("{} must be {}, got {}{}", subject(place),
                                                  expected, described(value), hint));
}

void missing_json(const JsonPlace& place) {
  throw Error(ErrorCode::parse_error, subject(place) + " is missing");
}

void check_keys(const json& value, const JsonPlace& place, const std::vector<std::string>& known) {
  if (!value.is_object()) refuse_json(place, "an object", value);
  for (const auto& [key, item] : value.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string hint = did_you_mean(key, known);
    throw Error(
        ErrorCode::parse_error,
        fmt::format("{}: {} is not a known field{}", place.what, shortened(place.key(key).path),
                    hint.empty() ? ": known are " + join(known, ", ") : hint));
  }
}

std::int64_t read_json_integer(const json& value, const JsonPlace& place, Range range,
                               std::int64_t most) {
  if (!value.is_number_integer()) refuse_json(place, integer_rule(range), value);
  const bool huge =
      value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
  if (huge || value.get<std::int64_t>() < -most) {
    refuse_json(place, fmt::format("{} of at most {}", integer_rule(range), most), value);
  }
  const auto number = value.get<std::int64_t>();
  if (!in_range(number, range)) refuse_json(place, integer_rule(range), value);
  return number;
}

double read_json_number(const json& value, const JsonPlace& place, Range range) {
  std::string expected = "a number";
  if (range == Range::positive) expected = "a positive number";
  if (range == Range::not_negative) expected = "a number not below 0";
  if (!value.is_number() || !in_range(value.get<double>(), range)) {
    refuse_json(place, expected, value);
  }
  return value.get<double>();
}

const std::string& read_json_string(const json& value, const JsonPlace& place) {
  if (!value.is_string()) refuse_json(place, "a string", value);
  return value.get_ref<const std::string&>();
}

std::string subject_of(const JsonPlace& place) { return subject(place); }

nlohmann::ordered_json json_number(float value) { return number(value); }
nlohmann::ordered_json json_number(double value) { return number(value); }

}  // namespace tessera
