// tessera run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/format.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"
#include "tessera/commands/work.h"

namespace tessera::commands {
namespace {

struct RunCommand {
  ProblemOptions problems;
  RunSettings settings;
  DispatcherOptions dispatcher;
  bool no_compile = false;
};

int run(const RunCommand& command, const Console& console) {
  const std::vector<Problem> problems = read_problems(command.problems);
  DispatcherOptions options = command.dispatcher;
  options.build.allow_compile = !command.no_compile;
  Dispatcher dispatcher(options);

  Table table({"problem", "kernel", "time", "GFLOP/s", "verified", "why"});
  Json runs = Json::array();
  Progress progress(console, "run", Plain::signs);
  const std::optional<Error> failure = run_through(console, problems, [&](const Problem& problem) {
    if (problems.size() > 1) progress.step(runs.size(), problems.size(), to_string(problem));
    const RunReport report = run_and_time(dispatcher, problem, command.settings);
    require_verified(report);
    runs.push_back(to_json(report));
    table.add({to_string(problem), report.kernel, format_seconds(report.seconds),
               fmt::format("{:.1f}", report.gflops), report.verified ? "yes" : "-", report.why});
  });
  progress.clear();
  if (console.json) {
    Json json = {{"target", dispatcher.target().name}, {"runs", runs}};
    if (failure) json["error"] = error_json(*failure);
    console.print_json(json);
  } else {
    console.put_out(table.text());
    if (failure) console.print_error(*failure);
  }
  return failure ? 1 : 0;
}

}  // namespace

Action declare_run(CLI::App& app) {
  auto command = std::make_shared<RunCommand>();
  add_problem_options(app, command->problems);
  add_target_option(app, command->dispatcher.target);
  add_threads_option(app, command->settings.threads);
  add_device_option(app, command->settings.device);
  add_integer_option(app, "--repeat", command->settings.repeat, 1,
                     "Timed runs; the median is reported");
  add_seed_option(app, command->settings.seed, "Of the random operands");
  app.add_flag("--verify", command->settings.verify, "Compare with the fp64 reference");
  app.add_option("--force", command->settings.force, "This kernel, or an error that says why not");
  app.add_flag("--autotune", command->dispatcher.autotune,
               "Measure the best few on first use and remember the winner");
  add_real_option(app, "--autotune-seconds", command->dispatcher.autotune_seconds, kLeastSeconds,
                  "Budget per problem");
  app.add_flag("--deterministic", command->dispatcher.deterministic,
               "Only kernels whose bits do not depend on the number of threads");
  app.add_flag("--batch-invariant", command->dispatcher.batch_invariant,
               "The same bits for a row, an image or a sequence in every batch");
  app.add_flag("--no-compile", command->no_compile, "Use packs and the cache only");
  return [command](const Console& console) { return run(*command, console); };
}

}  // namespace tessera::commands
