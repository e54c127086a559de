#include "tessera/measure/sweep_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/runtime/benchmark.h"

namespace tessera::measure {
namespace {

constexpr double kMadToSigma = 0.6745;  // of a normal distribution
constexpr double kLeastMad = 0.02;      // in logs: 2%
constexpr double kIqrToSigma = 1.349;   // of a normal distribution

const SweepRun& run_of(const SweepData& data, int run) {
  return data.runs[static_cast<std::size_t>(run)];
}

// "gemm_... on 'gemm m=1 ...' (device, 2 threads)".
template <typename Row>
std::string row_words(const SweepData& data, const Row& row) {
  const SweepRun& run = run_of(data, row.run);
  return fmt::format("{} on '{}' ({}, {} threads)",
                     data.kernels[static_cast<std::size_t>(row.kernel)],
                     data.problems[static_cast<std::size_t>(row.problem)], run.device, run.threads);
}

using Machine = std::tuple<std::string, std::string, int>;
Machine machine_of(const SweepRun& run) { return {run.device, run.target, run.threads}; }

// Collects sentences with a badness; keeps the worst.
class Collector {
 public:
  Collector(std::string what, std::string rule)
      : finding_{std::move(what), 0, std::move(rule), {}} {}
  void add(double badness, std::string sentence) {
    ++finding_.count;
    found_.emplace_back(badness, std::move(sentence));
  }
  Finding take(std::size_t examples) {
    std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    for (auto& [badness, sentence] : found_) {
      if (finding_.examples.size() < examples) finding_.examples.push_back(std::move(sentence));
    }
    return std::move(finding_);
  }

