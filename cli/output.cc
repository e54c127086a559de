#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "options.h"

namespace tessera::cli {
namespace {

constexpr double kSignSeconds = 30;
constexpr const char* kClearLine = "\r\033[K";
constexpr const char* kSignVariable = "TESSERA_PROGRESS_SECONDS";

// The errno of the first failed write to stdout. The stream itself only remembers that a write
// failed.
int stdout_error = 0;

// JSON in ASCII, so that control characters for terminals are escaped.
std::string dumped(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Bytes of the control character that `text` starts with: one of ASCII's, or one of the second
// set (U+0080 to U+009F) in UTF-8. Lines and tabs are no danger.
std::size_t control_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) == 0xc2 && text.size() > 1 && byte(1) >= 0x80 && byte(1) < 0xa0) return 2;
  const bool is_control = byte(0) < 0x20 || byte(0) == 0x7f;
  return is_control && text[0] != '\n' && text[0] != '\t' ? 1 : 0;
}

// Texts from files reach the terminal, so their control characters must not take effect.
std::string without_controls(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t bytes = control_bytes(text.substr(i));
    if (bytes == 0) safe += text[i];
    for (std::size_t k = 0; k < bytes; ++k) {
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i + k]));
    }
    if (bytes == 2) ++i;
  }
  return safe;
}

std::string message_of(const Error& error) {
  std::string message = error.what();
  if (!error.context().empty()) message += "\n" + error.context();
  message.erase(message.find_last_not_of('\n') + 1);
  return message;
}

double seconds_between_signs() {
  const std::string text = environment(kSignVariable);
  if (text.empty()) return kSignSeconds;
  const std::string fault = real_from(0)(text);
  if (fault.empty()) return std::stod(text);
  throw Error(ErrorCode::invalid_argument, fmt::format("{} {}", kSignVariable, fault));
}

}  // namespace

void put_out(std::string_view text) {
  const std::string safe = without_controls(text);
  const std::size_t written = std::fwrite(safe.data(), 1, safe.size(), stdout);
  if (written < safe.size() && stdout_error == 0) stdout_error = errno;
}

void put_err(std::string_view text) {
  const std::string safe = without_controls(text);
  std::fwrite(safe.data(), 1, safe.size(), stderr);
}

std::string stdout_failure() {
  if (std::fflush(stdout) != 0 && stdout_error == 0) stdout_error = errno;
  if (std::ferror(stdout) != 0 && stdout_error == 0) stdout_error = EIO;
  return stdout_error == 0 ? "" : std::generic_category().message(stdout_error);
}

void print_json(const Json& value) { write_out("{}\n", dumped(value)); }

void JsonRows::begin() { write_out("{{{}:[", dumped(key_)); }

void JsonRows::add(const Json& row) {
  const std::string text = dumped(row);  // may run out of memory, so it is made before the first
                                         // byte is printed
  if (rows_ == 0) begin();
  write_out("{}{}", rows_ == 0 ? "" : ",", text);
  ++rows_;
}

void JsonRows::end(const std::optional<Error>& error) {
  if (rows_ == 0) begin();
  write_out("]{}}}\n", error ? ",\"error\":" + dumped(error_json(*error)) : "");
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "not enough memory for what was asked"};
  } catch (const std::exception& error) {
    return {ErrorCode::internal, error.what()};
  }
}

Json error_json(const Error& error) {
  return {{"code", to_string(error.code())}, {"message", message_of(error)}};
}

void print_error(const Error& error) { write_err("tessera: {}\n", message_of(error)); }

int end_rows(JsonRows& rows, const std::optional<Error>& error, const Output& output) {
  if (output.json) {
    rows.end(error);
  } else if (error) {
    print_error(*error);
  }
  return error ? 1 : 0;
}

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
    : label_(std::move(label)),
      plain_(plain),
      terminal_(isatty(STDERR_FILENO) == 1),
      seconds_(seconds_between_signs()),
      last_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) std::fputs(kClearLine, stderr);
  drawn_ = false;
}

void Progress::step_plainly(std::size_t done, std::size_t total, std::string_view what) {
  if (plain_ == Plain::lines) {
    write_err("[{}/{}] {}\n", done, total, what);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (seconds_ == 0 || std::chrono::duration<double>(now - last_).count() < seconds_) return;
  write_err("[{}/{}] {}: {}\n", done, total, label_, what);
  last_ = now;
}

void Progress::step(std::size_t done, std::size_t total, std::string_view what) {
  if (!terminal_) {
    step_plainly(done, total, what);
    return;
  }
  constexpr std::size_t kWidth = 24;
  const std::size_t filled = total == 0 ? kWidth : done * kWidth / total;
  std::fputs(kClearLine, stderr);
  write_err("{} [{:<{}}] {}/{} {}", label_, std::string(filled, '#'), kWidth, done, total,
            what.substr(0, 60));
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tessera::cli
