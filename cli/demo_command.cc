// tessera demo: problems of every operation from declaration to verified, measured results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <sstream>

#include "bench_problem.h"
#include "command.h"
#include "peer_trial.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"

namespace tessera::cli {
namespace {

constexpr int kKernelsPerProblem = 3;
constexpr std::string_view kShapes = "demo";
// They need not be here: choosing looks at no device.
constexpr std::array<const char*, 2> kFarAway = {"sm90a", "gfx942"};

constexpr std::string_view kNext =
    "Next (in a checkout, tessera is build/release/bin/tessera):\n"
    "  tessera run gemm m=512 n=512 k=512 --verify      one problem of your own\n"
    "  tessera explain gemm m=512 n=512 k=512           why that kernel, and no other\n"
    "  tessera explain gemm m=4096 n=4096 k=64 dtype=bf16 --target sm90a\n"
    "                                                   for a machine far away\n"
    "  tessera bench gemm --shapes square --threads 1   beside the libraries here\n"
    "  tessera doctor                                   what is missing here\n";

// A problem, and what it is of the layer: the comment behind it in bench/shapes/demo.txt.
struct Step {
  std::string name;
  Problem problem;
};

std::vector<std::string> step_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : shape_files()) {
    if (file.path != "demo.txt") continue;
    std::istringstream lines{std::string(file.content)};
    for (std::string line; std::getline(lines, line);) {
      const std::size_t at = line.find("# ");
      if (at != std::string::npos && at > 0) names.push_back(line.substr(at + 2));
    }
  }
  return names;
}

std::vector<Step> read_steps() {
  const std::vector<std::string> names = step_names();
  std::vector<Problem> problems = read_shapes(std::string(kShapes));
  if (names.size() != problems.size()) {
    throw Error(ErrorCode::internal,
                fmt::format("bench/shapes/demo.txt has {} problems, and {} of them have a comment",
                            problems.size(), names.size()));
  }
  std::vector<Step> steps;
  for (std::size_t i = 0; i < problems.size(); ++i) steps.push_back({names[i], problems[i]});
  return steps;
}

// The kernels that choose() would take for these problems, and the next best ones.
KernelSet declare_kernels(const std::vector<Step>& steps, const Target& target) {
  KernelSetBuilder builder("demo", target);
  for (const Step& step : steps) builder.for_problem(step.problem, kKernelsPerProblem);
  return builder.build();
}

void build(Registry& registry, const Console& console) {
  std::vector<jit::BuildResult> results;
  {
    Progress progress(console, "build", Plain::signs);
    results =
        registry.build(0, [&](std::size_t done, std::size_t total, const jit::BuildResult& result) {
          progress.step(done, total, result.name);
        });
  }
  std::size_t cached = 0;
  for (const jit::BuildResult& result : results) {
    if (!result.error.empty()) throw Error(ErrorCode::compile_failed, result.error);
    cached += result.was_cached ? 1 : 0;
  }
  if (!console.json) {
    console.write_out("Built {} kernels, {} of them already in the cache.\n\n", results.size(),
                      cached);
  }
}

std::shared_ptr<Registry> make_kernels(const std::vector<Step>& steps, const Console& console) {
  const Target target = host_target();
  const KernelSet set = declare_kernels(steps, target);
  if (!console.json) {
    console.write_out(
        "A layer of BERT-base with 128 tokens and a convolution of ResNet-50, in fp32:\n"
        "{} steps on {} ({}).\n\n"
        "Every kernel is a C++ file that is written and compiled for its step. These are\n"
        "the {} kernels that promise most.\n",
        steps.size(), host_info().cpu_model, target.name, set.specs.size());
  }
  auto registry = std::make_shared<Registry>("demo");
  registry->declare(set);
  build(*registry, console);
  return registry;
}

struct Measured {
  std::vector<BenchCase> cases;
  std::optional<Error> failure;
};

Measured measure_all(const std::vector<Step>& steps, Dispatcher& dispatcher,
                     const peers::PeerSearch& peers, int threads, const Console& console) {
  const BenchSettings settings{.run = {.threads = threads},
                               .protocol = {.rounds = 7, .warmup = 1, .min_seconds = 0.005}};
  Measured measured;
  Progress progress(console, "run", Plain::signs);
  std::vector<Problem> problems;
  for (const Step& step : steps) problems.push_back(step.problem);
  measured.failure = run_through(console, problems, [&](const Problem& problem) {
    const std::size_t done = measured.cases.size();
    progress.step(done, steps.size(), steps[done].name);
    measured.cases.push_back(bench_problem(dispatcher, problem, peers, settings));
  });
  return measured;
}

// The share of what limits the step: arithmetic, or else memory.
std::string share_of(const BenchCase& bench) {
  if (!bench.bandwidth_bound) return fmt::format("{:.0f}%", 100 * bench.peak_fraction);
  return fmt::format("{:.0f}% memory", 100 * bench.bandwidth_fraction);
}

// The peers that compute any of the steps; others have no column.
std::vector<std::string> compared(const std::vector<BenchCase>& cases) {
  std::vector<std::string> groups;
  for (const char* group : {"onednn", "openblas"}) {
    const auto took_part = [&](const BenchCase& bench) { return ratio_text(bench, group) != "-"; };
    if (std::any_of(cases.begin(), cases.end(), took_part)) groups.emplace_back(group);
  }
  return groups;
}

