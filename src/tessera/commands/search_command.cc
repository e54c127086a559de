// tessera search: ranks the legal kernels of each problem by prediction, and measures the best.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/learning.h"
#include "tessera/commands/options.h"
#include "tessera/commands/sweeping.h"
#include "tessera/commands/table.h"
#include "tessera/commands/work.h"

namespace tessera::commands {
namespace {

constexpr std::size_t kShownFound = 10;  // rows shown when nothing is measured

struct SearchCommand {
  ProblemOptions problems;
  std::string target;
  std::string strategy = "evolution";
  int budget = 500;
  double seconds = 0;
  int top = 5;
  std::string model;
  int threads = 0;
  int device = 0;
  int jobs = 0;
  std::uint64_t seed = 1;
  bool remember = false;
};

// The result of the search for one problem.
struct SearchReport {
  Problem problem;
  tune::SearchResult result;
  std::vector<tune::MeasuredKernel> measured;
  bool are_times = true;  // whether predictions are times and not scores
};

LearnedModel surrogate_of(const SearchCommand& command, const Problem& problem,
                          const Target& target) {
  if (command.model.empty()) return tune::analytic_surrogate();
  return tune::model_surrogate(read_model(command.model, op_of(problem), target));
}

tune::SearchOptions options_of(const SearchCommand& command, const Target& target) {
  tune::SearchOptions options;
  options.strategy = tune::parse_search_strategy(command.strategy);
  options.evaluations = static_cast<std::size_t>(command.budget);
  options.seconds = command.seconds;
  options.seed = command.seed;
  const bool here = runtime::backend_for(target).unavailable_reason(target).empty();
  options.threads = counts_threads(target) && here
                        ? runtime::thread_limit({.threads = command.threads})
                        : command.threads;
  return options;
}

// Measures with a temporary store.
std::vector<tune::MeasuredKernel> measure(const Console& console, const SearchCommand& command,
                                          const Problem& problem, const Target& target,
                                          const tune::SearchResult& result) {
  measure::SweepOptions options;
  options.threads = command.threads;
  options.device = command.device;
  options.jobs = command.jobs;
  options.seed = command.seed;
  options.version = kVersion;
  options.stop = console.stop;
  const fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-search-");
  const std::shared_ptr<void> removed(nullptr, [&](void*) { remove_tree(folder); });
  measure::SweepStore store(folder / "sweep.sqlite");
  auto measured = tune::measure_best(problem, target, result, static_cast<std::size_t>(command.top),
                                     store, options);
  console.check_stop();
  if (!command.remember) return measured;
  const measure::SweepData data = store.read();
  const tune::Machine machine{data.runs.at(0).device, target.name, data.runs.at(0).threads};
  const jit::Cache cache({});
  tune::Store(tune::tuning_store_in(cache.folder())).record(tune::winners_of(data, machine));
  return measured;
}

Json to_json(const tune::FoundKernel& found, bool are_times) {
  Json json = {{"kernel", found.name}};
  json[are_times ? "predicted_seconds" : "score"] = found.value;
  return json;
}

void print_text(const Console& console, const SearchCommand& command, const SearchReport& report) {
  const tune::SearchResult& result = report.result;
  console.write_out("{}: {} of {} legal kernels predicted in {} by {}{}\n", command.strategy,
                    result.evaluations, result.space, format_seconds(result.seconds),
                    command.model.empty() ? "the analytic estimate" : command.model,
                    result.out_of_time ? "; out of time" : "");
  const auto predicted = [&](const tune::FoundKernel& found) {
    return report.are_times ? format_seconds(found.value) : fmt::format("{:.4g}", found.value);
  };
  if (command.top == 0) {
    Table table({"predicted", "kernel"});
    for (std::size_t i = 0; i < std::min(kShownFound, result.found.size()); ++i) {
      table.add({predicted(result.found[i]), result.found[i].name});
    }
    console.write_out("{}", table.text());
    return;
  }
  Table table({"measured", "spread", "predicted", "kernel", "outcome"});
  for (const tune::MeasuredKernel& m : report.measured) {
    const bool ok = m.outcome == measure::Outcome::ok;
    table.add({ok ? format_seconds(m.seconds) : "-",
               ok ? fmt::format("{:.1f}%", 100 * m.spread) : "-", predicted(m.kernel),
               m.kernel.name,
               m.note.empty() ? std::string(measure::to_string(m.outcome))
                              : fmt::format("{}: {}", measure::to_string(m.outcome), m.note)});
  }
  console.write_out("{}", table.text());
}

Json to_json(const SearchCommand& command, const Target& target, const SearchReport& report) {
  Json rows = Json::array();
  for (const tune::MeasuredKernel& m : report.measured) {
    Json row = to_json(m.kernel, report.are_times);
    row["outcome"] = measure::to_string(m.outcome);
    row["seconds"] = m.seconds;
    row["spread"] = m.spread;
    row["note"] = m.note;
    rows.push_back(row);
  }
  return {{"problem", to_string(report.problem)},
          {"target", target.name},
          {"strategy", command.strategy},
          {"space", report.result.space},
          {"evaluations", report.result.evaluations},
          {"out_of_time", report.result.out_of_time},
          {"search_seconds", report.result.seconds},
          {"best", to_json(report.result.found.front(), report.are_times)},
          {"measured", rows}};
}

SearchReport search_one(const Console& console, const SearchCommand& command,
                        const Problem& problem, const Target& target) {
  const LearnedModel surrogate = surrogate_of(command, problem, target);
  SearchReport report{
      .problem = problem,
      .result = tune::search(problem, target, surrogate, options_of(command, target)),
      .are_times = surrogate.value == LearnedValue::seconds};
  if (command.top > 0) report.measured = measure(console, command, problem, target, report.result);
  return report;
}

int search(const SearchCommand& command, const Console& console) {
  const std::vector<Problem> problems = read_problems(command.problems);
  const Target target = resolve_target_here(command.target);
  JsonRows rows(console, "searches");
  const auto each = [&](const Problem& problem) {
    const SearchReport report = search_one(console, command, problem, target);
    if (console.json) return rows.add(to_json(command, target, report));
    if (problems.size() > 1) console.write_out("{}\n", to_string(problem));
    print_text(console, command, report);
  };
  return end_rows(rows, run_through(console, problems, each), console);
}

}  // namespace

Action declare_search(CLI::App& app) {
  auto command = std::make_shared<SearchCommand>();
  add_problem_options(app, command->problems);
  add_target_option(app, command->target);
  app.add_option("--strategy", command->strategy, "random, evolution or exhaustive")
      ->capture_default_str();
  add_integer_option(app, "--budget", command->budget, 0,
                     "Predict at most this many kernels; exhaustive predicts all");
  add_real_option(app, "--seconds", command->seconds, 0,
                  "End predicting after this time; 0: when done");
  add_integer_option(app, "--top", command->top, 0,
                     "Build, verify and measure this many of the best; 0: only predict");
  app.add_option("--model", command->model,
                 "The folder of a model that predicts; left out: the analytic estimate");
  add_threads_option(app, command->threads);
  add_device_option(app, command->device);
  add_jobs_option(app, command->jobs);
  add_seed_option(app, command->seed, "Of proposals and operands");
  app.add_flag("--remember", command->remember,
               "Let the dispatcher choose what was measured best here");
  return [command](const Console& console) { return search(*command, console); };
}

}  // namespace tessera::commands
