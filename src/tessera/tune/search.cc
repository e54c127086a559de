// The search space is the legal kernels that the family enumerates, so that the dispatcher can use
// every kernel that is found. Each field of an algorithm is an axis, and the values that occur are
// the places on it.
#include "tessera/tune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/base/timer.h"
#include "tessera/learn/ranker.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::tune {
namespace {

constexpr std::array<std::string_view, 3> kStrategyNames = {"random", "evolution", "exhaustive"};
static_assert(kStrategyNames.size() == static_cast<std::size_t>(SearchStrategy::exhaustive) + 1);

constexpr std::size_t kBatch = 256;
// Evaluations are few, so the population is small and its best member is the base of proposals. F
// and CR have common values. Source: with 60 evaluations among 928 kernels of a smooth test
// function, the best kernel found has rank 1.3 with these settings, rank 7 with a population of 20
// and a random base, and rank 11 with random kernels (means of 2,000 searches; 300 for the second).
constexpr std::size_t kPopulation = 10;
constexpr double kWeight = 0.6;
constexpr double kCrossover = 0.7;
constexpr double kJump = 0.05;  // probability that an axis of a proposal jumps to a random place

double number(auto value) { return static_cast<double>(value); }

// Calls visit(number) for each axis: a field has one axis, a shape has three.
template <class Visit>
constexpr void for_each_axis(const Algorithm& a, Visit visit) {
  const auto one = [&visit]<class Value>(const Value& value) {
    if constexpr (std::is_same_v<Value, Shape3>) {
      for (const int size : {value.m, value.n, value.k}) visit(size);
    } else {
      visit(value);
    }
  };
  Fields<Algorithm>::kAll([&](const auto&... row) { (one(a.*row.member), ...); });
}

consteval std::size_t count_axes() {
  std::size_t count = 0;
  for_each_axis(Algorithm{}, [&count](auto) { ++count; });
  return count;
}
constexpr std::size_t kAxes = count_axes();
using Point = std::array<double, kAxes>;

Point raw_point(const Algorithm& a) {
  Point point{};
  std::size_t axis = 0;
  for_each_axis(a, [&](auto value) { point[axis++] = number(value); });
  return point;
}

// Legal kernels, each with its places on the axes.
struct Space {
  std::vector<KernelSpec> specs;  // sorted by name
  std::vector<Point> points;
  Point places{};  // how many places each axis has
};

// Replaces values by their indices among the values that occur.
void make_places(Space& space) {
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    std::vector<double> values;
    for (const Point& point : space.points) values.push_back(point[axis]);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    space.places[axis] = number(values.size());
    for (Point& point : space.points) {
      const auto place = std::lower_bound(values.begin(), values.end(), point[axis]);
      point[axis] = number(place - values.begin());
    }
  }
}

Space legal_space(const Problem& problem, const Target& target) {
  const Family& family = family_of(problem);
  family.validate(problem);
  Space space;
  for (KernelSpec& spec : family.candidates(problem, target)) {
    if (!family.is_legal(spec, target) || !family.supports(spec, problem, target)) continue;
    space.points.push_back(raw_point(spec.algorithm));
    space.specs.push_back(std::move(spec));
  }
  if (space.specs.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("search: no kernel of {}'s space can run '{}'; 'tessera explain' "
                            "says why",
                            target.name, to_string(problem)));
  }
  make_places(space);
  return space;
}

class Search {
 public:
  Search(const Problem& problem, const Target& target, const LearnedModel& surrogate,
         const SearchOptions& options)
      : problem_(problem),
        target_(target),
        surrogate_(surrogate),
        options_(options),
        threads_(units_used(options.threads, target)),
        space_(legal_space(problem, target)),
        random_(options.seed),
        values_(space_.specs.size(), std::numeric_limits<double>::infinity()),
        known_(space_.specs.size(), false) {
    require_opinion();
  }

  SearchResult run() {
    switch (options_.strategy) {
      case SearchStrategy::random:
        in_order(shuffled(), budget());
        break;
      case SearchStrategy::evolution:
        evolve();
        break;
      case SearchStrategy::exhaustive:
        in_order(all(), count());
        break;
    }
    return result();
  }

 private:
  using Indices = std::vector<std::size_t>;

  std::size_t count() const { return space_.specs.size(); }
  std::size_t budget() const { return std::min(options_.evaluations, count()); }

