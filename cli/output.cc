#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

namespace tessera::cli {

void print_json(const Json& value) {
  fmt::print("{}\n", value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }

  // A column is set to the right when its first value is a number.
  std::vector<bool> right(widths.size(), false);
  if (rows_.size() > 1) {
    for (std::size_t i = 0; i < rows_[1].size(); ++i) {
      const std::string& cell = rows_[1][i];
      right[i] = !cell.empty() && std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
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

Progress::Progress(std::string label, Plain plain)
    : label_(std::move(label)), plain_(plain), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

void Progress::step(std::size_t done, std::size_t total, std::string_view what) {
  if (!terminal_) {
    if (plain_ == Plain::lines) fmt::print(stderr, "[{}/{}] {}\n", done, total, what);
    return;
  }
  constexpr std::size_t kWidth = 24;
  const std::size_t filled = total == 0 ? kWidth : done * kWidth / total;
  fmt::print(stderr, "\r\033[K{} [{:<{}}] {}/{} {}", label_, std::string(filled, '#'), kWidth, done,
             total, what.substr(0, 60));
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tessera::cli
