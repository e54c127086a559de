// tessera demo: problems of every operation from declaration to verified, measured results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench_problem.h"
#include "command.h"
#include "peer_trial.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"

namespace tessera::cli {
namespace {

constexpr int kKernelsPerProblem = 3;
constexpr const char* kFarAway = "sm90a";  // need not be here: choosing looks at no device

constexpr std::string_view kNext =
    "Next:\n"
    "  tessera run gemm m=512 n=512 k=512 --verify        one problem of your own\n"
    "  tessera explain gemm m=512 n=512 k=512             why that kernel, and why not the others\n"
    "  tessera explain gemm m=4096 n=4096 k=64 dtype=bf16 --target sm90a   for a machine far away\n"
    "  tessera bench gemm --shapes square --threads 1     against the libraries found here\n"
    "  tessera doctor                                     what is missing, and how to get it\n";

// The kernels that choose() would take for these problems, and the next best ones.
KernelSet declare_kernels(const std::vector<Problem>& problems, const Target& target) {
  KernelSetBuilder builder("demo", target);
  for (const Problem& problem : problems) builder.for_problem(problem, kKernelsPerProblem);
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
    console.write_out("built {} kernels, {} of them already in the cache\n\n", results.size(),
                      cached);
  }
}

std::shared_ptr<Registry> make_kernels(const std::vector<Problem>& problems,
                                       const Console& console) {
  const Target target = host_target();
  const KernelSet set = declare_kernels(problems, target);
  if (!console.json) {
    console.write_out(
        "A layer of BERT-base with 128 tokens and a convolution of ResNet-50: {} problems on {} "
        "({})\ndeclared a set of {} kernels\n",
        problems.size(), host_info().cpu_model, target.name, set.specs.size());
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

Measured measure_all(const std::vector<Problem>& problems, Dispatcher& dispatcher,
                     const peers::PeerSearch& peers, int threads, const Console& console) {
  const BenchSettings settings{.run = {.threads = threads},
                               .protocol = {.rounds = 7, .warmup = 1, .min_seconds = 0.005}};
  Measured measured;
  Progress progress(console, "run", Plain::signs);
  measured.failure = run_through(console, problems, [&](const Problem& problem) {
    progress.step(measured.cases.size(), problems.size(), to_string(problem));
    measured.cases.push_back(bench_problem(dispatcher, problem, peers, settings));
  });
  return measured;
}

std::string table_of(const std::vector<BenchCase>& cases) {
  Table table(
      {"problem", "kernel", "why", "time", "GFLOP/s", "of peak", "vs oneDNN", "vs OpenBLAS"});
  for (const BenchCase& bench : cases) {
    table.add({to_string(bench.problem), bench.kernel, std::string(to_string(bench.source)),
               format_seconds(bench.seconds), fmt::format("{:.1f}", bench.gflops),
               share_text(bench), ratio_text(bench, "onednn"), ratio_text(bench, "openblas")});
  }
  return table.text();
}

// What a GPU would run that nobody has here, in bf16.
std::vector<Decision> choices_far_away() {
  ProblemOptions options;
  options.shapes = "demo";
  options.dtype = "bf16";
  ChooseOptions choice;
  choice.rankers = {make_library_ranker(shared_model_library({})), make_analytic_ranker(),
                    make_first_legal_ranker()};
  const Target target = load_target(kFarAway);
  std::vector<Decision> decisions;
  for (const Problem& problem : read_problems(options)) {
    decisions.push_back(choose(problem, target, choice));
  }
  return decisions;
}

std::string table_of(const std::vector<Decision>& decisions) {
  Table table({"kernel", "why", "predicted"});
  for (const Decision& decision : decisions) {
    table.add({decision.name, std::string(to_string(decision.source)),
               format_seconds(decision.predicted_seconds)});
  }
  return table.text();
}

int print_json(const Measured& measured, int limit, std::size_t kernels, const Console& console) {
  Json rows = Json::array();
  for (const BenchCase& bench : measured.cases) rows.push_back(to_json(bench));
  Json far = Json::array();
  for (const Decision& decision : choices_far_away()) {
    far.push_back({{"kernel", decision.name},
                   {"source", to_string(decision.source)},
                   {"predicted_seconds", decision.predicted_seconds}});
  }
  Json json = {{"threads", limit}, {"kernels", kernels}, {"cases", rows}, {kFarAway, far}};
  if (measured.failure) json["error"] = error_json(*measured.failure);
  console.print_json(json);
  return measured.failure ? 1 : 0;
}

int print_text(const Measured& measured, const peers::PeerSearch& peers, int limit,
               const Console& console) {
  console.write_out("{}\n", table_of(measured.cases));
  if (measured.failure) {
    console.print_error(*measured.failure);
    return 1;
  }
  console.write_out(
      "All {} results verified against the fp64 reference; {} threads; above 1x we are "
      "faster.\n"
      "why: how the kernel was chosen, by estimate (analytic), by a model of measurements "
      "(learned) or by measurement (tuned).\n",
      measured.cases.size(), limit);
  for (const auto& peer : peers.found) console.write_out("{} {}\n", peer->name(), peer->version());
  for (const std::string& note : peers.notes) console.write_out("note: {}\n", note);
  console.write_out("\nThe same in bf16 on {}, which need not be here:\n\n{}\n{}",
                    load_target(kFarAway).description, table_of(choices_far_away()), kNext);
  return 0;
}

int demo(int threads, const Console& console) {
  const std::vector<Problem> problems = read_shapes("demo");
  auto registry = make_kernels(problems, console);
  const std::size_t kernels = registry->size();
  Dispatcher dispatcher({}, std::move(registry));
  const int limit = runtime::thread_limit({.threads = threads});
  const peers::PeerSearch peers = find_peers(peers::peer_names(host_target().backend), limit);
  const Measured measured = measure_all(problems, dispatcher, peers, threads, console);
  return console.json ? print_json(measured, limit, kernels, console)
                      : print_text(measured, peers, limit, console);
}

}  // namespace

Action declare_demo(CLI::App& app) {
  auto threads = std::make_shared<int>(0);
  add_threads_option(app, *threads);
  return [threads](const Console& console) { return demo(*threads, console); };
}

}  // namespace tessera::cli
