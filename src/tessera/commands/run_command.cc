// tessera run, and tessera verify.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
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

struct VerifyCommand {
  KernelOptions kernels;
  RunSettings settings;
  int jobs = 0;
};

struct VerifyReport {
  std::string kernel;
  std::string error;  // empty: every result was correct
  int problems = 0;
};

VerifyReport verify_kernel(Dispatcher& dispatcher, const KernelSpec& spec,
                           const RunSettings& settings) {
  VerifyReport report{.kernel = name_of(spec)};
  RunSettings forced = settings;
  forced.force = report.kernel;
  for (const Problem& problem : family_of(spec).samples(spec, dispatcher.target())) {
    ++report.problems;
    ++forced.seed;
    const Mismatch mismatch = Workload(dispatcher, problem, forced).verify();
    if (!mismatch.ok) {
      report.error =
          fmt::format("'{}', seed {}: {}", to_string(problem), forced.seed, mismatch.message);
      return report;
    }
  }
  if (report.problems == 0) report.error = "it serves none of the sizes tried";
  return report;
}

// Removes the kernel's name, with which most error messages begin.
std::string without_name(const std::string& sentence, const std::string& kernel) {
  const std::string name = kernel + ": ";
  return sentence.substr(sentence.starts_with(name) ? name.size() : 0);
}

// Error messages by kernel, without the compiler's output.
std::map<std::string, std::string> build_failures(const Console& console, Dispatcher& dispatcher,
                                                  int jobs, Progress& progress) {
  std::map<std::string, std::string> failures;
  const std::vector<jit::BuildResult> results = dispatcher.registry().build(
      jobs, [&](std::size_t done, std::size_t total, const jit::BuildResult& result) {
        progress.step(done, total, result.name);
        console.check_stop();
      });
  for (const jit::BuildResult& result : results) {
    if (!result.error.empty()) {
      failures[result.name] = result.error.substr(0, result.error.find('\n'));
    }
  }
  return failures;
}

// Kernels that do not build are reported like wrong ones, and the others still run.
int verify(const VerifyCommand& command, const Console& console) {
  const Target target = resolve_target(command.kernels.target);
  const KernelSet set = select_kernels(command.kernels, target);
  DispatcherOptions options;
  options.target = command.kernels.target;
  Dispatcher dispatcher(options);
  dispatcher.registry().declare(set);
  Progress progress(console, "verify", Plain::signs);
  const auto failures = build_failures(console, dispatcher, command.jobs, progress);

  Json kernels = Json::array();
  std::size_t wrong = 0;
  for (const KernelSpec& spec : set.specs) {
    console.check_stop();
    VerifyReport report{.kernel = name_of(spec)};
    const auto failure = failures.find(report.kernel);
    if (failure != failures.end()) {
      report.error = without_name(failure->second, report.kernel);
    } else {
      try {
        report = verify_kernel(dispatcher, spec, command.settings);
      } catch (...) {
        report.error = without_name(current_error().what(), report.kernel);
      }
    }
    progress.step(kernels.size() + 1, set.specs.size(), report.kernel);
    if (!report.error.empty()) {
      ++wrong;
      progress.clear();
      if (!console.json) console.write_out("wrong  {}: {}\n", report.kernel, report.error);
    }
    kernels.push_back({{"kernel", report.kernel},
                       {"ok", report.error.empty()},
                       {"problems", report.problems},
                       {"error", report.error}});
  }
  progress.clear();
  if (console.json) {
    console.print_json(
        {{"verified", set.specs.size() - wrong}, {"wrong", wrong}, {"kernels", kernels}});
  } else {
    console.write_out("{} kernels verified, {} wrong\n", set.specs.size() - wrong, wrong);
  }
  return wrong == 0 ? 0 : 1;
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
  app.add_option("--autotune-seconds", command->dispatcher.autotune_seconds, "Budget per problem")
      ->check(real_from(kLeastSeconds))
      ->capture_default_str();
  app.add_flag("--deterministic", command->dispatcher.deterministic,
               "Only kernels whose bits do not depend on the number of threads");
  app.add_flag("--no-compile", command->no_compile, "Use packs and the cache only");
  return [command](const Console& console) { return run(*command, console); };
}

Action declare_verify(CLI::App& app) {
  auto command = std::make_shared<VerifyCommand>();
  app.add_option("kernel", command->kernels.names, "Kernel names");
  add_kernel_options(app, command->kernels);
  add_threads_option(app, command->settings.threads);
  add_device_option(app, command->settings.device);
  add_seed_option(app, command->settings.seed, "Of the random operands");
  add_jobs_option(app, command->jobs);
  return [command](const Console& console) { return verify(*command, console); };
}

}  // namespace tessera::commands
