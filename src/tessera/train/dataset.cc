#include "tessera/train/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/base/text.h"
#include "tessera/learn/ranker.h"

namespace tessera::train {
namespace {

template <class... Args>
[[noreturn]] void refuse_data(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "data to learn from: " + fmt::format(sentence, std::forward<Args>(args)...));
}

// A row that is ok and passes the filter on runs, with its index for error messages.
struct Kept {
  const measure::SweepRow* row;
  std::size_t number;
};

std::vector<Kept> rows_of_machine(const measure::SweepData& data, const DatasetFilter& filter) {
  std::vector<Kept> kept;
  for (std::size_t i = 0; i < data.rows.size(); ++i) {
    const measure::SweepRow& row = data.rows[i];
    const measure::SweepRun& run = data.runs.at(static_cast<std::size_t>(row.run));
    if (row.outcome != measure::Outcome::ok) continue;
    if (!filter.target.empty() && run.target != filter.target) continue;
    if (!filter.threads.empty() && std::ranges::count(filter.threads, run.threads) == 0) continue;
    kept.push_back({&row, i + 1});
  }
  return kept;
}

// The values that occur in rows that are ok, for the error that no row is left.
std::string machines_of(const measure::SweepData& data) {
  std::set<std::string> machines;
  for (const measure::SweepRow& row : data.rows) {
    const measure::SweepRun& run = data.runs.at(static_cast<std::size_t>(row.run));
    if (row.outcome == measure::Outcome::ok) {
      machines.insert(fmt::format("{} with {} threads", run.target, run.threads));
    }
  }
  return machines.empty() ? "nothing" : fmt::format("{}", fmt::join(machines, ", "));
}

void require_one_machine(const measure::SweepData& data, const DatasetFilter& filter,
                         const std::vector<Kept>& kept) {
  std::set<std::string> targets;
  std::set<int> threads;
  for (const Kept& k : kept) {
    const measure::SweepRun& run = data.runs.at(static_cast<std::size_t>(k.row->run));
    targets.insert(run.target);
    threads.insert(run.threads);
  }
  if (targets.size() > 1) {
    refuse_data("one target must be chosen, got {}", fmt::join(targets, ", "));
  }
  if (threads.size() > 1 && filter.threads.empty()) {
    refuse_data("one number of threads must be chosen, got {}", fmt::join(threads, ", "));
  }
}

// Each text is parsed once. An error names the first row with the text.
template <class Value, class Parse>
const Value& parsed(std::map<std::string, Value>& known, const std::string& text,
                    std::size_t number, Parse parse) {
  const auto found = known.find(text);
  if (found != known.end()) return found->second;
  try {
    return known.emplace(text, parse(text)).first->second;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("data to learn from: row {}: {}", number, error.what()));
  }
}

// The problems and kernels that rows name, parsed once, with the facts that the filter needs.
struct KnownProblem {
  Problem problem;
  bool is_described = false;  // features_fit() says yes
  bool is_unseen = false;
};
struct KnownKernel {
  KernelSpec spec;
  std::string key;
  bool is_described = false;  // by features
  bool is_named = false;      // by the filter
};
struct Known {
  std::map<std::string, KnownProblem> problems;
  std::map<std::string, KnownKernel> kernels;
};

KnownProblem read_problem(const std::string& text) {
  const Problem problem = parse_problem(text);
  const Family& family = family_of(problem);
  return {problem, static_cast<bool>(family.features_fit(problem)), is_unseen(problem)};
}

KnownKernel read_kernel(const std::string& name, const DatasetFilter& filter) {
  const KernelSpec spec = parse_name(name);
  const bool is_named = filter.kernels.empty() ||
                        std::ranges::any_of(filter.kernels, [&](const std::string& pattern) {
                          return matches_wildcard(pattern, name);
                        });
  return {spec, model_key(spec), family_of(spec).is_described(spec), is_named};
}

bool is_wanted(const DatasetFilter& filter, const KnownProblem& problem,
               const KnownKernel& kernel) {
  if (filter.op && op_of(problem.problem) != *filter.op) return false;
  if (!problem.is_described || !kernel.is_named) return false;
  if (filter.drop_unseen && (problem.is_unseen || !kernel.is_described)) return false;
  if (filter.only_unseen && !problem.is_unseen) return false;
  return filter.dtypes.empty() || std::ranges::count(filter.dtypes, kernel.key) > 0;
}