  // Checked before each batch except the first, so that there is always a result.
  bool may_go_on(std::size_t evaluations) {
    out_of_time_ = options_.seconds > 0 && evaluated_ > 0 && timer_.seconds() > options_.seconds;
    return !out_of_time_ && evaluated_ < evaluations;
  }

  RankInput input_of(std::span<const KernelSpec> specs) const {
    return {problem_, target_, threads_, specs};
  }

  void require_opinion() const {
    if (!surrogate_.why_not) return;
    const std::string reason = surrogate_.why_not(input_of(space_.specs));
    if (!reason.empty()) throw Error(ErrorCode::unsupported, "search: " + reason);
  }

  void evaluate(const Indices& batch) {
    std::vector<KernelSpec> specs;
    for (const std::size_t i : batch) specs.push_back(space_.specs[i]);
    std::vector<double> values(batch.size());
    if (!surrogate_.predict(input_of(specs), values)) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("search: the model has no opinion on '{}'", to_string(problem_)));
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      known_[batch[i]] = true;
      const bool counts =
          std::isfinite(values[i]) && (surrogate_.value != LearnedValue::seconds || values[i] > 0);
      if (counts) values_[batch[i]] = values[i];
    }
    evaluated_ += batch.size();
  }

  Indices all() const {
    Indices order(count());
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
  }
  Indices shuffled() {
    Indices order = all();
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i)]);
    return order;
  }

  void in_order(const Indices& order, std::size_t evaluations) {
    while (may_go_on(evaluations)) {
      const std::size_t end = std::min(evaluated_ + kBatch, evaluations);
      evaluate(Indices(order.begin() + static_cast<std::ptrdiff_t>(evaluated_),
                       order.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }

  // Each generation makes a proposal for every member. A proposal replaces its member when it is
  // better.
  void evolve() {
    Indices members = shuffled();
    members.resize(std::min(kPopulation, budget()));
    if (may_go_on(budget())) evaluate(members);
    while (may_go_on(budget())) {
      const Point& base = space_.points[best_of(members)];
      Indices trials;
      for (std::size_t i = 0; i < members.size() && evaluated_ + trials.size() < budget(); ++i) {
        trials.push_back(nearest(proposal(members, i, base)));
      }
      evaluate(trials);
      for (std::size_t i = 0; i < trials.size(); ++i) {
        if (values_[trials[i]] < values_[members[i]]) members[i] = trials[i];
      }
    }
  }

  std::size_t best_of(const Indices& members) const {
    return *std::min_element(members.begin(), members.end(), [this](std::size_t a, std::size_t b) {
      return values_[a] < values_[b];
    });
  }
  Point proposal(const Indices& members, std::size_t own, const Point& base) {
    Point trial = space_.points[members[own]];
    const Point& one = any(members);
    const Point& other = any(members);
    const std::size_t certain = below(kAxes);
    for (std::size_t axis = 0; axis < kAxes; ++axis) {
      if (axis == certain || uniform() < kCrossover) {
        const double moved = base[axis] + kWeight * (one[axis] - other[axis]);
        trial[axis] = std::clamp(std::round(moved), 0.0, space_.places[axis] - 1);
      }
      if (uniform() < kJump) trial[axis] = std::floor(uniform() * space_.places[axis]);
    }
    return trial;
  }
  const Point& any(const Indices& members) { return space_.points[members[below(members.size())]]; }

  // The nearest kernel that was not predicted yet, by the sum of distances on axes of equal length.
  // The kernel is then marked as known. There must be at least one such kernel.
  std::size_t nearest(const Point& point) {
    std::size_t best = count();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < count(); ++i) {
      if (known_[i]) continue;
      double distance = 0;
      for (std::size_t axis = 0; axis < kAxes; ++axis) {
        const double length = std::max(space_.places[axis] - 1, 1.0);
        distance += std::abs(point[axis] - space_.points[i][axis]) / length;
      }
      if (distance >= least) continue;
      least = distance;
      best = i;
    }
    known_[best] = true;
    return best;
  }

  // The C++ standard does not fix the values of its distributions. These are the same everywhere.
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
  double uniform() { return number(random_() >> 11) * 0x1p-53; }

  SearchResult result() const {
    SearchResult r;
    r.space = count();
    r.evaluations = evaluated_;
    r.seconds = timer_.seconds();
    r.out_of_time = out_of_time_;
    for (std::size_t i = 0; i < count(); ++i) {
      if (!std::isfinite(values_[i])) continue;
      r.found.push_back({space_.specs[i], name_of(space_.specs[i]), values_[i]});
    }
    std::stable_sort(r.found.begin(), r.found.end(),
                     [](const FoundKernel& a, const FoundKernel& b) {
                       return a.value != b.value ? a.value < b.value : a.name < b.name;
                     });
    if (!r.found.empty()) return r;
    throw Error(ErrorCode::unsupported,
                fmt::format("search: the model predicts no time for any of {} kernels on '{}'",
                            evaluated_, to_string(problem_)));
  }

  const Problem& problem_;
  const Target& target_;
  const LearnedModel& surrogate_;
  const SearchOptions& options_;
  int threads_;
  Space space_;
  std::mt19937_64 random_;
  std::vector<double> values_;
  std::vector<bool> known_;
  std::size_t evaluated_ = 0;
  bool out_of_time_ = false;
  Timer timer_;
};

}  // namespace

