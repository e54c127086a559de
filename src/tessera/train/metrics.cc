#include "tessera/train/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera::train {
namespace {

constexpr std::size_t kWorst = 10;
constexpr double kMeanLoss = 0.005;
constexpr double kP10Loss = 0.02;
constexpr double kProblemLoss = 0.1;

template <class... Args>
[[noreturn]] void refuse_rows(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "evaluate: " + fmt::format(sentence, std::forward<Args>(args)...));
}

void check(const ScoredRow& row, std::size_t problems) {
  if (row.problem >= problems) {
    refuse_rows("a row of {} belongs to problem {}, there are {}", row.kernel, row.problem,
                problems);
  }
  if (!std::isfinite(row.seconds) || row.seconds <= 0) {
    refuse_rows("the time of {} on problem {} must be positive, got {} s", row.kernel, row.problem,
                row.seconds);
  }
  if (std::isnan(row.score)) {
    refuse_rows("the score of {} on problem {} is no number", row.kernel, row.problem);
  }
}

// ---- one problem ----

using Rows = std::vector<const ScoredRow*>;

bool scores_higher(const ScoredRow* a, const ScoredRow* b) {
  return a->score != b->score ? a->score > b->score : a->kernel < b->kernel;
}
bool is_faster(const ScoredRow* a, const ScoredRow* b) {
  return a->seconds != b->seconds ? a->seconds < b->seconds : a->kernel < b->kernel;
}

double discounted_gain(const Rows& rows, double best_seconds) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    sum += best_seconds / rows[i]->seconds / std::log2(static_cast<double>(i) + 2);
  }
  return sum;
}

void refuse_twins(Rows by_name) {
  const auto name = [](const ScoredRow* row) -> const std::string& { return row->kernel; };
  std::ranges::sort(by_name, {}, name);
  const auto twin = std::ranges::adjacent_find(by_name, {}, name);
  if (twin == by_name.end()) return;
  refuse_rows("{} comes twice on problem {}, with {} s and {} s", (*twin)->kernel, (*twin)->problem,
              (*twin)->seconds, (*std::next(twin))->seconds);
}

// `best` is the name of the best kernel; null: the fastest row.
ProblemResult result_of(Rows rows, const std::string* best) {
  refuse_twins(rows);
  Rows by_time = rows;
  std::sort(by_time.begin(), by_time.end(), is_faster);
  const ScoredRow* fastest = by_time[0];
  if (best != nullptr) fastest = *std::ranges::find(by_time, *best, &ScoredRow::kernel);
  std::sort(rows.begin(), rows.end(), scores_higher);
  ProblemResult o;
  o.problem = rows[0]->problem;
  o.chosen = rows[0]->kernel;
  o.chosen_seconds = rows[0]->seconds;
  o.best = fastest->kernel;
  o.best_seconds = fastest->seconds;
  o.efficiency = std::min(1.0, o.best_seconds / o.chosen_seconds);
  o.ndcg = discounted_gain(rows, o.best_seconds) / discounted_gain(by_time, o.best_seconds);
  const auto as_fast = std::ranges::find(rows, o.best_seconds, &ScoredRow::seconds);
  o.rank_of_best = static_cast<int>(as_fast - rows.begin()) + 1;
  for (std::size_t i = 0; i < kTop.size(); ++i) {
    const auto count = std::min<std::ptrdiff_t>(kTop[i], std::ssize(rows));
    const auto first = std::min_element(rows.begin(), rows.begin() + count, is_faster);
    o.regret_of_top[i] = std::max(0.0, (*first)->seconds / o.best_seconds - 1);
  }
  return o;
}

// ---- many problems ----

double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Summary summarise(const std::vector<const ProblemResult*>& results) {
  Summary s;
  s.problems = results.size();
  const double each = 1.0 / static_cast<double>(results.size());
  std::vector<double> efficiencies;
  std::array<std::size_t, 3> hits{};
  double total = 0;
  double ndcg = 0;
  std::array<double, 4> regret{};
  for (const ProblemResult* o : results) {
    efficiencies.push_back(o->efficiency);
    total += o->efficiency;
    ndcg += o->ndcg;
    for (std::size_t i = 0; i < hits.size(); ++i) hits[i] += o->rank_of_best <= kTop[i] ? 1 : 0;
    for (std::size_t i = 0; i < kTop.size(); ++i) {
      regret[i] += o->regret_of_top[i];
      s.worst_regret[i] = std::max(s.worst_regret[i], o->regret_of_top[i]);
    }
  }
  std::sort(efficiencies.begin(), efficiencies.end());
  s.mean = total * each;
  s.p50 = percentile(efficiencies, 0.5);
  s.p10 = percentile(efficiencies, 0.1);
  s.min = efficiencies.front();
  s.ndcg = ndcg * each;
  s.top1 = static_cast<double>(hits[0]) * each;
  s.top3 = static_cast<double>(hits[1]) * each;
  s.top5 = static_cast<double>(hits[2]) * each;
  for (std::size_t i = 0; i < kTop.size(); ++i) s.mean_regret[i] = regret[i] * each;
  return s;
}

