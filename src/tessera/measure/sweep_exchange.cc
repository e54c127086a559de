#include "tessera/measure/sweep_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/text.h"

namespace tessera::measure {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result(1, '"');
  for (const char c : text) result.append(c == '"' ? 2 : 1, c);
  result.push_back('"');
  return result;
}

std::string cell(const Column& column, std::size_t row) {
  switch (column.type) {
    case ColumnType::text:
      return quoted(column.words[static_cast<std::size_t>(column.codes[row])]);
    case ColumnType::real:
      return fmt::format("{}", column.reals[row]);
    case ColumnType::integer:
      return fmt::format("{}", column.integers[row]);
  }
  return {};
}

[[noreturn]] void refuse_line(const std::string& source, std::size_t line,
                              const std::string& words) {
  throw Error(ErrorCode::parse_error, fmt::format("'{}':{}: {}", source, line, words));
}

// Records of fields; quoted fields may hold commas, doubled quotes and line ends.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  // False at the end of the text.
  bool read(std::vector<std::string>& fields) {
    fields.clear();
    if (at_ >= text_.size()) return false;
    line_ = next_line_;
    for (;;) {
      fields.push_back(read_field());
      if (at_ >= text_.size()) return true;
      const char c = text_[at_++];
      if (c == ',') continue;
      if (c == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
      ++next_line_;
      return true;
    }
  }
  std::size_t line() const { return line_; }

 private:
  std::string read_field() {
    if (at_ >= text_.size() || text_[at_] != '"') {
      const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
      std::string field(text_.substr(at_, end - at_));
      at_ = end;
      return field;
    }
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++next_line_;
      if (text_[at_] == '"') {
        const bool doubled = at_ + 1 < text_.size() && text_[at_ + 1] == '"';
        if (!doubled) return close_quote(std::move(field));
        ++at_;
      }
      field.push_back(text_[at_]);
    }
    refuse_line(source_, line_, "a quoted field has no end");
  }
  std::string close_quote(std::string field) {
    ++at_;
    if (at_ >= text_.size() || std::string_view(",\r\n").find(text_[at_]) != std::string::npos) {
      return field;
    }
    refuse_line(source_, line_,
                fmt::format("after a quoted field comes a comma, got '{}'", text_.substr(at_, 1)));
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t next_line_ = 1;
};

template <typename Number>
Number parse_number(const std::string& text, const std::string& column, const std::string& source,
                    std::size_t line) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return value;
  refuse_line(source, line,
              fmt::format("column '{}' is a number, got '{}'", column, text.substr(0, 40)));
}

ColumnType type_of(const std::string& name) {
  for (const ColumnRow& row : sweep_columns()) {
    if (row.name == name) return row.type;
  }
  return ColumnType::text;
}

}  // namespace

std::string to_csv(const ColumnTable& table) {
  std::string text;
  for (const Column& column : table.columns) {
    if (!text.empty()) text += ',';
    text += quoted(column.name);
  }
  text += '\n';
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows); ++row) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (i > 0) text += ',';
      text += cell(table.columns[i], row);
    }
    text += '\n';
  }
  return text;
}

ColumnTable from_csv(std::string_view text, const std::string& source) {
  CsvReader reader(without_byte_order_mark(text), source);
  std::vector<std::string> fields;
  ColumnTable table;
  if (!reader.read(fields))
    refuse_line(source, 1, "the file is empty; its first line names the columns");
  for (const std::string& name : fields) {
    table.columns.push_back({name, type_of(name), {}, {}, {}, {}});
  }
  std::vector<std::map<std::string, std::int32_t>> places(fields.size());
  while (reader.read(fields)) {
    if (fields.size() == 1 && fields.front().empty()) continue;  // an empty line
    if (fields.size() != table.columns.size()) {
      refuse_line(
          source, reader.line(),
          fmt::format("{} fields in a table of {} columns", fields.size(), table.columns.size()));
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      Column& column = table.columns[i];
      if (column.type == ColumnType::real) {
        column.reals.push_back(parse_number<double>(fields[i], column.name, source, reader.line()));
      } else if (column.type == ColumnType::integer) {
        column.integers.push_back(
            parse_number<std::int64_t>(fields[i], column.name, source, reader.line()));
      } else {
        const auto [found, is_new] =
            places[i].emplace(fields[i], static_cast<std::int32_t>(column.words.size()));
        if (is_new) column.words.push_back(fields[i]);
        column.codes.push_back(found->second);
      }
    }
    ++table.rows;
  }
  return table;
}

SweepData read_sweep_data(const fs::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".csv") {
    return from_columns(from_csv(read_file(file), file.string()), file.string());
  }
  if (extension == ".parquet") return from_columns(read_parquet(file), file.string());
  return SweepStore(file, OpenMode::existing).read();
}

}  // namespace tessera::measure