std::string_view to_string(SearchStrategy strategy) {
  return row_of_enum(kStrategyNames, "search strategy", strategy);
}

SearchStrategy parse_search_strategy(std::string_view word) {
  for (std::size_t i = 0; i < kStrategyNames.size(); ++i) {
    if (kStrategyNames[i] == word) return static_cast<SearchStrategy>(i);
  }
  const std::vector<std::string> known(kStrategyNames.begin(), kStrategyNames.end());
  throw Error(ErrorCode::not_found, fmt::format("search: unknown strategy '{}'{} (known: {})", word,
                                                did_you_mean(word, known), join(known, ", ")));
}

LearnedModel analytic_surrogate() {
  LearnedModel surrogate;
  surrogate.predict = [](const RankInput& input, std::span<double> values) {
    const Family& family = family_of(input.problem);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] =
          family.estimate(input.legal[i], input.problem, input.target, input.threads).seconds;
    }
    return true;
  };
  return surrogate;
}

LearnedModel model_surrogate(const std::shared_ptr<const Model>& model) {
  LearnedModel surrogate;
  surrogate.value = learned_value(model->manifest.quantity);
  surrogate.predict = [model](const RankInput& input, std::span<double> values) {
    return predict_seconds(*model, family_of(input.problem).extract, input, values);
  };
  surrogate.why_not = [model](const RankInput& input) {
    return make_model_ranker(model, family_of(input.problem).extract)->why_not(input);
  };
  return surrogate;
}

SearchResult search(const Problem& problem, const Target& target, const LearnedModel& surrogate,
                    const SearchOptions& options) {
  check_enum("search: strategy", options.strategy, SearchStrategy::exhaustive);
  if (options.evaluations == 0 && options.strategy != SearchStrategy::exhaustive) {
    throw Error(ErrorCode::invalid_argument,
                "search: the budget must be at least 1 evaluation, got 0");
  }
  return Search(problem, target, surrogate, options).run();
}

std::vector<MeasuredKernel> measure_best(const Problem& problem, const Target& target,
                                         const SearchResult& result, std::size_t top,
                                         measure::SweepStore& store,
                                         const measure::SweepOptions& options) {
  std::vector<MeasuredKernel> measured;
  std::vector<KernelSpec> specs;
  for (std::size_t i = 0; i < std::min(top, result.found.size()); ++i) {
    measured.push_back({result.found[i], measure::Outcome::refused, 0, 0, ""});
    specs.push_back(result.found[i].spec);
  }
  measure::SweepOptions all = options;
  all.finalists = static_cast<int>(specs.size());
  const measure::SweepReport report = sweep(std::span(&problem, 1), specs, target, store, all);
  if (!report.unmeasured.empty()) {
    throw Error(ErrorCode::unsupported, "search: not measured: " + report.unmeasured.front());
  }
  const measure::SweepData data = store.read();
  for (const measure::SweepRow& row : data.rows) {
    const std::string& kernel = data.kernels[static_cast<std::size_t>(row.kernel)];
    const bool same = data.problems[static_cast<std::size_t>(row.problem)] == to_string(problem);
    for (MeasuredKernel& m : measured) {
      if (!same || m.kernel.name != kernel) continue;
      m.outcome = row.outcome;
      m.seconds = row.seconds;
      m.spread = row.spread;
      m.note = row.note;
    }
  }
  std::stable_sort(measured.begin(), measured.end(),
                   [](const MeasuredKernel& a, const MeasuredKernel& b) {
                     const auto key = [](const MeasuredKernel& m) {
                       return std::pair(m.outcome != measure::Outcome::ok, m.seconds);
                     };
                     return key(a) < key(b);
                   });
  return measured;
}

}  // namespace tessera::tune