double median(std::vector<double>& values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A time above 0 as printf's %a writes it in the C locale; {:a} has the decimal point of the
// host's.
std::string exact_text(double time) {
  std::array<char, 32> digits{};
  const auto [end, error] =
      std::to_chars(digits.begin(), digits.end(), time, std::chars_format::hex);
  return "0x" + std::string(digits.begin(), end);
}

// A problem's text and its threads, and the name of a kernel.
using Case = std::pair<std::string, int>;
struct Timed {
  std::vector<double> seconds;  // of each measurement
  int readings = 0;
};
using Times = std::map<std::pair<Case, std::string>, Timed>;

void fill(Dataset& d, const Known& known, Times& times) {
  std::map<Case, std::uint32_t> problems;
  std::map<std::string, std::uint32_t> kernels;
  for (const auto& [key, timed] : times) {
    problems.emplace(key.first, 0);
    kernels.emplace(key.second, 0);
  }
  for (auto& [of, place] : problems) {
    place = static_cast<std::uint32_t>(d.problems.size());
    d.problems.push_back(known.problems.at(of.first).problem);
    d.threads.push_back(of.second);
  }
  for (auto& [name, place] : kernels) {
    place = static_cast<std::uint32_t>(d.kernels.size());
    d.kernels.push_back(known.kernels.at(name).spec);
    d.kernel_names.push_back(name);
  }
  std::string all =
      fmt::format("{}\n{}\n{}\n", to_string(op_of(d)), d.target, fmt::join(thread_numbers(d), " "));
  const bool names_threads = thread_numbers(d).size() > 1;
  for (auto& [key, timed] : times) {
    const double time = median(timed.seconds);
    d.rows.push_back({problems.at(key.first), kernels.at(key.second), time, timed.readings});
    if (names_threads) all += fmt::format("{}\t", key.first.second);
    all += fmt::format("{}\t{}\t{}\n", key.first.first, key.second, exact_text(time));
  }
  d.hash = hash_hex(all);
}

void require_one_operation(const Dataset& d) {
  for (const Problem& problem : d.problems) {
    if (op_of(problem) == op_of(d)) continue;
    refuse_data("one operation must be chosen, got {} and {}", to_string(op_of(d)),
                to_string(op_of(problem)));
  }
}

// The kernels of one problem, for the question to a ranker.
std::vector<KernelSpec> kernels_of(const Dataset& d, std::size_t first, std::size_t last) {
  std::vector<KernelSpec> specs;
  specs.reserve(last - first);
  for (std::size_t i = first; i < last; ++i) specs.push_back(d.kernels[d.rows[i].kernel]);
  return specs;
}

// Turns the ranker's order into seconds: a kernel's time is lowered when a later kernel in the
// order has less.
void score_by_analysis(const RankInput& input, std::span<double> seconds) {
  const std::shared_ptr<const Ranker> ranker = make_analytic_ranker();
  const std::vector<Ranked> ranked = ranker->rank(input);
  std::ranges::fill(seconds, std::numeric_limits<double>::infinity());
  double limit = std::numeric_limits<double>::infinity();
  for (auto it = ranked.rbegin(); it != ranked.rend(); ++it) {
    limit = std::min(it->predicted_seconds, std::nextafter(limit, 0.0));
    seconds[it->index] = limit;
  }
}

std::shared_ptr<const Ranker> ranker_of(const Dataset& d,
                                        const std::shared_ptr<const Model>& model) {
  return make_model_ranker(model, family_of(op_of(d)).extract);
}

}  // namespace

Op op_of(const Dataset& dataset) { return op_of(dataset.problems.at(0)); }

std::vector<int> thread_numbers(const Dataset& dataset) {
  const std::set<int> numbers(dataset.threads.begin(), dataset.threads.end());
  return {numbers.begin(), numbers.end()};
}

std::vector<int> thread_numbers(const measure::SweepData& data) {
  std::set<int> numbers;
  for (const measure::SweepRun& run : data.runs) numbers.insert(run.threads);
  return {numbers.begin(), numbers.end()};
}

