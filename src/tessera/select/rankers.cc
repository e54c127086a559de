#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"
#include "tessera/select/select_internal.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 5> kSourceNames = {"pinned", "tuned", "learned", "analytic",
                                                          "first_legal"};
static_assert(kSourceNames.size() == static_cast<std::size_t>(ChoiceSource::first_legal) + 1);

// Among kernels whose predicted times differ by less than this share, one that is shipped
// ready-built is the better choice, because it need not be compiled. Estimates are off by more than
// this.
constexpr double kShippedShare = 0.03;
constexpr double kShippedShareLearned = 0.01;  // models are better than the estimate

// The index of a kernel among specs sorted by name.
std::optional<std::size_t> find_by_name(std::span<const KernelSpec> legal, std::string_view name) {
  const auto found = std::lower_bound(
      legal.begin(), legal.end(), name,
      [](const KernelSpec& spec, std::string_view wanted) { return name_of(spec) < wanted; });
  if (found == legal.end() || name_of(*found) != name) return std::nullopt;
  return static_cast<std::size_t>(found - legal.begin());
}

bool is_time(double seconds) { return std::isfinite(seconds) && seconds > 0; }

using FindTuned =
    std::function<std::optional<TunedEntry>(const Problem&, const Target&, int threads)>;

class TunedRanker final : public Ranker {
 public:
  explicit TunedRanker(FindTuned find) : find_(std::move(find)) {}
  ChoiceSource source() const override { return ChoiceSource::tuned; }
  std::string why(const RankInput&, const Ranked& best) const override {
    return fmt::format("fastest measured on this device: {}",
                       format_seconds(best.predicted_seconds));
  }

  // When the winner may no longer run here (another pool, a changed rule), this ranker has no
  // opinion.
  std::vector<Ranked> rank(const RankInput& input) const override {
    const std::optional<TunedEntry> entry = find_(input.problem, input.target, input.threads);
    if (!entry) return {};
    const auto index = find_by_name(input.legal, entry->kernel);
    if (!index) return {};
    return {{*index, entry->seconds}};
  }

 private:
  FindTuned find_;
};

bool is_essential(const RankInput& input, std::size_t index) {
  return family_of(input.problem).is_essential(input.legal[index], input.target);
}

// Moves the first shipped kernel whose time is within `share` of the best to the front. Which
// kernels are shipped is asked only where that can change the first one: the answer is in the sets,
// which have to be read.
void prefer_shipped(const RankInput& input, std::vector<Ranked>& ranked, double share) {
  if (ranked.size() < 2) return;
  const double limit = ranked.front().predicted_seconds * (1 + share);
  if (ranked[1].predicted_seconds > limit) return;
  for (auto it = ranked.begin(); it != ranked.end() && it->predicted_seconds <= limit; ++it) {
    if (!is_essential(input, it->index)) continue;
    std::rotate(ranked.begin(), it, it + 1);
    return;
  }
}

// Keeps only the kernels that can still come first: those nearly equal to the best, and shipped
// kernels within `share` of it. Rounding may move both limits a little.
void keep_near_best(std::vector<Ranked>& ranked, double share) {
  double least = std::numeric_limits<double>::infinity();
  for (const Ranked& entry : ranked) least = std::min(least, entry.predicted_seconds);
  const double limit = least * (1 + share) * (1 + 3 * kNearTie);
  std::erase_if(ranked, [&](const Ranked& entry) { return entry.predicted_seconds > limit; });
}

// Sorts times, as far as the input asks for it.
void order(const RankInput& input, std::vector<Ranked>& ranked, double shipped_share) {
  if (input.only_best) keep_near_best(ranked, shipped_share);
  sort_best_first(ranked);
  prefer_shipped(input, ranked, shipped_share);
}

