#include "tessera/commands/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tessera::commands {

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }

  // A column is aligned to the right when its first value is a number.
  std::vector<bool> right(widths.size(), false);
  if (rows_.size() > 1) {
    for (std::size_t i = 0; i < rows_[1].size(); ++i) {
      const std::string& cell = rows_[1][i];
      right[i] = !cell.empty() && cell.front() >= '0' && cell.front() <= '9';
    }
  }

  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += right[i] ? fmt::format("{:>{}}  ", row[i], widths[i])
                       : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string format_seconds(double seconds) {
  struct Unit {
    double scale;
    const char* name;
  };
  constexpr std::array<Unit, 4> kUnits = {{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}}};
  for (const Unit& unit : kUnits) {
    if (seconds >= unit.scale) return fmt::format("{:.3g} {}", seconds / unit.scale, unit.name);
  }
  return fmt::format("{:.3g} ns", seconds / 1e-9);
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 4> kUnits = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  for (; unit + 1 < kUnits.size() && bytes >= 1024; ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

}  // namespace tessera::commands
