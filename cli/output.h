// The output of the commands: tables, JSON, progress, and numbers with units.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/tools.hpp"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

// The form of a command's output: one JSON object on stdout, or text for people.
struct Output {
  bool json = false;
};

// Write text to stdout and to stderr. A failed write is no error here, so that reporting an error
// cannot fail; stdout_failure() tells at the end. Control characters except tabs and line ends are
// written as \xNN.
void put_out(std::string_view text);
void put_err(std::string_view text);

// The same with fmt's format strings.
template <typename... Values>
void write_out(fmt::format_string<Values...> format, Values&&... values) {
  put_out(fmt::format(format, std::forward<Values>(values)...));
}
template <typename... Values>
void write_err(fmt::format_string<Values...> format, Values&&... values) {
  put_err(fmt::format(format, std::forward<Values>(values)...));
}

// Flushes stdout. Returns a sentence when part of the output was lost, otherwise an empty text.
std::string stdout_failure();

// Prints the object in one line, so that it is also the last line of stdout.
void print_json(const Json& value);

// Prints {"<key>":[row,...]} in one line. Each row is printed as soon as it is known, so that a
// million rows need no memory.
class JsonRows {
 public:
  explicit JsonRows(std::string key) : key_(std::move(key)) {}
  void add(const Json& row);
  // Ends the object, and adds "error" to it if there is one.
  void end(const std::optional<Error>& error);

 private:
  void begin();
  std::string key_;
  std::size_t rows_ = 0;
};

// The exception that is being handled, as an Error.
Error current_error();

// {"code":...,"message":...}.
Json error_json(const Error& error);

// "tessera: ..." on stderr.
void print_error(const Error& error);

// A table. Columns are as wide as their longest cell. Numbers (cells that start with a digit) are
// aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "1.25 ms", "830 ns".
std::string format_seconds(double seconds);

// "1.5 MiB".
std::string format_bytes(double bytes);

// Ends the output of a command that prints its rows one by one: closes the JSON object, or prints
// the error as text. Returns the exit status.
int end_rows(JsonRows& rows, const std::optional<Error>& error, const Output& output);

// Progress on stderr: a bar when stderr is a terminal. Otherwise one line for each step, or, with
// TESSERA_PROGRESS_SECONDS, one line in so many seconds.
class Progress {
 public:
  enum class Plain { signs, lines };
  Progress(std::string label, Plain plain);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::size_t done, std::size_t total, std::string_view what);
  // Clears the bar, so that other text can be printed.
  void clear();

 private:
  void step_plainly(std::size_t done, std::size_t total, std::string_view what);
  std::string label_;
  Plain plain_;
  bool terminal_;
  bool drawn_ = false;
  double seconds_;  // seconds between two lines; 0: a line for each step
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tessera::cli