class LearnedRanker final : public Ranker {
 public:
  explicit LearnedRanker(LearnedModel model) : model_(std::move(model)) {}
  ChoiceSource source() const override { return ChoiceSource::learned; }
  std::string why(const RankInput& input, const Ranked& best) const override {
    const std::string how = model_.how ? model_.how(input) : "";
    const Family& family = family_of(input.problem);
    const KernelSpec& spec = input.legal[best.index];
    if (!family.is_described(spec)) {
      return fmt::format(
          "by the estimate before the first by the learned model among {} legal candidates{}",
          input.legal.size(), how);
    }
    if (model_.value == LearnedValue::ratio) {
      return fmt::format(
          "least time by the learned model among {} legal candidates{}: {} by the estimate",
          input.legal.size(), how, format_seconds(best.predicted_seconds));
    }
    if (model_.value == LearnedValue::score) {
      return fmt::format("first by the learned model among {} legal candidates{}",
                         input.legal.size(), how);
    }
    return fmt::format("least time by the learned model among {} legal candidates{}: {}",
                       input.legal.size(), how, format_seconds(best.predicted_seconds));
  }
  std::string why_not(const RankInput& input) const override {
    return model_.why_not ? model_.why_not(input) : "";
  }

  std::vector<Ranked> rank(const RankInput& input) const override {
    std::vector<double> values(input.legal.size(), 0.0);
    if (!model_.predict(input, values)) return {};
    const bool is_positive = model_.value != LearnedValue::score;
    std::vector<Ranked> ranked;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool counts = is_positive ? is_time(values[i]) : std::isfinite(values[i]);
      if (counts) ranked.push_back({i, values[i]});
    }
    if (!is_positive) {
      sort_by_score(ranked);
      return ranked;
    }
    order(input, ranked, kShippedShareLearned);
    if (model_.value == LearnedValue::ratio) scale_to_estimate(input, ranked);
    return ranked;
  }

 private:
  // Ratios become times through the estimated time of the first kernel.
  static void scale_to_estimate(const RankInput& input, std::vector<Ranked>& ranked) {
    if (ranked.empty()) return;
    const Family& family = family_of(input.problem);
    const Ranked first = ranked.front();
    const Estimate estimate =
        family.estimate(input.legal[first.index], input.problem, input.target, input.threads);
    const double unit = estimate.seconds / first.predicted_seconds;
    for (Ranked& entry : ranked) entry.predicted_seconds *= is_time(unit) ? unit : 0;
  }

  // Scores have no unit. Two scores are never "nearly equal", and no score is shown as a time.
  static void sort_by_score(std::vector<Ranked>& ranked) {
    std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
      return std::pair(a.predicted_seconds, a.index) < std::pair(b.predicted_seconds, b.index);
    });
    for (Ranked& entry : ranked) entry.predicted_seconds = 0;
  }

  LearnedModel model_;
};

class AnalyticRanker final : public Ranker {
 public:
  ChoiceSource source() const override { return ChoiceSource::analytic; }
  std::string why(const RankInput& input, const Ranked& best) const override {
    const Estimate estimate = estimate_of(input, best.index);
    const bool shipped = is_essential(input, best.index);
    return fmt::format(
        "least estimated time among {} legal candidates{}: {} (compute {}, memory {}, overhead {})",
        input.legal.size(), shipped ? ", or within 3% of it and shipped ready-built" : "",
        format_seconds(estimate.seconds), format_seconds(estimate.compute_seconds),
        format_seconds(estimate.memory_seconds), format_seconds(estimate.overhead_seconds));
  }

  std::vector<Ranked> rank(const RankInput& input) const override {
    std::vector<Ranked> ranked;
    ranked.reserve(input.legal.size());
    for (std::size_t i = 0; i < input.legal.size(); ++i) {
      const double seconds = estimate_of(input, i).seconds;
      if (is_time(seconds)) ranked.push_back({i, seconds});
    }
    order(input, ranked, kShippedShare);
    return ranked;
  }