// Fits into 80 columns, which kernels' names do not.
std::string table_of(const std::vector<Step>& steps, const std::vector<BenchCase>& cases) {
  std::vector<std::string> titles = {"step", "time", "GFLOP/s", "of peak"};
  const std::vector<std::string> groups = compared(cases);
  for (const std::string& group : groups) titles.push_back("vs " + group);
  Table table(titles);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const BenchCase& bench = cases[i];
    std::vector<std::string> row = {
        steps[i].name, format_seconds(bench.seconds),
        bench.bandwidth_bound ? "-" : fmt::format("{:.1f}", bench.gflops), share_of(bench)};
    for (const std::string& group : groups) row.push_back(ratio_text(bench, group));
    table.add(std::move(row));
  }
  return table.text();
}

std::string kernels_of(const std::vector<Step>& steps, const std::vector<BenchCase>& cases) {
  std::string text;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    text += fmt::format("{} ({})\n  {}\n  {}\n", steps[i].name, to_string(cases[i].source),
                        to_string(steps[i].problem), cases[i].kernel);
  }
  return text;
}

// What a GPU would run that nobody has here, in bf16.
std::vector<Decision> choices_for(const Target& target) {
  ProblemOptions options;
  options.shapes = kShapes;
  options.dtype = "bf16";
  ChooseOptions choice;
  choice.rankers = {make_library_ranker(shared_model_library({})), make_analytic_ranker(),
                    make_first_legal_ranker()};
  std::vector<Decision> decisions;
  for (const Problem& problem : read_problems(options)) {
    decisions.push_back(choose(problem, target, choice));
  }
  return decisions;
}

std::string far_away(const std::vector<Step>& steps) {
  std::vector<std::string> titles = {"step"};
  std::vector<std::vector<std::string>> rows;
  for (const Step& step : steps) rows.push_back({step.name});
  std::string machines;
  for (const char* name : kFarAway) {
    const Target target = load_target(name);
    const std::vector<Decision> decisions = choices_for(target);
    titles.push_back(fmt::format("on {}", name));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].push_back(format_seconds(decisions[i].predicted_seconds));
    }
    machines += fmt::format("{}: {}; '{}' would run\n  {}\n", name, target.description,
                            steps.front().name, decisions.front().name);
  }
  Table table(titles);
  for (std::vector<std::string>& row : rows) table.add(std::move(row));
  return fmt::format("{}\n{}", table.text(), machines);
}

int print_json(const Measured& measured, int limit, std::size_t kernels, const Console& console) {
  Json rows = Json::array();
  for (const BenchCase& bench : measured.cases) rows.push_back(to_json(bench));
  Json json = {{"threads", limit}, {"kernels", kernels}, {"cases", rows}};
  for (const char* name : kFarAway) {
    Json far = Json::array();
    for (const Decision& decision : choices_for(load_target(name))) {
      far.push_back({{"kernel", decision.name},
                     {"source", to_string(decision.source)},
                     {"predicted_seconds", decision.predicted_seconds}});
    }
    json[name] = far;
  }
  if (measured.failure) json["error"] = error_json(*measured.failure);
  console.print_json(json);
  return measured.failure ? 1 : 0;
}

int print_text(const std::vector<Step>& steps, const Measured& measured,
               const peers::PeerSearch& peers, int limit, const Console& console) {
  console.write_out("{}\n", table_of(steps, measured.cases));
  if (measured.failure) {
    console.print_error(*measured.failure);
    return 1;
  }
  console.write_out(
      "All {} results agree with those of a reference in fp64, computed here before the\n"
      "times were measured with {} threads. of peak: of the arithmetic that this machine\n"
      "was measured to do, or of its memory's speed where that limits the step; caches\n"
      "are faster than that. vs: the other library's time divided by ours; above 1x\n"
      "Tessera is faster, and a tie is within the noise.\n",
      measured.cases.size(), limit);
  for (const auto& peer : peers.found) console.write_out("{} {}\n", peer->name(), peer->version());
  for (const std::string& note : peers.notes) console.write_out("note: {}\n", note);
  console.write_out(
      "\nThe problems, and the names of the kernels that ran. They were chosen by an\n"
      "estimate (analytic), a model of measurements (learned) or measurement (tuned).\n\n{}",
      kernels_of(steps, measured.cases));
  console.write_out(
      "\nThe same in bf16 on GPUs that need not be here. A choice reads a description of\n"
      "the machine and models that come with Tessera. These times are predictions; no\n"
      "kernel has been timed on an AMD GPU yet.\n\n{}\n{}",
      far_away(steps), kNext);
  return 0;
}

int demo(int threads, const Console& console) {
  const std::vector<Step> steps = read_steps();
  auto registry = make_kernels(steps, console);
  const std::size_t kernels = registry->size();
  Dispatcher dispatcher({}, std::move(registry));
  const int limit = runtime::thread_limit({.threads = threads});
  const peers::PeerSearch peers = find_peers(peers::peer_names(host_target().backend), limit);
  const Measured measured = measure_all(steps, dispatcher, peers, threads, console);
  return console.json ? print_json(measured, limit, kernels, console)
                      : print_text(steps, measured, peers, limit, console);
}

}  // namespace

Action declare_demo(CLI::App& app) {
  auto threads = std::make_shared<int>(0);
  add_threads_option(app, *threads);
  return [threads](const Console& console) { return demo(*threads, console); };
}

}  // namespace tessera::cli
