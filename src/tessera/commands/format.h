// Texts for people: tables, and numbers with units.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera::commands {

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

}  // namespace tessera::commands