 private:
  static Estimate estimate_of(const RankInput& input, std::size_t index) {
    return family_of(input.problem)
        .estimate(input.legal[index], input.problem, input.target, input.threads);
  }
};

class FirstLegalRanker final : public Ranker {
 public:
  ChoiceSource source() const override { return ChoiceSource::first_legal; }
  std::string why(const RankInput& input, const Ranked&) const override {
    return fmt::format("first by name of {} legal candidates", input.legal.size());
  }
  std::vector<Ranked> rank(const RankInput& input) const override {
    std::vector<Ranked> ranked;
    for (std::size_t i = 0; i < input.legal.size(); ++i) ranked.push_back({i, 0});
    return ranked;
  }
};

// A candidate by the length that it is tuned for.
struct ByLength {
  bool is_short = false;  // whether the problem is longer
  std::int64_t order = 0;
  double seconds = 0;
  std::size_t index = 0;
  auto operator<=>(const ByLength&) const = default;
};

class LengthRanker final : public Ranker {
 public:
  ChoiceSource source() const override { return ChoiceSource::first_legal; }
  std::string why(const RankInput& input, const Ranked& best) const override {
    const auto length =
        family_of(input.problem).tuned_length(input.legal[best.index], input.problem, input.target);
    return fmt::format(
        "the length that it is tuned for, {}, suits {} best among {} legal candidates",
        length ? length->tuned : 0, length ? length->asked : 0, input.legal.size());
  }
  std::vector<Ranked> rank(const RankInput& input) const override {
    const Family& family = family_of(input.problem);
    std::vector<ByLength> all;
    for (std::size_t i = 0; i < input.legal.size(); ++i) {
      const auto length = family.tuned_length(input.legal[i], input.problem, input.target);
      if (!length) return {};
      const bool is_short = length->tuned < length->asked;
      const double seconds =
          family.estimate(input.legal[i], input.problem, input.target, input.threads).seconds;
      all.push_back({is_short, is_short ? -length->tuned : length->tuned, seconds, i});
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return (a <=> b) < 0; });
    std::vector<Ranked> ranked;
    for (const ByLength& each : all) ranked.push_back({each.index, each.seconds});
    return ranked;
  }
};

}  // namespace

std::string_view to_string(ChoiceSource source) {
  return row_of_enum(kSourceNames, "choice source", source);
}

// Kernels are sorted by exact time, then by index. After that, each run of nearly equal neighbours
// is put in the order of indices, so that the last bit of a floating-point sum never decides.
void sort_best_first(std::vector<Ranked>& ranked) {
  const auto by_index = [](const Ranked& a, const Ranked& b) { return a.index < b.index; };
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return std::pair(a.predicted_seconds, a.index) < std::pair(b.predicted_seconds, b.index);
  });
  for (auto first = ranked.begin(); first != ranked.end();) {
    const double limit = first->predicted_seconds * (1 + kNearTie);
    const auto last = std::find_if(first + 1, ranked.end(),
                                   [&](const Ranked& r) { return r.predicted_seconds > limit; });
    if (!std::is_sorted(first, last, by_index)) std::sort(first, last, by_index);
    first = last;
  }
}

std::shared_ptr<const Ranker> make_tuned_ranker(FindTuned find) {
  return std::make_shared<TunedRanker>(std::move(find));
}
std::shared_ptr<const Ranker> make_learned_ranker(LearnedModel model) {
  check_enum("learned model: value", model.value, LearnedValue::score);
  return std::make_shared<LearnedRanker>(std::move(model));
}
std::shared_ptr<const Ranker> make_analytic_ranker() { return std::make_shared<AnalyticRanker>(); }
std::shared_ptr<const Ranker> make_length_ranker() { return std::make_shared<LengthRanker>(); }
std::shared_ptr<const Ranker> make_first_legal_ranker() {
  return std::make_shared<FirstLegalRanker>();
}

}  // namespace tessera
