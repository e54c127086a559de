#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <system_error>

#include "signals.h"
#include "tessera/commands/options.h"

namespace tessera::cli {
namespace {

using commands::Plain;

constexpr double kSignSeconds = 30;
constexpr const char* kClearLine = "\r\033[K";
constexpr const char* kSignVariable = "TESSERA_PROGRESS_SECONDS";

// The errno of the first failed write to stdout. The stream itself only remembers that a write
// failed.
int stdout_error = 0;

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

double seconds_between_signs() {
  const std::string text = environment(kSignVariable);
  if (text.empty()) return kSignSeconds;
  const std::string fault = commands::real_from(0)(text);
  double seconds = 0;
  if (fault.empty() && commands::read_real(text, seconds)) return seconds;
  throw Error(ErrorCode::invalid_argument, fmt::format("{} {}", kSignVariable, fault));
}

class Bar {
 public:
  Bar(std::string label, Plain plain)
      : label_(std::move(label)),
        plain_(plain),
        terminal_(isatty(STDERR_FILENO) == 1),
        seconds_(seconds_between_signs()),
        last_(std::chrono::steady_clock::now()) {}

  void step(std::size_t done, std::size_t total, std::string_view what) {
    if (!terminal_) {
      step_plainly(done, total, what);
      return;
    }
    constexpr std::size_t kWidth = 24;
    const std::size_t filled = total == 0 ? kWidth : done * kWidth / total;
    std::fputs(kClearLine, stderr);
    put_err(fmt::format("{} [{:<{}}] {}/{} {}", label_, std::string(filled, '#'), kWidth, done,
                        total, what.substr(0, 60)));
    std::fflush(stderr);
    drawn_ = true;
  }

  void clear() {
    if (drawn_) std::fputs(kClearLine, stderr);
    drawn_ = false;
  }

 private:
  void step_plainly(std::size_t done, std::size_t total, std::string_view what) {
    if (plain_ == Plain::lines) {
      put_err(fmt::format("[{}/{}] {}\n", done, total, what));
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (seconds_ == 0 || std::chrono::duration<double>(now - last_).count() < seconds_) return;
    put_err(fmt::format("[{}/{}] {}: {}\n", done, total, label_, what));
    last_ = now;
  }

  std::string label_;
  Plain plain_;
  bool terminal_;
  bool drawn_ = false;
  double seconds_;  // seconds between two lines; 0: a line for each step
  std::chrono::steady_clock::time_point last_;
};

commands::ProgressView show_bar(const std::string& label, Plain plain) {
  const auto bar = std::make_shared<Bar>(label, plain);
  return {[bar](std::size_t done, std::size_t total, std::string_view what) {
            bar->step(done, total, what);
          },
          [bar] { bar->clear(); }};
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

commands::Console terminal(bool json) {
  return {.json = json,
          .put_out = put_out,
          .put_err = put_err,
          .show = show_bar,
          .stop = is_interrupted,
          .before_stoppable = take_interrupts};
}

}  // namespace tessera::cli
