#include "tessera/train/report.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "tessera/families/family.h"
#include "tessera/learn/ranker.h"

namespace tessera::train {
namespace {

constexpr std::uint64_t kSeed = 1;  // of random choices and samples, so that equal data give equal
                                    // pages

std::vector<std::pair<std::string, std::string>> facts_of(const Dataset& data, const Target& target,
                                                          const Model& model, std::size_t outside) {
  const Manifest& m = model.manifest;
  std::string versions;
  for (const auto& [name, version] : m.versions) {
    versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", name, version);
  }
  return {
      {"Target", fmt::format("{}: {}", target.name, target.description)},
      {"Threads", fmt::format("{}", fmt::join(thread_numbers(data), ", "))},
      {"Measurements",
       fmt::format("{} rows: {} problems, {} kernels, on {}", data.rows.size(),
                   data.problems.size(), data.kernels.size(), fmt::join(data.devices, ", "))},
      {"Data", data.hash},
      {"Model", fmt::format("{} of {} on {}, {} trees, trained {} on {} rows of {} problems",
                            to_string(m.quantity), fmt::join(m.dtypes, ", "), m.target,
                            model.forest.roots.size(), m.date, m.rows, m.problems)},
      {"Versions", versions},
      {"Outside of the model's range", fmt::format("{} of {} problems, left to the analytic ranker",
                                                   outside, data.problems.size())},
  };
}

// Predicted and measured times of rows whose problems the model has an opinion on.
std::vector<PredictedTime> sample_of(const Dataset& data, const std::vector<ScoredRow>& rows,
                                     const std::set<std::size_t>& outside) {
  std::vector<PredictedTime> all;
  for (const ScoredRow& row : rows) {
    const bool is_time = std::isfinite(row.score) && row.score < 0;
    if (is_time && !outside.contains(row.problem)) all.push_back({-row.score, row.seconds});
  }
  std::mt19937_64 random(kSeed + data.rows.size());
  for (std::size_t i = 0; i < kMostPoints && i < all.size(); ++i) {
    std::swap(all[i], all[i + random() % (all.size() - i)]);
  }
  all.resize(std::min(all.size(), kMostPoints));
  return all;
}

// The roofs count the most threads of the data on a CPU, or all units of a GPU. Types without an
// instruction in the target's row have no roof.
std::vector<Roof> roofs_of(const Dataset& data, const Target& target) {
  const int units =
      counts_threads(target) ? std::min(thread_numbers(data).back(), target.units) : target.units;
  const Family& family = family_of(op_of(data));
  std::map<std::string, Roof> roofs;
  for (const Problem& problem : data.problems) {
    const Instruction* best = family.roof(problem, target);
    if (best == nullptr) continue;
    const std::string name(to_string(family.facts(problem).dtype));
    roofs[name] = {name, peak_of(*best, target, units), 1e9 * target.memory_gb_per_s};
  }
  std::vector<Roof> list;
  for (auto& [name, roof] : roofs) list.push_back(std::move(roof));
  return list;
}

std::vector<RoofPoint> points_of(const Dataset& data, const Evaluation& evaluation) {
  std::vector<RoofPoint> points;
  for (const ProblemResult& result : evaluation.results) {
    const Problem& problem = data.problems[result.problem];
    const Family& family = family_of(problem);
    const double flops = family.flops(problem);
    const double bytes = family.bytes(problem);
    if (flops <= 0 || bytes <= 0) continue;
    points.push_back({result.problem, flops / bytes, flops / result.chosen_seconds});
  }
  return points;
}

}  // namespace

ReportData make_report(const Dataset& data, const Target& target,
                       const std::shared_ptr<const Model>& model,
                       std::vector<FeatureGain> importance) {
  std::set<std::size_t> outside;
  for (const Outside& o : outside_of(data, target, model)) outside.insert(o.problem);
  const std::vector<ScoredRow> scored = score_model(data, target, model);
  ReportData report;
  report.title = fmt::format("{} kernels on {}: how well they are chosen", to_string(op_of(data)),
                             target.name);
  report.facts = facts_of(data, target, *model, outside.size());
  report.problems = data.problems;
  report.learned = evaluate(data.problems, scored);
  report.analytic = evaluate(data.problems, score_analytic(data, target));
  report.random = evaluate(data.problems, score_random(data, kSeed));
  report.importance = std::move(importance);
  if (gives_times(model->manifest.quantity)) {
    report.times = sample_of(data, scored, outside);
  }
  report.chosen = points_of(data, report.learned);
  report.roofs = roofs_of(data, target);
  return report;
}

}  // namespace tessera::train