measure::SweepData joined(std::span<const measure::SweepData> parts) {
  measure::SweepData all;
  for (const measure::SweepData& part : parts) {
    const int runs = static_cast<int>(all.runs.size());
    const int problems = static_cast<int>(all.problems.size());
    const int kernels = static_cast<int>(all.kernels.size());
    all.runs.insert(all.runs.end(), part.runs.begin(), part.runs.end());
    all.problems.insert(all.problems.end(), part.problems.begin(), part.problems.end());
    all.kernels.insert(all.kernels.end(), part.kernels.begin(), part.kernels.end());
    for (measure::SweepRow row : part.rows) {
      row.run += runs;
      row.problem += problems;
      row.kernel += kernels;
      all.rows.push_back(std::move(row));
    }
    for (measure::ClockReading reading : part.clock) {
      reading.run += runs;
      reading.problem += problems;
      reading.kernel += kernels;
      all.clock.push_back(reading);
    }
  }
  return all;
}

Dataset make_dataset(const measure::SweepData& data, const DatasetFilter& filter) {
  const std::vector<Kept> kept = rows_of_machine(data, filter);
  if (kept.empty()) {
    refuse_data("no row is ok and measured on {}{}; there is {}",
                filter.target.empty() ? "any target" : filter.target,
                filter.threads.empty()
                    ? ""
                    : fmt::format(" with {} threads", fmt::join(filter.threads, ", ")),
                machines_of(data));
  }
  require_one_machine(data, filter, kept);
  Known known;
  Times times;
  std::set<std::string> devices;
  for (const Kept& k : kept) {
    const std::string& text = data.problems.at(static_cast<std::size_t>(k.row->problem));
    const std::string& name = data.kernels.at(static_cast<std::size_t>(k.row->kernel));
    const KnownProblem& problem = parsed(known.problems, text, k.number, read_problem);
    const KnownKernel& kernel =
        parsed(known.kernels, name, k.number,
               [&](const std::string& text_of) { return read_kernel(text_of, filter); });
    if (!is_wanted(filter, problem, kernel)) continue;
    if (!(k.row->seconds > 0 && std::isfinite(k.row->seconds))) {
      refuse_data("row {}: the time of {} must be positive, got {} s", k.number, name,
                  k.row->seconds);
    }
    const measure::SweepRun& run = data.runs.at(static_cast<std::size_t>(k.row->run));
    Timed& timed = times[{{text, run.threads}, name}];
    timed.seconds.push_back(k.row->seconds);
    timed.readings += k.row->readings;
    devices.insert(run.device);
  }
  if (times.empty()) {
    refuse_data("none of {} rows is of the types {}{} and on the {} side of the split", kept.size(),
                filter.dtypes.empty() ? "asked for" : join(filter.dtypes, ", "),
                filter.kernels.empty() ? "" : ", of the kernels " + join(filter.kernels, ", "),
                filter.only_unseen ? "unseen" : "learned");
  }
  Dataset d;
  d.target = data.runs.at(static_cast<std::size_t>(kept[0].row->run)).target;
  d.devices.assign(devices.begin(), devices.end());
  fill(d, known, times);
  require_one_operation(d);
  if (d.problems.size() < filter.least_problems) {
    refuse_data("at least {} problems are needed, got {}", filter.least_problems,
                d.problems.size());
  }
  return d;
}

std::vector<std::size_t> first_rows(const Dataset& dataset) {
  std::vector<std::size_t> first(dataset.problems.size() + 1, dataset.rows.size());
  for (std::size_t i = dataset.rows.size(); i-- > 0;) first[dataset.rows[i].problem] = i;
  return first;
}

std::vector<std::size_t> groups_of(const Dataset& dataset) {
  std::vector<std::size_t> first(dataset.problems.size(), 0);
  for (std::size_t p = 1; p < first.size(); ++p) {
    first[p] = dataset.problems[p] == dataset.problems[p - 1] ? first[p - 1] : p;
  }
  std::vector<std::size_t> groups;
  groups.reserve(dataset.rows.size());
  for (const Dataset::Row& row : dataset.rows) groups.push_back(first[row.problem]);
  return groups;
}

