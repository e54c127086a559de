#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/select/select_internal.h"

namespace tessera {
namespace {

struct TimeUnit {
  double seconds;
  std::string_view name;
};
constexpr std::array kTimeUnits = {TimeUnit{1, "s"}, TimeUnit{1e-3, "ms"}, TimeUnit{1e-6, "us"},
                                   TimeUnit{1e-9, "ns"}};

// Three significant digits, never in scientific notation.
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

// "predicted 41.2 us (analytic)", "measured 41.2 us (tuned)", "first by name".
std::string describe(double seconds, ChoiceSource source) {
  if (seconds <= 0) return fmt::format("no prediction ({})", to_string(source));
  const char* verb = source == ChoiceSource::tuned ? "measured" : "predicted";
  return fmt::format("{} {} ({})", verb, format_seconds(seconds), to_string(source));
}

std::string row(std::string_view label, std::string_view name, std::size_t width,
                std::string_view text) {
  return fmt::format("{:<9} {:<{}}  {}\n", label, name, width, text);
}

}  // namespace

std::string format_seconds(double seconds) {
  constexpr double kRoundsUp = 0.9995;  // 999.5 us and more read as 1.00 ms
  if (!(seconds > 0)) return "0 s";
  for (const TimeUnit& unit : kTimeUnits) {
    if (seconds >= unit.seconds * kRoundsUp) {
      return fmt::format("{} {}", three_digits(seconds / unit.seconds), unit.name);
    }
  }
  return fmt::format("{} ns", three_digits(seconds / 1e-9));
}

std::string explain(const Problem& problem, const Target& target, const Decision& decision) {
  std::size_t width = decision.name.size();
  std::size_t accepted = 0;
  for (const Considered& entry : decision.considered) {
    const bool is_refused = !entry.refusal.empty();
    if (is_refused || ++accepted <= 2) width = std::max(width, entry.name.size());
  }

  std::string text = fmt::format("{:<9} {}\n", "problem", to_string(problem));
  text += fmt::format("{:<9} {} ({})\n", "target", target.name, target.description);
  text +=
      row("chosen", decision.name, width, describe(decision.predicted_seconds, decision.source));
  text += fmt::format("{:<9} {}\n", "why", decision.why);
  if (accepted > 1) {
    const Considered& next = decision.considered[1];
    text += row("runner-up", next.name, width, describe(next.predicted_seconds, next.source));
  }
  for (const Considered& entry : decision.considered) {
    if (!entry.refusal.empty()) text += row("refused", entry.name, width, entry.refusal);
  }
  if (!decision.considered.empty()) {
    text += fmt::format("{} candidates: {} legal, {} refused\n", decision.considered.size(),
                        accepted, decision.considered.size() - accepted);
  }
  return text;
}

}  // namespace tessera
