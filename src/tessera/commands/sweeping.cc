#include "tessera/commands/sweeping.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "tessera/commands/console.h"
#include "tessera/commands/options.h"

namespace tessera::commands {

double read_seconds(const std::string& command, const std::string& text) {
  if (text.empty()) return 0;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string unit(stop, end);
  const double scale = unit == "h" ? 3600 : unit == "m" ? 60 : unit.empty() || unit == "s" ? 1 : 0;
  const double seconds = number * scale;
  constexpr double kMost = 1e9;  // thirty years, which every clock can count
  // NaN fails this too.
  if (error == std::errc() && seconds > 0 && seconds <= kMost) return seconds;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: --budget is a time above 0 such as 90s, 30m or 2h, got '{}'",
                          command, text));
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<long>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string unserved_text(const measure::SweepReport& report) {
  return report.unserved == 0 ? ""
                              : fmt::format(", none of the kernels serves {}", report.unserved);
}

measure::SweepReport run_sweep(const Console& console, const std::vector<Problem>& problems,
                               const std::vector<KernelSpec>& kernels, const Target& target,
                               measure::SweepStore& store, measure::SweepOptions options) {
  Progress building(console, "build", Plain::signs);
  Progress measuring(console, "sweep", Plain::signs);
  options.version = kVersion;
  options.stop = console.stop;
  options.progress = [&](const measure::SweepProgress& at) {
    if (at.is_building) {
      building.step(at.done, at.total, at.what);
      return;
    }
    building.clear();
    measuring.step(at.done, at.total,
                   fmt::format("{} left, {}", format_duration(at.seconds_left), at.what));
  };
  console.before_stoppable();
  measure::SweepReport report = measure::sweep(problems, kernels, target, store, options);
  building.clear();
  measuring.clear();
  return report;
}

}  // namespace tessera::commands
