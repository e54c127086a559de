// The forms that other programs' files have, as rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/measure/import_other_tools_internal.h"
#include "tessera/measure/sweep_exchange.h"
#include "tessera/spec/json_internal.h"

namespace tessera::measure {
namespace {

using nlohmann::json;

// Keys of files, and what rows call them here.
struct FieldWord {
  std::string_view theirs, ours;
};
constexpr std::array kFieldWords = {
    FieldWord{"kernel_name", "kernel"},     FieldWord{"op_type", "op"},
    FieldWord{"avg_time_ms", "latency_ms"}, FieldWord{"latency(ms)", "latency_ms"},
    FieldWord{"measured_tflops", "tflops"}, FieldWord{"tflops(tflops)", "tflops"},
    FieldWord{"error_msg", "error"}};

std::string our_word(std::string_view key) {
  std::string name = in_lower_case(std::string(key));
  for (const FieldWord& word : kFieldWords) {
    if (word.theirs == name) return std::string(word.ours);
  }
  return name;
}

// A field that is there already keeps its value.
void add(ForeignRow& row, std::string_view key, const std::string& value) {
  const std::string name = our_word(key);
  if (!row.fields.emplace(name, in_lower_case(value)).second) return;
  if (name == "kernel") row.kernel = value;
  if (name == "error") row.error = value;
}

// Objects and lists within an object are no fields.
void add_object(ForeignRow& row, const json& object) {
  if (!object.is_object()) refuse_foreign(row, "is no object");
  for (const auto& [key, value] : object.items()) {
    if (value.is_structured() || value.is_null()) continue;
    add(row, key,
        value.is_string() ? value.get<std::string>()
                          : value.dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

void require_text(const ForeignRow& row, const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_string()) return;
  refuse_foreign(row, fmt::format("'{}' must be a text", key));
}

// ---- JSON ----

std::vector<ForeignRow> rows_of_array(const json& array, const std::string& source) {
  std::vector<ForeignRow> rows;
  for (const json& object : array) {
    ForeignRow row{{}, {}, {}, fmt::format("'{}': object {}", source, rows.size())};
    add_object(row, object);
    for (const char* key : {"kernel", "kernel_name", "op"}) require_text(row, object, key);
    rows.push_back(std::move(row));
  }
  return rows;
}

[[noreturn]] void refuse_document(const std::string& source, const std::string& words) {
  throw Error(ErrorCode::parse_error, fmt::format("'{}': {}", source, words));
}

const json& part_of(const json& object, const char* key, json::value_t type,
                    const std::string& where) {
  const auto found = object.find(key);
  if (found != object.end() && found->type() == type) return *found;
  throw Error(ErrorCode::parse_error,
              fmt::format("{} has no {} '{}'", where,
                          type == json::value_t::array ? "list" : "object", key));
}

// {"metadata", "results": [{"kernel_config", "benchmarks": [...]}]}. A benchmark's fields come
// first, then its kernel's, then the file's.
std::vector<ForeignRow> rows_of_results(const json& whole, const std::string& source) {
  if (whole.find("results") == whole.end()) {
    refuse_document(source,
                    "an array of objects is wanted, one for each measurement, or an object with "
                    "'results', as the dispatcher's benchmarks write it");
  }
  const std::string file = fmt::format("'{}'", source);
  const json& metadata = part_of(whole, "metadata", json::value_t::object, file);
  std::vector<ForeignRow> rows;
  std::size_t number = 0;
  for (const json& result : part_of(whole, "results", json::value_t::array, file)) {
    const std::string where = fmt::format("'{}': results[{}]", source, number++);
    if (!result.is_object()) throw Error(ErrorCode::parse_error, where + " is no object");
    const json& config = part_of(result, "kernel_config", json::value_t::object, where);
    std::size_t place = 0;
    for (const json& one : part_of(result, "benchmarks", json::value_t::array, where)) {
      ForeignRow row{{}, {}, {}, fmt::format("{}.benchmarks[{}]", where, place++)};
      require_text(row, config, "name");
      if (config.contains("name")) add(row, "kernel", config["name"].get<std::string>());
      add_object(row, one);
      add_object(row, config);
      for (const char* key : {"dtype", "layout", "arch"}) {
        require_text(row, metadata, key);
        if (metadata.contains(key)) add(row, key, metadata[key].get<std::string>());
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<ForeignRow> rows_of_json(std::string_view text, const std::string& source) {
  const json whole = parse_json(text, fmt::format("'{}'", source));
  if (whole.is_array()) return rows_of_array(whole, source);
  if (whole.is_object()) return rows_of_results(whole, source);
  refuse_document(source, "an array of objects is wanted, one for each measurement");
}

// ---- logs ----

constexpr std::string_view kShape = "Shape ";

std::string_view trimmed(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

// "Shape 3: M=8 N=16 K=32 dtype=fp16 layout=rcr"
bool is_shape_line(std::string_view line) {
  if (!line.starts_with(kShape)) return false;
  line.remove_prefix(kShape.size());
  const std::size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
  return digits > 0 && line.substr(digits).starts_with(":");
}

// Where the block of JSON ends that starts at `start`, which is a brace; npos where it does not.
std::size_t end_of_block(std::string_view text, std::size_t start) {
  int depth = 0;
  bool is_quoted = false;
  for (std::size_t at = start; at < text.size(); ++at) {
    const char c = text[at];
    if (is_quoted) {
      if (c == '\\') ++at;
      if (c == '"') is_quoted = false;
    } else if (c == '"') {
      is_quoted = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

ProblemWords shape_fields(std::string_view line) {
  ProblemWords fields;
  for (const std::string_view word : split_words(line.substr(line.find(':') + 1))) {
    const std::size_t equal = word.find('=');
    if (equal == std::string_view::npos) continue;
    fields.emplace(in_lower_case(std::string(word.substr(0, equal))),
                   in_lower_case(std::string(word.substr(equal + 1))));
  }
  return fields;
}

// "RowMajor", "ColumnMajor" and "RowMajor" are rcr. Empty where the block does not say all three.
std::string layout_of(const json& problem) {
  std::string layout;
  for (const char* key : {"layout_a", "layout_b", "layout_c"}) {
    const auto found = problem.find(key);
    if (found == problem.end() || !found->is_string()) return {};
    const std::string word = in_lower_case(found->get<std::string>());
    if (!word.starts_with("r") && !word.starts_with("c")) return {};
    layout += word.front();
  }
  return layout;
}

// A block's own fields come first, then the fields of the line before it.
ForeignRow row_of_block(const json& block, const ProblemWords& shape, const std::string& where) {
  ForeignRow row{{}, {}, {}, where};
  require_text(row, block, "name");
  if (!block.contains("name")) refuse_foreign(row, "has no 'name' of a kernel");
  add(row, "kernel", block["name"].get<std::string>());
  const json& problem = part_of(block, "problem", json::value_t::object, where);
  add_object(row, part_of(block, "perf_result", json::value_t::object, where));
  add_object(row, problem);
  require_text(row, problem, "dtype_a");
  if (problem.contains("dtype_a")) add(row, "dtype", problem["dtype_a"].get<std::string>());
  const std::string layout = layout_of(problem);
  if (!layout.empty()) add(row, "layout", layout);
  for (const auto& [key, value] : shape) add(row, key, value);
  return row;
}

// Lines that are neither a shape nor begin a block are what programs said meanwhile.
std::vector<ForeignRow> rows_of_log(std::string_view text, const std::string& source) {
  std::vector<ForeignRow> rows;
  std::optional<ProblemWords> shape;
  std::size_t line_number = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t line_end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, line_end - at));
    std::size_t next = line_end + 1;
    if (is_shape_line(line)) {
      shape = shape_fields(line);
    } else if (line.starts_with('{')) {
      const std::string where = fmt::format("'{}': line {}", source, line_number);
      if (!shape) {
        throw Error(ErrorCode::parse_error,
                    where + " begins a block before any line 'Shape N: M= N= K= dtype= layout='");
      }
      const std::size_t start = text.find('{', at);
      const std::size_t end = end_of_block(text, start);
      if (end == std::string_view::npos) {
        throw Error(ErrorCode::parse_error, where + " begins a block of JSON without an end");
      }
      rows.push_back(row_of_block(parse_json(text.substr(start, end - start), where + ", block"),
                                  *shape, where));
      next = end;
    }
    line_number += static_cast<std::size_t>(
        std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                   text.begin() + static_cast<std::ptrdiff_t>(std::min(next, text.size())), '\n'));
    at = next;
  }
  return rows;
}

bool is_log(std::string_view text) {
  for (const std::string_view line : split(text, '\n')) {
    if (is_shape_line(trimmed(line))) return true;
  }
  return false;
}

bool is_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

// ---- tables ----

std::string text_of(const Column& column, std::size_t row) {
  switch (column.type) {
    case ColumnType::text:
      return column.words[static_cast<std::size_t>(column.codes[row])];
    case ColumnType::real:
      return fmt::format("{}", column.reals[row]);
    case ColumnType::integer:
      return fmt::format("{}", column.integers[row]);
  }
  return {};
}

// `name` is one of our words.
bool has_column(const ColumnTable& table, std::string_view name) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [&](const Column& column) { return our_word(column.name) == name; });
}

}  // namespace

std::string in_lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

void refuse_foreign(const ForeignRow& row, std::string_view words) {
  throw Error(ErrorCode::parse_error, fmt::format("{} {}", row.where, words));
}

bool is_foreign(const ColumnTable& table) {
  const bool has_time = has_column(table, "latency_ms") || has_column(table, "tflops");
  return has_time && !has_column(table, "outcome");
}

bool is_table(std::string_view text) { return !is_log(text) && !is_json(text); }

std::vector<ForeignRow> foreign_rows(const ColumnTable& table, const std::string& source) {
  std::vector<ForeignRow> rows(static_cast<std::size_t>(table.rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].where = fmt::format("'{}': row {}", source, i + 1);
    for (const Column& column : table.columns) {
      const std::string value = text_of(column, i);
      if (value.empty()) continue;
      add(rows[i], column.name, value);
      const std::string& kept = rows[i].fields.find(our_word(column.name))->second;
      if (kept == in_lower_case(value)) continue;
      refuse_foreign(rows[i], fmt::format("has two values of '{}', {} and {}",
                                          our_word(column.name), kept, value));
    }
  }
  return rows;
}

std::vector<ForeignRow> foreign_rows(std::string_view text, const std::string& source) {
  text = without_byte_order_mark(text);
  if (is_log(text)) return rows_of_log(text, source);
  if (is_json(text)) return rows_of_json(text, source);
  if (text.find_first_not_of(" \t\r\n") != std::string_view::npos) {
    const ColumnTable table = from_csv(text, source);
    if (is_foreign(table)) return foreign_rows(table, source);
  }
  refuse_document(source,
                  "no measurements were found: known are JSON (an array of objects, or the "
                  "dispatcher's results), logs with lines 'Shape N: M= N= K= dtype= layout=', and "
                  "CSV with the columns kernel and latency_ms or tflops");
}

}  // namespace tessera::measure
