#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "tessera/families/family.h"
#include "tessera/families/rule_counts.h"
#include "tessera/select/select_internal.h"

namespace tessera {
namespace {

struct TimeUnit {
  double seconds;
  std::string_view name;
};
constexpr std::array kTimeUnits = {TimeUnit{1, "s"}, TimeUnit{1e-3, "ms"}, TimeUnit{1e-6, "us"},
                                   TimeUnit{1e-9, "ns"}};

constexpr std::size_t kShownNext = 5;
constexpr std::uintptr_t kAlignedAddress = 4096;

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

// The arguments of explain().
struct Subject {
  const Problem& problem;
  const Target& target;
  const Decision& decision;
};

// The part of the estimate in which the kernel loses most: ": memory 30.1 us, chosen 28.0 us".
std::string largest_loss(const Subject& subject, const KernelSpec& spec) {
  const auto estimate_of = [&](const KernelSpec& each) {
    return family_of(subject.problem)
        .estimate(each, subject.problem, subject.target, subject.decision.threads);
  };
  const Estimate chosen = estimate_of(subject.decision.spec);
  const Estimate other = estimate_of(spec);
  struct Part {
    std::string_view name;
    double chosen;
    double other;
  };
  const std::array parts = {
      Part{"compute", chosen.compute_seconds, other.compute_seconds},
      Part{"memory", chosen.memory_seconds, other.memory_seconds},
      Part{"overhead", chosen.overhead_seconds, other.overhead_seconds},
  };
  const auto most = std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.other - a.chosen < b.other - b.chosen;
  });
  if (most->other <= most->chosen) return {};
  return fmt::format(": {} {}, chosen {}", most->name, format_seconds(most->other),
                     format_seconds(most->chosen));
}

bool is_shipped(const Subject& subject, const KernelSpec& spec) {
  return family_of(subject.problem).is_essential(spec, subject.target);
}

std::string percent(double share) {
  constexpr double kShown = 0.0005;
  return share < kShown ? "less than 0.1%" : fmt::format("{:.1f}%", 100 * share);
}

// By how much a kernel is slower: percent, and from twice the time on its multiple.
std::string how_much_slower(double share) {
  constexpr double kTwice = 1;
  constexpr double kTenTimes = 9;
  if (share < kTwice) return percent(share) + " slower";
  return share < kTenTimes ? fmt::format("{:.1f}x slower", 1 + share)
                           : fmt::format("{:.0f}x slower", 1 + share);
}

// Why a kernel lost to which the deciding ranker also gave a time.
std::string lost_by_time(const Subject& subject, const Considered& entry) {
  const double share = entry.predicted_seconds / subject.decision.predicted_seconds - 1;
  const bool is_analytic = entry.source == ChoiceSource::analytic;
  if (share > kNearTie) {
    return fmt::format("{}{}", how_much_slower(share),
                       is_analytic ? largest_loss(subject, entry.spec) : "");
  }
  const std::string time = share < -kNearTie ? percent(-share) + " faster" : "as fast";
  if (!is_shipped(subject, entry.spec) && is_shipped(subject, subject.decision.spec)) {
    return time + ", but not shipped ready-built";
  }
  return time + ", and its name comes later";
}

// Why a kernel that could run was not chosen.
std::string why_lost(const Subject& subject, const Considered& entry) {
  const Decision& decision = subject.decision;
  if (decision.source == ChoiceSource::pinned) return "not the kernel asked for";
  if (decision.source == ChoiceSource::tuned) return "not the fastest one measured";
  if (entry.source != decision.source) {
    return fmt::format("the {} ranker decided and has no time for it", to_string(decision.source));
  }
  if (entry.predicted_seconds > 0 && decision.predicted_seconds > 0) {
    return lost_by_time(subject, entry);
  }
  return decision.source == ChoiceSource::first_legal ? "its name comes later"
                                                      : "the model puts it later";
}

std::string describe_next(const Subject& subject, const Considered& entry) {
  return fmt::format("{}, {}", describe(entry.predicted_seconds, entry.source),
                     why_lost(subject, entry));
}

Operands aligned_operands(const Subject& subject) {
  const Family& family = family_of(subject.decision.spec);
  Operands operands = no_operands(subject.problem);
  for (const Tensor& tensor : family.tensors(subject.problem)) {
    family.set_pointer(operands, tensor.operand, reinterpret_cast<void*>(kAlignedAddress));
  }
  return operands;
}

