// tessera sweep: measures a list of kernels on a list of problems, and stores the results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/options.h"
#include "tessera/commands/sweeping.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

constexpr const char* kAllLegal = "all-legal";

struct SweepCommand {
  std::vector<std::string> problems;
  std::string dtype;
  std::string layout;
  std::vector<std::string> kernels;
  std::string target;
  std::string store;
  std::string budget;
  std::string shard;
  measure::SweepOptions options;
};

// "2/4".
void read_shard(const std::string& text, measure::SweepOptions& options) {
  if (text.empty()) return;
  const std::size_t slash = text.find('/');
  const bool split = slash != std::string::npos;
  constexpr int kMost = std::numeric_limits<int>::max();
  std::int64_t shard = 0;
  std::int64_t shards = 0;
  if (split && read_whole(std::string_view(text).substr(slash + 1), 1, kMost, shards) &&
      read_whole(std::string_view(text).substr(0, slash), 1, shards, shard)) {
    options.shard = static_cast<int>(shard);
    options.shards = static_cast<int>(shards);
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("sweep: --shard is i/n with i from 1 to n, got '{}'", text));
}

// Whether a word of --problems is a problem itself: "gemm m=8 n=8 k=8".
bool is_problem(const std::string& word) {
  return find_family(word) != nullptr && word.find('=') != std::string::npos;
}

std::vector<Problem> read_all_problems(const SweepCommand& command) {
  std::vector<Problem> problems;
  for (const std::string& word : command.problems) {
    ProblemOptions options;
    if (is_problem(word)) {
      options.words = {word};
    } else {
      options.shapes = word;
    }
    options.dtype = command.dtype;
    options.layout = command.layout;
    for (Problem& problem : read_problems(options)) problems.push_back(problem);
  }
  return problems;
}

bool is_preselected(const std::string& word) {
  for (const Family* family : all_families()) {
    for (const std::string& name : family->preselected_names()) {
      if (name == word) return true;
    }
  }
  return false;
}

// One word of --kernels: a file of a kernel set, a shipped set, a wildcard or a name.
std::vector<KernelSpec> read_kernels(const std::string& word, const std::vector<Problem>& problems,
                                     const Target& target) {
  if (word == kAllLegal) return measure::kernels_for(problems, target, "*");
  if (word.ends_with(".json")) return kernel_set_from_json(read_file(word)).specs;
  if (word.find('*') != std::string::npos) return measure::kernels_for(problems, target, word);
  KernelSetBuilder builder("sweep", target);
  if (is_preselected(word)) return builder.preselected(word).build().specs;
  return builder.add(name_of(find_kernel(word))).build().specs;
}

std::vector<KernelSpec> read_all_kernels(const SweepCommand& command,
                                         const std::vector<Problem>& problems,
                                         const Target& target) {
  std::map<std::string, KernelSpec> found;
  for (const std::string& word : command.kernels) {
    const std::vector<KernelSpec> specs = read_kernels(word, problems, target);
    if (specs.empty()) {
      throw Error(ErrorCode::not_found,
                  fmt::format("sweep: no kernel of {} for these problems matches '{}'; 'tessera "
                              "list --target {}' shows what there is",
                              target.name, word, target.name));
    }
    for (const KernelSpec& spec : specs) found.emplace(name_of(spec), spec);
  }
  std::vector<KernelSpec> kernels;
  for (auto& [name, spec] : found) kernels.push_back(std::move(spec));
  return kernels;
}

Json to_json(const measure::SweepReport& report, const SweepCommand& command,
             const measure::SweepOptions& options) {
  Json outcomes = Json::object();
  for (const auto& [outcome, count] : report.outcomes) {
    outcomes[std::string(measure::to_string(outcome))] = count;
  }
  return {{"store", command.store},
          {"run", report.run},
          {"shard", fmt::format("{}/{}", options.shard, options.shards)},
          {"problems", report.problems},
          {"measured", report.measured},
          {"stored_before", report.stored},
          {"unserved", report.unserved},
          {"remaining", report.remaining},
          {"rows", report.rows},
          {"outcomes", outcomes},
          {"unmeasured", report.unmeasured},
          {"stopped", report.stopped},
          {"out_of_time", report.out_of_time},
          {"build_seconds", report.build_seconds},
          {"measure_seconds", report.measure_seconds}};
}

void print_text(const Console& console, const measure::SweepReport& report,
                const SweepCommand& command) {
  for (const std::string& sentence : report.unmeasured) {
    console.write_err("tessera: not measured: {}\n", sentence);
  }
  std::vector<std::string> parts;
  for (const auto& [outcome, count] : report.outcomes) {
    parts.push_back(fmt::format("{} {}", count, measure::to_string(outcome)));
  }
  console.write_out("{} of {} problems measured, {} were stored before{}; {} rows{}{} in {}\n",
                    report.measured, report.problems, report.stored, unserved_text(report),
                    report.rows, parts.empty() ? "" : ": ", join(parts, ", "), command.store);
  console.write_out("{} to build, {} to measure\n", format_duration(report.build_seconds),
                    format_duration(report.measure_seconds));
  if (report.remaining == 0) return;
  console.write_out("{}: {} problems remain; the same command goes on with them\n",
                    report.stopped       ? "interrupted"
                    : report.out_of_time ? "out of time"
                                         : "not finished",
                    report.remaining);
}

int sweep(const SweepCommand& command, const Console& console) {
  measure::SweepOptions options = command.options;
  options.budget_seconds = read_seconds("sweep", command.budget);
  read_shard(command.shard, options);
  const Target target = resolve_target_here(command.target);
  const std::vector<Problem> problems = read_all_problems(command);
  const std::vector<KernelSpec> kernels = read_all_kernels(command, problems, target);
  measure::SweepStore store(command.store);

  const measure::SweepReport report = run_sweep(console, problems, kernels, target, store, options);
  if (console.json) {
    console.print_json(to_json(report, command, options));
  } else {
    print_text(console, report, command);
  }
  return report.stopped || !report.unmeasured.empty() ? 1 : 0;
}

}  // namespace

Action declare_sweep(CLI::App& app) {
  auto command = std::make_shared<SweepCommand>();
  measure::SweepOptions& options = command->options;
  app.add_option("--problems", command->problems,
                 "Problems, files with a problem a line, or names of shipped ones")
      ->delimiter(',')
      ->required();
  app.add_option("--dtype", command->dtype, "Replaces the problems' element types");
  app.add_option("--layout", command->layout, "Replaces the problems' layouts");
  app.add_option("--kernels", command->kernels,
                 "Wildcards over names, shipped sets, names, .json files of kernel sets, or "
                 "all-legal")
      ->delimiter(',')
      ->required();
  add_target_option(app, command->target);
  app.add_option("--store", command->store, "The file that measurements go into")->required();
  app.add_option("--budget", command->budget, "Start no problem past this time: 90s, 30m, 2h");
  app.add_option("--shard", command->shard, "Only this part of the problems: 1/4 to 4/4");
  add_threads_option(app, options.threads);
  add_device_option(app, options.device);
  add_jobs_option(app, options.jobs);
  add_seed_option(app, options.seed, "Of operands and orders");
  add_real_option(app, "--timeout", options.kernel_timeout_seconds, kLeastSeconds,
                  "Seconds after which a kernel counts as hanging");
  app.add_flag("--retry", options.retry, "Measure again what went wrong before");
  return [command](const Console& console) { return sweep(*command, console); };
}

}  // namespace tessera::commands