// The problem's labels, and the pipeline of the chosen kernel.
std::vector<Label> labels_of(const Problem& problem, const std::string& chosen) {
  const Facts facts = family_of(problem).facts(problem);
  std::vector<Label> labels = facts.types;
  labels.insert(labels.end(), facts.sizes.begin(), facts.sizes.end());
  labels.push_back({"pipeline", std::string(to_string(parse_name(chosen).algorithm.pipeline))});
  return labels;
}

std::vector<Slice> slices_of(std::span<const Problem> problems,
                             const std::vector<ProblemResult>& results) {
  std::map<std::pair<std::string, std::string>, std::vector<const ProblemResult*>> parts;
  for (const ProblemResult& o : results) {
    for (const Label& label : labels_of(problems[o.problem], o.chosen)) {
      parts[{label.by, label.value}].push_back(&o);
    }
  }
  std::vector<Slice> slices;
  for (const auto& [words, part] : parts) {
    slices.push_back({words.first, words.second, summarise(part)});
  }
  return slices;
}

std::vector<ProblemResult> worst_of(std::vector<ProblemResult> results) {
  std::stable_sort(
      results.begin(), results.end(),
      [](const ProblemResult& a, const ProblemResult& b) { return a.efficiency < b.efficiency; });
  results.resize(std::min(results.size(), kWorst));
  return results;
}

}  // namespace

Oracle fastest_of(std::span<const ScoredRow> rows) {
  std::map<std::size_t, const ScoredRow*> fastest;
  for (const ScoredRow& row : rows) {
    const ScoredRow*& best = fastest[row.problem];
    if (best == nullptr || is_faster(&row, best)) best = &row;
  }
  Oracle oracle;
  for (const auto& [problem, row] : fastest) oracle[problem] = row->kernel;
  return oracle;
}

Evaluation evaluate(std::span<const Problem> problems, std::span<const ScoredRow> rows,
                    const Oracle& oracle) {
  if (rows.empty()) refuse_rows("there is no row of measurements for {} problems", problems.size());
  std::map<std::size_t, Rows> rows_of;
  for (const ScoredRow& row : rows) {
    check(row, problems.size());
    rows_of[row.problem].push_back(&row);
  }
  Evaluation e;
  for (auto& [problem, its_rows] : rows_of) {
    const auto named = oracle.find(problem);
    const std::string* best = named == oracle.end() ? nullptr : &named->second;
    const bool judged = best != nullptr && std::ranges::count(its_rows, *best, &ScoredRow::kernel);
    if (!oracle.empty() && !judged) continue;
    e.results.push_back(result_of(std::move(its_rows), best));
  }
  if (e.results.empty()) {
    refuse_rows("none of the {} kernels of the oracle was measured on its problem", oracle.size());
  }
  std::vector<const ProblemResult*> all;
  for (const ProblemResult& o : e.results) all.push_back(&o);
  e.summary = summarise(all);
  e.slices = slices_of(problems, e.results);
  e.worst = worst_of(e.results);
  return e;
}

// ---- a model against the one before ----

namespace {

void count(const ProblemResult& before, const ProblemResult& after, Comparison& c) {
  c.agreeing += before.chosen == after.chosen ? 1 : 0;
  c.improved += after.chosen_seconds < before.chosen_seconds ? 1 : 0;
  c.same += after.chosen_seconds == before.chosen_seconds ? 1 : 0;
  c.degraded += after.chosen_seconds > before.chosen_seconds ? 1 : 0;
}

void require(Comparison& c, double ratio, double loss, std::string_view what) {
  if (ratio >= 1 - loss) return;
  c.accepted = false;
  c.reasons.push_back(fmt::format("{} falls by {:.2f}%, at most {:.1f}% are allowed", what,
                                  100 * (1 - ratio), 100 * loss));
}

}  // namespace

Comparison compare(const Evaluation& before, const Evaluation& after,
                   std::span<const Problem> problems) {
  const bool same = std::ranges::equal(before.results, after.results, {}, &ProblemResult::problem,
                                       &ProblemResult::problem);
  if (!same || before.results.empty()) {
    refuse_rows("two evaluations are compared on the same problems, got {} and {}",
                before.results.size(), after.results.size());
  }
  Comparison c;
  c.mean = after.summary.mean / before.summary.mean;
  c.p50 = after.summary.p50 / before.summary.p50;
  c.p10 = after.summary.p10 / before.summary.p10;
  c.worst = HUGE_VAL;
  for (std::size_t i = 0; i < before.results.size(); ++i) {
    count(before.results[i], after.results[i], c);
    const double ratio = after.results[i].efficiency / before.results[i].efficiency;
    if (ratio >= c.worst) continue;
    c.worst = ratio;
    c.worst_problem = before.results[i].problem;
  }
  require(c, c.mean, kMeanLoss, "the mean of efficiency");
  require(c, c.p50, kMeanLoss, "the median of efficiency");
  require(c, c.p10, kP10Loss, "P10 of efficiency");
  require(c, c.worst, kProblemLoss, to_string(problems[c.worst_problem]));
  return c;
}

}  // namespace tessera::train