std::vector<double> feature_rows(const Dataset& dataset, const Target& target) {
  const Family& family = family_of(op_of(dataset));
  const std::size_t width = family.features().size();
  const std::vector<std::size_t> first = first_rows(dataset);
  std::vector<double> values(dataset.rows.size() * width);
  std::vector<double> columns;
  for (std::size_t p = 0; p < dataset.problems.size(); ++p) {
    const std::vector<KernelSpec> specs = kernels_of(dataset, first[p], first[p + 1]);
    columns.resize(width * specs.size());
    family.extract(dataset.problems[p], target, dataset.threads[p], specs, columns, {});
    for (std::size_t f = 0; f < width; ++f) {
      for (std::size_t i = 0; i < specs.size(); ++i) {
        values[(first[p] + i) * width + f] = columns[f * specs.size() + i];
      }
    }
  }
  return values;
}

std::vector<ScoredRow> score(const Dataset& dataset, const Target& target, const Predict& predict) {
  const std::vector<std::size_t> first = first_rows(dataset);
  std::vector<ScoredRow> scored;
  scored.reserve(dataset.rows.size());
  std::vector<double> seconds;
  for (std::size_t p = 0; p < dataset.problems.size(); ++p) {
    const std::vector<KernelSpec> specs = kernels_of(dataset, first[p], first[p + 1]);
    const RankInput input{dataset.problems[p], target, dataset.threads[p], specs};
    seconds.assign(specs.size(), 0);
    if (!predict(input, seconds)) score_by_analysis(input, seconds);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const Dataset::Row& row = dataset.rows[first[p] + i];
      const double value = -seconds[i];
      scored.push_back({p, dataset.kernel_names[row.kernel], row.seconds,
                        std::isfinite(value) ? value : -std::numeric_limits<double>::infinity()});
    }
  }
  return scored;
}

std::vector<ScoredRow> score_model(const Dataset& dataset, const Target& target,
                                   const std::shared_ptr<const Model>& model) {
  const Predict predict = [&](const RankInput& input, std::span<double> seconds) {
    if (!predict_seconds(*model, family_of(op_of(dataset)).extract, input, seconds)) return false;
    if (model->manifest.quantity == ModelQuantity::rank) return true;
    for (double& time : seconds) {
      if (!(time > 0)) time = std::numeric_limits<double>::infinity();
    }
    return true;
  };
  return score(dataset, target, predict);
}

std::vector<ScoredRow> score_analytic(const Dataset& dataset, const Target& target) {
  return score(dataset, target, [](const RankInput&, std::span<double>) { return false; });
}

std::vector<ScoredRow> score_random(const Dataset& dataset, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<ScoredRow> scored;
  scored.reserve(dataset.rows.size());
  for (const Dataset::Row& row : dataset.rows) {
    scored.push_back({row.problem, dataset.kernel_names[row.kernel], row.seconds,
                      -static_cast<double>(random() >> 11)});
  }
  return scored;
}

void keep_offered(const Dataset& dataset, const Target& target, std::vector<ScoredRow>& rows) {
  std::size_t problem = dataset.problems.size();
  std::set<std::string> offered;
  for (ScoredRow& row : rows) {
    if (row.problem != problem) {
      problem = row.problem;
      offered.clear();
      const Problem& asked = dataset.problems[problem];
      for (const KernelSpec& spec : family_of(asked).candidates(asked, target)) {
        offered.insert(name_of(spec));
      }
    }
    if (!offered.contains(row.kernel)) row.score = -std::numeric_limits<double>::infinity();
  }
}

std::vector<Outside> outside_of(const Dataset& dataset, const Target& target,
                                const std::shared_ptr<const Model>& model) {
  const std::shared_ptr<const Ranker> ranker = ranker_of(dataset, model);
  const std::vector<std::size_t> first = first_rows(dataset);
  std::vector<Outside> outside;
  for (std::size_t p = 0; p < dataset.problems.size(); ++p) {
    const std::vector<KernelSpec> specs = kernels_of(dataset, first[p], first[p + 1]);
    std::string reason = ranker->why_not({dataset.problems[p], target, dataset.threads[p], specs});
    if (!reason.empty()) outside.push_back({p, std::move(reason)});
  }
  return outside;
}

}  // namespace tessera::train