// The steps of the chosen kernel that copy operands to another form, where operands lie at aligned
// addresses.
std::string copying_steps(const Subject& subject) {
  const KernelSpec& spec = subject.decision.spec;
  const Family& family = family_of(spec);
  const Launch launch =
      family.bind(spec, subject.problem, subject.target, aligned_operands(subject));
  std::string text;
  for (const Step& step : launch.steps) {
    if (step.copied_bytes == 0) continue;
    const std::string entry = family.emit(spec, subject.target).entries.at(step.entry);
    text += fmt::format(
        "{:<9} {}{} makes copies of {} bytes before the kernel runs; workspace {} bytes\n",
        "copies", subject.decision.name, entry, step.copied_bytes, launch.workspace.bytes);
  }
  return text;
}

// Into how many parts the chosen kernel cuts long sums.
std::string merged_parts(const Subject& subject) {
  const KernelSpec& spec = subject.decision.spec;
  const std::int64_t parts =
      family_of(spec).bind(spec, subject.problem, subject.target, aligned_operands(subject)).parts;
  if (parts <= 1) return {};
  return fmt::format("{:<9} the longest sums are cut into {} and merged in their order\n", "parts",
                     parts);
}

// The refused kernels counted by rule. Each rule shows the sentence of the first kernel that it
// refuses.
std::string refused_by_rule(std::span<const Considered> refused) {
  std::vector<std::string_view> reasons;
  for (const Considered& entry : refused) reasons.emplace_back(entry.refusal);
  std::string text;
  for (const RefusalCount& rule : count_by_rule(reasons)) {
    text += fmt::format("refused   {} kernel{}: {}\n", rule.count, rule.count == 1 ? "" : "s",
                        reasons[rule.example]);
  }
  return text;
}

std::string refused_one_by_one(std::span<const Considered> refused, std::size_t width) {
  std::string text;
  for (const Considered& entry : refused) text += row("refused", entry.name, width, entry.refusal);
  return text;
}

// The line that counts the candidates.
std::string counts(std::size_t legal, std::size_t refused, ExplainDetail detail) {
  const bool by_rule = refused > 0 && detail == ExplainDetail::summary;
  return fmt::format("{} candidates: {} legal, {} refused{}\n", legal + refused, legal, refused,
                     by_rule ? "; the numbers of a rule are those of its first kernel" : "");
}

}  // namespace

std::string format_seconds(double seconds) {
  constexpr double kRoundsUp = 0.9995;  // from 999.5 us on, the text is 1.00 ms
  if (!(seconds > 0)) return "0 s";
  for (const TimeUnit& unit : kTimeUnits) {
    if (seconds >= unit.seconds * kRoundsUp) {
      return fmt::format("{} {}", three_digits(seconds / unit.seconds), unit.name);
    }
  }
  return fmt::format("{} ns", three_digits(seconds / 1e-9));
}

std::string explain(const Problem& problem, const Target& target, const Decision& decision,
                    ExplainDetail detail) {
  const std::span<const Considered> all(decision.considered);
  const auto is_refused = [](const Considered& entry) { return !entry.refusal.empty(); };
  const auto first_refused = std::find_if(all.begin(), all.end(), is_refused);
  const auto legal = static_cast<std::size_t>(first_refused - all.begin());
  const auto refused = all.subspan(legal);
  const bool everything = detail == ExplainDetail::everything;
  const std::size_t others = legal > 0 ? legal - 1 : 0;
  const auto next = all.subspan(legal - others, everything ? others : std::min(others, kShownNext));
  std::size_t width = decision.name.size();
  for (const Considered& entry : next) width = std::max(width, entry.name.size());

  const Subject subject{problem, target, decision};
  std::string text = fmt::format("{:<9} {}\n", "problem", to_string(problem));
  text += fmt::format("{:<9} {} ({})\n", "target", target.name, target.description);
  text +=
      row("chosen", decision.name, width, describe(decision.predicted_seconds, decision.source));
  text += fmt::format("{:<9} {}\n", "why", decision.why);
  if (target.unmeasured) {
    text += fmt::format("{:<9} {}\n", "times", "estimate, never measured on this target");
  }
  if (decision.spec.algorithm.repack) text += copying_steps(subject);
  text += merged_parts(subject);
  for (const Considered& entry : next) {
    text += row("next", entry.name, width, describe_next(subject, entry));
  }
  text += everything ? refused_one_by_one(refused, width) : refused_by_rule(refused);
  if (!all.empty()) text += counts(legal, refused.size(), detail);
  return text;
}

}  // namespace tessera
