#include "tessera/commands/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <tuple>

namespace tessera::commands {
namespace {

auto key_of(const RecordRow& row) {
  return std::tuple(row.target, row.machine, row.problem, row.threads, row.deterministic,
                    row.batch_invariant);
}

Asked asked_of(const RecordRow& row) {
  return {parse_problem(row.problem), row.problem,        row.target, row.machine, row.threads,
          row.deterministic,          row.batch_invariant};
}

void add_row(const Record& record, const RecordRow& row, std::vector<Taken>& taken) {
  const auto same = [&](const Taken& t) {
    return t.row.kernel == row.kernel && t.row.source == row.source;
  };
  auto found = std::find_if(taken.begin(), taken.end(), same);
  if (found == taken.end()) {
    found = taken.insert(found, {.row = row, .from = {}});
  } else {
    found->row.calls += row.calls;
    found->row.misses += row.misses;
    found->row.choose_seconds += row.choose_seconds;
    found->row.ready_seconds += row.ready_seconds;
    found->row.why = row.why;
    found->row.predicted_seconds = row.predicted_seconds;
  }
  found->from[row.origin] += std::max<std::int64_t>(row.misses, 1);
  if (row.origin == KernelOrigin::compiled) found->compile_seconds += row.ready_seconds;
  if (record.runs.at(static_cast<std::size_t>(row.run)).version == kVersion) {
    found->is_of_this_version = true;
  }
}

void count_processes(const std::vector<const RecordRow*>& rows, std::vector<Taken>& taken) {
  for (Taken& t : taken) {
    std::set<int> runs;
    for (const RecordRow* row : rows) {
      if (row->kernel == t.row.kernel && row->source == t.row.source) runs.insert(row->run);
    }
    t.processes = static_cast<std::int64_t>(runs.size());
  }
}

AskedProblem asked_problem(const Record& record, const std::vector<const RecordRow*>& rows) {
  AskedProblem problem{asked_of(*rows.front()), {}};
  for (const RecordRow* row : rows) add_row(record, *row, problem.taken);
  count_processes(rows, problem.taken);
  std::stable_sort(problem.taken.begin(), problem.taken.end(),
                   [](const Taken& a, const Taken& b) { return a.row.calls > b.row.calls; });
  for (const Taken& taken : problem.taken) {
    problem.calls += taken.row.calls;
    problem.predicted_seconds += static_cast<double>(taken.row.calls) * taken.row.predicted_seconds;
  }
  return problem;
}

// ---- choosing ----

// A problem, or many in one field.
struct Wanted {
  Asked asked;
  std::optional<FieldRange> range;
};

bool has_field(const Problem& problem, const FieldRange& range) {
  try {
    problem_at(problem, range, range.first);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return false;
  }
}

std::optional<FieldRange> range_for(const Asked& asked, const std::vector<FieldRange>& ranges,
                                    std::set<std::string>& used) {
  std::optional<FieldRange> found;
  for (const FieldRange& range : ranges) {
    if (!has_field(asked.problem, range)) continue;
    used.insert(range.field);
    if (found) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("'{}' has both fields {} and {}: name a range for one of them",
                              asked.line, found->field, range.field));
    }
    found = range;
  }
  return found;
}

void require_used(const std::vector<FieldRange>& ranges, const std::set<std::string>& used,
                  std::size_t problems) {
  for (const FieldRange& range : ranges) {
    if (used.count(range.field) != 0) continue;
    throw Error(ErrorCode::not_found,
                fmt::format("--range {}: none of the record's {} problems has a field {}",
                            to_string(range), problems, range.field));
  }
}

// Problems that differ in the range's field alone are one.
std::vector<Wanted> wanted_of(const std::vector<AskedProblem>& problems,
                              const std::vector<FieldRange>& ranges) {
  std::vector<Wanted> wanted;
  std::set<std::tuple<int, std::string, int, bool, bool>> seen;
  std::set<std::string> used;
  for (const AskedProblem& problem : problems) {
    Wanted one{problem.asked, range_for(problem.asked, ranges, used)};
    if (one.range) {
      one.asked.problem = problem_at(one.asked.problem, *one.range, one.range->first);
      one.asked.line = to_string(RangedProblem{one.asked.problem, *one.range});
    } else if (std::any_of(problem.taken.begin(), problem.taken.end(), [](const Taken& taken) {
                 return taken.is_of_this_version && !taken.row.kernel.empty();
               })) {
      continue;  // this version took it
    }
    if (seen.emplace(one.asked.target, one.asked.line, one.asked.threads, one.asked.deterministic,
                     one.asked.batch_invariant)
            .second) {
      wanted.push_back(std::move(one));
    }
  }
  require_used(ranges, used, problems.size());
  return wanted;
}

// Chooses for all that is wanted. Names are shared between threads.
class Chooser {
 public:
  Chooser(const RangeOptions& options, RecordedKernels& all) : options_(options), all_(all) {}

  // The names of the kernels over the problem's range.
  std::set<std::string> names_for(const Wanted& wanted, const Target& target) {
    const ChooseOptions options = choose_options(wanted.asked);
    const std::string& line = wanted.asked.line;
    if (!wanted.range) return {name_for(line, wanted.asked.problem, target, options)};
    const KernelOf kernel_of = [&](std::int64_t value) {
      return name_for(line, problem_at(wanted.asked.problem, *wanted.range, value), target,
                      options);
    };
    return options_.every ? asked_one_by_one(*wanted.range, kernel_of)
                          : asked_by_parts(wanted, target, kernel_of);
  }