 private:
  Finding finding_;
  std::vector<std::pair<double, std::string>> found_;
};

// A row that is ok, and the part of the log of its time that is not explained yet.
struct LogTime {
  const SweepRow* row;
  double rest;
};

// Subtracts from each group's remainders their median.
template <typename Key>
void explain(std::vector<LogTime>& times, const Key& key) {
  std::map<decltype(key(*times.front().row)), std::vector<double>> groups;
  for (const LogTime& time : times) groups[key(*time.row)].push_back(time.rest);
  std::map<decltype(key(*times.front().row)), double> medians;
  for (const auto& [group, rests] : groups) medians[group] = runtime::quantile(rests, 0.5);
  for (LogTime& time : times) time.rest -= medians[key(*time.row)];
}

Finding outliers(const SweepData& data, const CheckLimits& limits) {
  Collector collector("outlier", fmt::format("further than {:g} robust standard deviations from "
                                             "what its problem and its kernel let expect, in logs",
                                             limits.outlier_z));
  std::vector<LogTime> times;
  for (const SweepRow& row : data.rows) {
    if (row.outcome == Outcome::ok && row.seconds > 0)
      times.push_back({&row, std::log(row.seconds)});
  }
  const auto by_problem = [&](const SweepRow& row) {
    return std::pair(machine_of(run_of(data, row.run)), row.problem);
  };
  const auto by_kernel = [&](const SweepRow& row) {
    return std::pair(machine_of(run_of(data, row.run)), row.kernel);
  };
  explain(times, by_problem);
  explain(times, by_kernel);
  std::map<std::pair<Machine, int>, std::vector<double>> distances;
  for (const LogTime& time : times) distances[by_problem(*time.row)].push_back(std::abs(time.rest));
  for (const LogTime& time : times) {
    const std::vector<double>& others = distances[by_problem(*time.row)];
    if (static_cast<int>(others.size()) < limits.least_rows) continue;
    const double mad = std::max(runtime::quantile(others, 0.5), kLeastMad);
    const double z = kMadToSigma * time.rest / mad;
    if (std::abs(z) <= limits.outlier_z) continue;
    collector.add(std::abs(z), fmt::format("{}: {:.3g} s, expected were {:.3g} s (z {:.1f})",
                                           row_words(data, *time.row), time.row->seconds,
                                           time.row->seconds * std::exp(-time.rest), z));
  }
  return collector.take(limits.examples);
}

// Medians of three neighbours, because a single disturbed reading is no drift.
std::vector<double> smoothed(const std::vector<double>& values) {
  if (values.size() < 3) return values;
  std::vector<double> result;
  for (std::size_t i = 1; i + 1 < values.size(); ++i) {
    result.push_back(runtime::quantile({values[i - 1], values[i], values[i + 1]}, 0.5));
  }
  return result;
}

Finding drift(const SweepData& data, const CheckLimits& limits) {
  Collector collector("drift", fmt::format("a run whose clock readings differ by more than {:g}%",
                                           100 * limits.drift));
  std::map<int, std::vector<const ClockReading*>> runs;
  for (const ClockReading& reading : data.clock) runs[reading.run].push_back(&reading);
  for (auto& [run, readings] : runs) {
    std::sort(readings.begin(), readings.end(),
              [](const ClockReading* a, const ClockReading* b) { return a->at < b->at; });
    std::vector<double> seconds;
    for (const ClockReading* reading : readings) seconds.push_back(reading->seconds);
    seconds = smoothed(seconds);
    const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
    const double change = *low > 0 ? *high / *low - 1 : 0;
    if (change <= limits.drift) continue;
    collector.add(change, fmt::format("run {}: {} took {:.3g} s to {:.3g} s over {:.0f} s",
                                      run_of(data, run).id, row_words(data, *readings.front()),
                                      *low, *high, readings.back()->at - readings.front()->at));
  }
  return collector.take(limits.examples);
}

// Problems are compared by their meaning, not by their text.
Finding duplicates(const SweepData& data, const CheckLimits& limits) {
  Collector collector("duplicate", "the same problem and kernel twice on one class of machine");
  std::vector<std::string> canonical = data.problems;
  for (std::string& text : canonical) {
    try {
      text = to_string(parse_problem(text));
    } catch (const Error&) {
      continue;  // this version cannot read the problem, so its text is compared
    }
  }
  std::map<std::tuple<Machine, std::string, std::string>, int> seen;
  for (const SweepRow& row : data.rows) {
    const int times =
        ++seen[{machine_of(run_of(data, row.run)), canonical[static_cast<std::size_t>(row.problem)],
                data.kernels[static_cast<std::size_t>(row.kernel)]}];
    if (times > 1) collector.add(times, row_words(data, row));
  }
  return collector.take(limits.examples);
}

Finding variation(const SweepData& data, const CheckLimits& limits) {
  Collector collector(
      "variation", fmt::format("a coefficient of variation above {:g}%", 100 * limits.variation));
  for (const SweepRow& row : data.rows) {
    const double cv = row.spread / kIqrToSigma;
    if (row.outcome != Outcome::ok || cv <= limits.variation) continue;
    collector.add(cv, fmt::format("{}: {:.0f}% over {} readings", row_words(data, row), 100 * cv,
                                  row.readings));
  }
  return collector.take(limits.examples);
}

// ---- description ----

std::vector<Share> shares(const std::map<std::string, std::int64_t>& counts) {
  std::vector<Share> result;
  for (const auto& [word, rows] : counts) result.push_back({word, rows});
  std::stable_sort(result.begin(), result.end(),
                   [](const Share& a, const Share& b) { return a.rows > b.rows; });
  return result;
}

// "bf16 rcr"; "other" for a problem that cannot be read.
std::string type_words(const std::string& problem) {
  try {
    const Problem parsed = parse_problem(problem);
    std::string words;
    for (const Label& label : family_of(parsed).facts(parsed).types) {
      words += fmt::format("{}{}", words.empty() ? "" : " ", label.value);
    }
    return words;
  } catch (const Error&) {
    return "other";
  }
}

std::string pipeline_words(const std::string& kernel) {
  try {
    return std::string(to_string(parse_name(kernel).algorithm.pipeline));
  } catch (const Error&) {
    return "other";
  }
}

std::vector<std::string> words_for(const std::vector<std::string>& texts,
                                   std::string (*words)(const std::string&)) {
  std::vector<std::string> result;
  for (const std::string& text : texts) result.push_back(words(text));
  return result;
}

}  // namespace

std::vector<Finding> check(const SweepData& data, const CheckLimits& limits) {
  return {outliers(data, limits), drift(data, limits), duplicates(data, limits),
          variation(data, limits)};
}

Description describe(const SweepData& given) {
  const SweepData data = sorted(given);
  const std::vector<std::string> types = words_for(data.problems, type_words);
  const std::vector<std::string> pipelines = words_for(data.kernels, pipeline_words);
  std::map<std::string, std::int64_t> outcomes, machines, by_type, by_pipeline, runs;
  Description result;
  for (const SweepRow& row : data.rows) {
    const SweepRun& run = run_of(data, row.run);
    ++outcomes[std::string(to_string(row.outcome))];
    ++machines[fmt::format("{}, {}, {} threads", run.device, run.target, run.threads)];
    ++by_type[types[static_cast<std::size_t>(row.problem)]];
    ++by_pipeline[pipelines[static_cast<std::size_t>(row.kernel)]];
    ++runs[fmt::format("{}, started {}, version {}", run.id, run.started, run.version)];
    if (row.outcome != Outcome::ok) continue;
    result.most_seconds = std::max(result.most_seconds, row.seconds);
    const bool is_first = result.least_seconds == 0;
    result.least_seconds = is_first ? row.seconds : std::min(result.least_seconds, row.seconds);
  }
  result.rows = static_cast<std::int64_t>(data.rows.size());
  result.problems = static_cast<std::int64_t>(data.problems.size());
  result.kernels = static_cast<std::int64_t>(data.kernels.size());
  result.clock_readings = static_cast<std::int64_t>(data.clock.size());
  result.outcomes = shares(outcomes);
  result.machines = shares(machines);
  result.types = shares(by_type);
  result.pipelines = shares(by_pipeline);
  result.runs = shares(runs);
  return result;
}

}  // namespace tessera::measure
