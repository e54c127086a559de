// What the commands print: tables, JSON, progress and numbers with units.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

using Json = nlohmann::ordered_json;

// How a command speaks: one JSON object on stdout, or text for people.
struct Output {
  bool json = false;
};

// One line, so that the object is also the last line of stdout.
void print_json(const Json& value);

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

// A bar on stderr when that is a terminal. Otherwise one line per step, or nothing.
class Progress {
 public:
  enum class Plain { silent, lines };
  Progress(std::string label, Plain plain);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::size_t done, std::size_t total, std::string_view what);
  // Makes room for what is printed next.
  void clear();

 private:
  std::string label_;
  Plain plain_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace tessera::cli
