// What the commands print: tables, JSON, progress and numbers with units.
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

#include "tessera/tessera.hpp"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

// How a command speaks: one JSON object on stdout, or text for people.
struct Output {
  bool json = false;
};

// Text on stdout and on stderr. A stream that refuses it is no error here, so that what reports an
// error cannot fail itself: stdout_failure() tells at the end. Control characters but for tabs and
// the ends of lines are written as \xNN.
void put_out(std::string_view text);
void put_err(std::string_view text);

// The same with fmt's formats.
template <typename... Values>
void write_out(fmt::format_string<Values...> format, Values&&... values) {
  put_out(fmt::format(format, std::forward<Values>(values)...));
}
template <typename... Values>
void write_err(fmt::format_string<Values...> format, Values&&... values) {
  put_err(fmt::format(format, std::forward<Values>(values)...));
}

// Flushes stdout. Says why not everything that was put there has arrived; else empty.
std::string stdout_failure();

// One line, so that the object is also the last line of stdout.
void print_json(const Json& value);

// {"<key>":[row,...]} in one line, each row printed as soon as it is known: a million rows need no
// memory.
class JsonRows {
 public:
  explicit JsonRows(std::string key) : key_(std::move(key)) {}
  void add(const Json& row);
  // Ends the object, with an "error" in it if there is one.
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

// Columns as wide as their longest cell; numbers (cells that start with a digit) to the right.
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

// The end of a command whose rows were printed one by one: the object's end, or the error as text.
// Returns the exit status.
int end_rows(JsonRows& rows, const std::optional<Error>& error, const Output& output);

// A bar on stderr when that is a terminal. Otherwise one line per step, or, as a sign of life, a
// line every TESSERA_PROGRESS_SECONDS.
class Progress {
 public:
  enum class Plain { signs, lines };
  Progress(std::string label, Plain plain);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::size_t done, std::size_t total, std::string_view what);
  // Makes room for what is printed next.
  void clear();

 private:
  void step_plainly(std::size_t done, std::size_t total, std::string_view what);
  std::string label_;
  Plain plain_;
  bool terminal_;
  bool drawn_ = false;
  double seconds_;  // between two signs of life; 0: none
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tessera::cli
