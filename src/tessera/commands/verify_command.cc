// tessera verify.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>

#include "tessera/commands/emulation.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"
#include "tessera/commands/work.h"

namespace tessera::commands {
namespace {

struct VerifyCommand {
  KernelOptions kernels;
  RunSettings settings;
  int jobs = 0;
  bool emulate = false;
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

// The kernel that is chosen for a problem.
VerifyReport verify_problem(Dispatcher& dispatcher, const Problem& problem,
                            const RunSettings& settings) {
  Workload workload(dispatcher, problem, settings);
  VerifyReport report{.kernel = workload.kernel().name, .error = {}, .problems = 1};
  const Mismatch mismatch = workload.verify();
  if (!mismatch.ok) {
    report.error =
        fmt::format("'{}', seed {}: {}", to_string(problem), settings.seed, mismatch.message);
  }
  return report;
}

// What was verified so far.
struct VerifyResult {
  Json kernels = Json::array();
  std::size_t wrong = 0;
};

// What cannot run is reported like what is wrong.
void add_report(VerifyResult& result, const std::string& kernel,
                const std::function<VerifyReport()>& check, Progress& progress,
                const Console& console) {
  VerifyReport report{.kernel = kernel, .error = {}};
  try {
    report = check();
  } catch (...) {
    report.error = without_name(current_error().what(), kernel);
  }
  if (!report.error.empty()) {
    ++result.wrong;
    progress.clear();
    if (!console.json) console.write_out("wrong  {}: {}\n", report.kernel, report.error);
  }
  result.kernels.push_back({{"kernel", report.kernel},
                            {"ok", report.error.empty()},
                            {"problems", report.problems},
                            {"error", report.error}});
}

// Kernels that do not build are reported, too, and the others still run.
VerifyResult verify_kernels(Dispatcher& dispatcher, const KernelSet& set,
                            const VerifyCommand& command, Progress& progress,
                            const Console& console) {
  dispatcher.registry().declare(set);
  const auto failures = build_failures(console, dispatcher, command.jobs, progress);
  VerifyResult result;
  for (const KernelSpec& spec : set.specs) {
    console.check_stop();
    const std::string name = name_of(spec);
    const auto failure = failures.find(name);
    add_report(
        result, name,
        [&] {
          if (failure == failures.end()) return verify_kernel(dispatcher, spec, command.settings);
          return VerifyReport{.kernel = name, .error = without_name(failure->second, name)};
        },
        progress, console);
    progress.step(result.kernels.size(), set.specs.size(), name);
  }
  return result;
}

// A kernel's name has underscores, and the word that a problem begins with has none.
bool is_problem(const std::vector<std::string>& words) {
  return !words.empty() && words.front().find('_') == std::string::npos;
}

int verify(const VerifyCommand& command, const Console& console) {
  const Target target = resolve_target_here(command.kernels.target);
  if (command.emulate) runtime::use_emulator(target);
  DispatcherOptions options;
  options.target = command.kernels.target;
  Progress progress(console, "verify", Plain::signs);
  VerifyResult result;
  if (is_problem(command.kernels.names)) {
    const Problem problem = parse_problem(join(command.kernels.names, " "));
    Dispatcher dispatcher(options);
    add_report(
        result, to_string(problem),
        [&] { return verify_problem(dispatcher, problem, command.settings); }, progress, console);
  } else {
    const KernelSet set = select_kernels(command.kernels, target);
    Dispatcher dispatcher(options);
    result = verify_kernels(dispatcher, set, command, progress, console);
  }
  progress.clear();
  const std::size_t verified = result.kernels.size() - result.wrong;
  const Json emulated = command.emulate ? Json::parse(runtime::emulator_report()) : Json(nullptr);
  if (console.json) {
    Json json = {{"verified", verified}, {"wrong", result.wrong}, {"kernels", result.kernels}};
    if (command.emulate) json["emulator"] = emulated;
    console.print_json(json);
  } else {
    console.write_out("{} kernels verified, {} wrong\n", verified, result.wrong);
    if (command.emulate) console.write_out("{}", emulation_text(emulated));
  }
  return result.wrong == 0 ? 0 : 1;
}

}  // namespace

Action declare_verify(CLI::App& app) {
  auto command = std::make_shared<VerifyCommand>();
  app.add_option("kernel", command->kernels.names, "Kernel names, or the words of a problem");
  add_kernel_options(app, command->kernels);
  add_threads_option(app, command->settings.threads);
  add_device_option(app, command->settings.device);
  add_seed_option(app, command->settings.seed, "Of the random operands");
  add_jobs_option(app, command->jobs);
  app.add_option("--force", command->settings.force, "This kernel for the problem, or an error");
  app.add_flag("--emulate", command->emulate,
               "Run kernels for an AMD GPU on the emulator, with all its checks");
  return [command](const Console& console) { return verify(*command, console); };
}

}  // namespace tessera::commands
