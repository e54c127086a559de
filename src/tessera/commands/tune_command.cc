// tessera tune: measure a fair sample of problems here, and let the dispatcher choose the winners.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"
#include "tessera/commands/sweeping.h"
#include "tessera/commands/table.h"
#include "tessera/commands/tune_learning.h"

namespace tessera::commands {
namespace {

constexpr std::size_t kShownKernels = 10;
constexpr double kTie = 0.01;  // a smaller difference is no gain; medians are measured to this
                               // accuracy

struct TuneCommand {
  std::string budget = "30m";
  std::string op = usual_op();
  std::vector<std::string> dtypes;
  std::vector<std::string> layouts;
  std::string problems = "wide";
  std::string kernels = "*";
  std::string target;
  std::string store;
  measure::SweepOptions options;
};

// An empty word stands for the default types of an operation, or for the types in a file.
std::vector<std::string> or_usual(const std::vector<std::string>& words) {
  return words.empty() ? std::vector<std::string>{""} : words;
}

// A shipped set of problems, or the lines of a file, for every type and layout asked for.
std::vector<Problem> read_all(const TuneCommand& command, const Target& target) {
  const Family& family = family_of(parse_op(command.op));
  const auto sets = family.problem_sets();
  const bool is_set = std::find(sets.begin(), sets.end(), command.problems) != sets.end();
  std::vector<Problem> problems;
  for (const std::string& dtype : or_usual(command.dtypes)) {
    for (const std::string& layout : or_usual(command.layouts)) {
      const ProblemOptions file{
          .shapes = command.problems, .dtype = dtype, .layout = is_set ? layout : ""};
      const std::vector<Problem> some =
          is_set ? family.draw(command.problems, ProblemSide::learned, target, {dtype, layout})
                 : read_problems(file);
      problems.insert(problems.end(), some.begin(), some.end());
    }
  }
  return problems;
}

// The kernels that the dispatcher chooses now, by problem.
std::map<std::string, std::string> choices(const std::vector<Problem>& problems,
                                           const TuneCommand& command) {
  Dispatcher dispatcher({.target = command.target});
  RunOptions options;
  options.launch.threads = command.options.threads;
  options.launch.device = command.options.device;
  std::map<std::string, std::string> chosen;
  for (const Problem& problem : problems) {
    chosen[to_string(problem)] = dispatcher.explain(problem, options).name;
  }
  return chosen;
}

// The kernels that were asked for, and those chosen now, because a winner must be faster than the
// current choice.
std::vector<KernelSpec> read_kernels(const TuneCommand& command,
                                     const std::vector<Problem>& problems, const Target& target,
                                     const std::map<std::string, std::string>& chosen) {
  const std::vector<KernelSpec> asked = measure::kernels_for(problems, target, command.kernels);
  if (asked.empty()) {
    throw Error(ErrorCode::not_found,
                fmt::format("tune: no kernel of {} for these problems matches '{}'", target.name,
                            command.kernels));
  }
  std::map<std::string, KernelSpec> all;
  for (const KernelSpec& spec : asked) all.emplace(name_of(spec), spec);
  for (const auto& [problem, kernel] : chosen) all.emplace(kernel, parse_name(kernel));
  std::vector<KernelSpec> kernels;
  for (auto& [name, spec] : all) kernels.push_back(std::move(spec));
  return kernels;
}

// A summary over the problems whose earlier kernel was measured.
struct Gain {
  std::size_t compared = 0;
  std::size_t changed = 0;     // problems whose time changed by more than a tie
  double speedup = 1;          // geometric mean over all compared problems
  double mean_efficiency = 1;  // of the earlier choices
  double least_efficiency = 1;
};

double speedup_of(const tune::Change& change) {
  return change.before_seconds / change.after_seconds;
}

Gain gain_of(const std::vector<tune::Change>& changes) {
  Gain gain;
  double logs = 0;
  double efficiencies = 0;
  for (const tune::Change& change : changes) {
    if (change.before_seconds == 0) continue;
    const double speedup = speedup_of(change);
    ++gain.compared;
    gain.changed += speedup > 1 + kTie ? 1 : 0;
    logs += std::log(speedup);
    efficiencies += 1 / speedup;
    gain.least_efficiency = std::min(gain.least_efficiency, 1 / speedup);
  }
  if (gain.compared == 0) return gain;
  gain.speedup = std::exp(logs / static_cast<double>(gain.compared));
  gain.mean_efficiency = efficiencies / static_cast<double>(gain.compared);
  return gain;
}

// The greatest gains first.
std::vector<tune::Change> gains(std::vector<tune::Change> changes) {
  std::erase_if(changes, [](const tune::Change& change) {
    return change.before_seconds == 0 || speedup_of(change) <= 1 + kTie;
  });
  std::stable_sort(
      changes.begin(), changes.end(),
      [](const tune::Change& a, const tune::Change& b) { return speedup_of(a) > speedup_of(b); });
  return changes;
}

// The result of the command.
struct Outcome {
  measure::SweepReport sweep;
  std::vector<tune::Change> changes;
  std::vector<Learned> learned;
  std::string tuned;  // the tuning store
};

void print_text(const Console& console, const Outcome& outcome, const TuneCommand& command) {
  const measure::SweepReport& report = outcome.sweep;
  for (const std::string& sentence : report.unmeasured) {
    console.write_err("tessera: not measured: {}\n", sentence);
  }
  console.write_out(
      "{} problems measured ({} were before{}), {} remain: {} to build, {} to measure\n",
      report.measured, report.stored, unserved_text(report), report.remaining,
      format_duration(report.build_seconds), format_duration(report.measure_seconds));
  const Gain gain = gain_of(outcome.changes);
  console.write_out(
      "{} of {} problems get a faster kernel than was chosen before: {:.3f} times as fast "
      "in the geometric mean of all\n",
      gain.changed, gain.compared, gain.speedup);
  console.write_out(
      "the choice before was at {:.1f}% of the fastest in the mean, {:.1f}% at least\n",
      100 * gain.mean_efficiency, 100 * gain.least_efficiency);
  const std::vector<tune::Change> best = gains(outcome.changes);
  Table table({"gain", "before", "now", "problem", "kernel"});
  for (std::size_t i = 0; i < std::min(kShownKernels, best.size()); ++i) {
    table.add({fmt::format("{:.2f}x", speedup_of(best[i])), format_seconds(best[i].before_seconds),
               format_seconds(best[i].after_seconds), best[i].problem, best[i].after});
  }
  if (!best.empty()) console.write_out("{}", table.text());
  for (const Learned& learned : outcome.learned) {
    console.write_out("learned {}: {}\n", learned.types, learned.outcome);
  }
  console.write_out(
      "measurements are in {}, winners in {}; the dispatcher takes them from now on\n",
      command.store, outcome.tuned);
}

Json to_json(const Outcome& outcome, const TuneCommand& command) {
  const measure::SweepReport& report = outcome.sweep;
  const Gain gain = gain_of(outcome.changes);
  Json learned = Json::array();
  for (const Learned& l : outcome.learned) {
    learned.push_back({{"types", l.types},
                       {"installed", l.installed},
                       {"outcome", l.outcome},
                       {"mean_before", l.before.mean},
                       {"p10_before", l.before.p10},
                       {"mean", l.after.mean},
                       {"p10", l.after.p10}});
  }
  Json list = Json::array();
  for (const tune::Change& change : outcome.changes) {
    list.push_back({{"problem", change.problem},
                    {"before", change.before},
                    {"before_seconds", change.before_seconds},
                    {"now", change.after},
                    {"now_seconds", change.after_seconds}});
  }
  return {{"store", command.store},
          {"tuning_store", outcome.tuned},
          {"measured", report.measured},
          {"stored_before", report.stored},
          {"unserved", report.unserved},
          {"remaining", report.remaining},
          {"unmeasured", report.unmeasured},
          {"stopped", report.stopped},
          {"compared", gain.compared},
          {"faster", gain.changed},
          {"geomean_speedup", gain.speedup},
          {"mean_efficiency_before", gain.mean_efficiency},
          {"least_efficiency_before", gain.least_efficiency},
          {"learned", learned},
          {"problems", list}};
}

int run(TuneCommand command, const Console& console) {
  command.options.budget_seconds = read_seconds("tune", command.budget);
  const Target target = resolve_target_here(command.target);
  const std::vector<Problem> problems = read_all(command, target);
  const std::map<std::string, std::string> chosen = choices(problems, command);
  const std::vector<KernelSpec> kernels = read_kernels(command, problems, target, chosen);
  const jit::Cache cache({});
  if (cache.is_memory_only()) {
    throw Error(ErrorCode::io_error,
                "tune: winners are kept in the cache folder, and there is none that can be "
                "written; set TESSERA_CACHE_DIR");
  }
  if (command.store.empty()) command.store = (cache.folder() / "sweep.sqlite").string();
  measure::SweepStore store(command.store);
  Outcome outcome;
  outcome.sweep = run_sweep(console, problems, kernels, target, store, command.options);

  const int threads =
      measure::filed_threads(target, runtime::thread_limit({.threads = command.options.threads}));
  const tune::Machine machine{measure::device_name(target, command.options.device), target.name,
                              threads};
  const measure::SweepData data = store.read();
  outcome.changes = tune::changes_of(data, machine, chosen);
  outcome.tuned = tune::tuning_store_in(cache.folder()).string();
  tune::Store(outcome.tuned).record(tune::winners_of(data, machine));
  if (!outcome.sweep.stopped) {
    outcome.learned = learn(console, data, target, threads, kernels, own_models(cache.folder()));
  }
  if (console.json) {
    console.print_json(to_json(outcome, command));
  } else {
    print_text(console, outcome, command);
  }
  return outcome.sweep.stopped || !outcome.sweep.unmeasured.empty() ? 1 : 0;
}

}  // namespace

Action declare_tune(CLI::App& app) {
  auto command = std::make_shared<TuneCommand>();
  app.add_option("--budget", command->budget, "Start no problem past this time: 90s, 30m, 2h")
      ->capture_default_str();
  app.add_option("--problems", command->problems,
                 fmt::format("A set of problems ({}), or a file with a problem a line",
                             join(problem_set_names(), ", ")))
      ->capture_default_str();
  app.add_option("--op", command->op, "The operation whose sets are meant")->capture_default_str();
  app.add_option("--dtype", command->dtypes,
                 "Element types; left out: the usual one for sets, a file's own for files")
      ->delimiter(',');
  app.add_option("--layout", command->layouts, "Layouts of sets; left out: the usual one")
      ->delimiter(',');
  app.add_option("--kernels", command->kernels, "A wildcard over the names of legal kernels")
      ->capture_default_str();
  add_target_option(app, command->target);
  app.add_option("--store", command->store,
                 "Where measurements go; left out: sweep.sqlite in the cache folder");
  add_threads_option(app, command->options.threads);
  add_device_option(app, command->options.device);
  add_jobs_option(app, command->options.jobs);
  add_seed_option(app, command->options.seed, "Of operands and orders");
  return [command](const Console& console) { return run(*command, console); };
}

}  // namespace tessera::commands