 private:
  std::set<std::string> asked_one_by_one(const FieldRange& range, const KernelOf& kernel_of) const {
    std::set<std::string> names;
    std::mutex mutex;
    in_parallel(static_cast<std::size_t>(count_of(range)), options_.jobs, [&](std::size_t i) {
      std::string name = kernel_of(range.first + static_cast<std::int64_t>(i));
      const std::lock_guard lock(mutex);
      names.insert(std::move(name));
    });
    return names;
  }

  std::set<std::string> asked_by_parts(const Wanted& wanted, const Target& target,
                                       const KernelOf& kernel_of) const {
    const Serves serves = [&](std::int64_t value, const std::string& kernel) {
      if (kernel.empty()) return true;  // a note says why
      return static_cast<bool>(supports(
          parse_name(kernel), problem_at(wanted.asked.problem, *wanted.range, value), target));
    };
    const std::vector<RangePart> parts =
        with_served(tessera::parts_of(*wanted.range, kernel_of, options_.jobs), serves, kernel_of,
                    options_.jobs);
    std::set<std::string> names;
    for (const RangePart& part : parts) names.insert(part.kernel);
    return names;
  }

  // Empty where there is no kernel. A line's first failure is a note.
  std::string name_for(const std::string& line, const Problem& problem, const Target& target,
                       const ChooseOptions& options) {
    ++choices_;
    try {
      validate(problem);
      return choose(problem, target, options).name;
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      if (noted_.insert(line).second) {
        all_.notes.push_back(fmt::format("'{}': {}", to_string(problem), error.what()));
      }
      return {};
    }
  }

 public:
  std::int64_t choices() const { return choices_; }

 private:
  const RangeOptions& options_;
  RecordedKernels& all_;
  std::mutex mutex_;
  std::set<std::string> noted_;
  std::atomic<std::int64_t> choices_ = 0;
};

// The recorded names that still count.
void add_taken(const AskedProblem& problem, std::set<std::string>& names,
               std::vector<std::string>& notes) {
  for (const Taken& taken : problem.taken) {
    const ChoiceSource source = taken.row.source;
    const bool is_fixed = source == ChoiceSource::pinned || source == ChoiceSource::tuned;
    if (taken.row.kernel.empty() || !(taken.is_of_this_version || is_fixed)) continue;
    try {
      parse_name(taken.row.kernel);
      names.insert(taken.row.kernel);
    } catch (const Error& error) {
      notes.push_back(fmt::format("'{}': {}", problem.asked.line, error.what()));
    }
  }
}

bool is_wanted(const Target& target, const std::vector<std::string>& names) {
  return names.empty() || std::find(names.begin(), names.end(), target.name) != names.end();
}

void require_targets(const Record& record, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Target& target : record.targets) known.push_back(target.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw Error(ErrorCode::not_found,
                fmt::format("the record asked nothing of target '{}'{} (its targets: {})", name,
                            did_you_mean(name, known), join(known, ", ")));
  }
}

}  // namespace

Record read_records(const std::vector<std::string>& files) {
  if (files.size() == 1) return read_record(files.front());
  std::vector<Record> records;
  for (const std::string& file : files) records.push_back(read_record(file));
  return merged(records);
}

std::vector<AskedProblem> asked_problems(const Record& record) {
  std::map<decltype(key_of(RecordRow{})), std::vector<const RecordRow*>> rows;
  for (const RecordRow& row : record.rows) rows[key_of(row)].push_back(&row);
  std::vector<AskedProblem> problems;
  for (const auto& [key, same] : rows) problems.push_back(asked_problem(record, same));
  std::stable_sort(problems.begin(), problems.end(),
                   [](const AskedProblem& a, const AskedProblem& b) {
                     return std::tuple(-a.predicted_seconds, -a.calls) <
                            std::tuple(-b.predicted_seconds, -b.calls);
                   });
  return problems;
}

ChooseOptions choose_options(const Asked& asked) {
  ChooseOptions options;
  options.threads = asked.threads;
  options.deterministic = asked.deterministic;
  options.batch_invariant = asked.batch_invariant;
  options.rankers = {make_library_ranker(shared_model_library(environment("TESSERA_MODELS"))),
                     make_analytic_ranker(), make_first_legal_ranker()};
  options.says_why = false;
  return options;
}

RecordedKernels kernels_of_record(const Record& record, const RangeOptions& options,
                                  const Console& console) {
  const auto start = std::chrono::steady_clock::now();
  require_targets(record, options.targets);
  std::vector<FieldRange> ranges;
  for (const std::string& text : options.ranges) ranges.push_back(read_range(text));
  RecordedKernels all;
  std::map<int, std::set<std::string>> names;  // by target
  std::vector<AskedProblem> problems = asked_problems(record);
  std::erase_if(problems, [&](const AskedProblem& problem) {
    return !is_wanted(record.targets.at(static_cast<std::size_t>(problem.asked.target)),
                      options.targets);
  });
  for (const AskedProblem& problem : problems) {
    add_taken(problem, names[problem.asked.target], all.notes);
  }
  Chooser chooser(options, all);
  Progress progress(console, "choose", Plain::signs);
  const std::vector<Wanted> wanted = wanted_of(problems, ranges);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    console.check_stop();
    const int target = wanted[i].asked.target;
    names[target].merge(
        chooser.names_for(wanted[i], record.targets.at(static_cast<std::size_t>(target))));
    progress.step(i + 1, wanted.size(), wanted[i].asked.line);
  }
  for (auto& [target, kernels] : names) {
    RecordedPart part{record.targets.at(static_cast<std::size_t>(target)), {}};
    kernels.erase("");
    for (const std::string& name : kernels) part.specs.push_back(parse_name(name));
    if (!part.specs.empty()) all.parts.push_back(std::move(part));
  }
  all.problems = problems.size();
  all.choices = chooser.choices();
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return all;
}

}  // namespace tessera::commands
