// tessera demo: BERT-base's layers from declaration to verified, measured results.
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

constexpr std::string_view kNext =
    "Next:\n"
    "  tessera run gemm m=512 n=512 k=512 --verify        one problem of your own\n"
    "  tessera explain gemm m=512 n=512 k=512             why that kernel, and why not the others\n"
    "  tessera explain gemm m=4096 n=4096 k=64 dtype=bf16 --target sm90a   for a machine far away\n"
    "  tessera bench gemm --shapes square --threads 1     against the libraries found here\n"
    "  tessera doctor                                     what is missing, and how to get it\n";

// The kernels that choose() would take for these problems, and the next best ones.
KernelSet declare_kernels(const std::vector<Problem>& problems, const Target& target) {
  KernelSetBuilder builder("bert_base", target);
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

int demo(int threads, const Console& console) {
  const std::vector<Problem> problems = read_shapes("bert_base");
  const Target target = host_target();
  const KernelSet set = declare_kernels(problems, target);
  if (!console.json) {
    console.write_out("BERT-base, 128 tokens: {} layer shapes on {} ({})\n", problems.size(),
                      host_info().cpu_model, target.name);
    console.write_out("declared a set of {} kernels\n", set.specs.size());
  }
  auto registry = std::make_shared<Registry>("bert_base");
  registry->declare(set);
  build(*registry, console);
  Dispatcher dispatcher({}, registry);

  const int limit = runtime::thread_limit({.threads = threads});
  const peers::PeerSearch peers = find_peers(peers::peer_names(host_target().backend), limit);
  const BenchSettings settings{.run = {.threads = threads},
                               .protocol = {.rounds = 7, .warmup = 1, .min_seconds = 0.005}};
  Table table({"layer", "kernel", "why", "time", "GFLOP/s", "of peak", "vs oneDNN", "vs OpenBLAS"});
  Json rows = Json::array();
  std::vector<std::string> notes = peers.notes;
  std::optional<Error> failure;
  {
    Progress progress(console, "run", Plain::signs);
    failure = run_through(console, problems, [&](const Problem& problem) {
      progress.step(rows.size(), problems.size(), to_string(problem));
      const BenchCase bench = bench_problem(dispatcher, problem, peers, settings);
      rows.push_back(to_json(bench));
      for (const std::string& note : bench.notes) {
        notes.push_back(fmt::format("{}: {}", to_string(problem), note));
      }
      table.add({to_string(problem), bench.kernel, std::string(to_string(bench.source)),
                 format_seconds(bench.seconds), fmt::format("{:.1f}", bench.gflops),
                 share_text(bench), ratio_text(bench, "onednn"), ratio_text(bench, "openblas")});
    });
  }
  if (console.json) {
    Json json = {{"threads", limit}, {"kernels", set.specs.size()}, {"cases", rows}};
    if (failure) json["error"] = error_json(*failure);
    console.print_json(json);
    return failure ? 1 : 0;
  }
  console.write_out("{}\n", table.text());
  if (failure) {
    console.print_error(*failure);
    return 1;
  }
  console.write_out(
      "All {} results verified against the fp64 reference; {} threads; above 1x we are "
      "faster.\n",
      problems.size(), limit);
  console.write_out(
      "why: how the kernel was chosen, by estimate (analytic), by a model of measurements "
      "(learned) or by measurement (tuned).\n");
  for (const auto& peer : peers.found) console.write_out("{} {}\n", peer->name(), peer->version());
  for (const std::string& note : notes) console.write_out("note: {}\n", note);
  console.write_out("\n{}", kNext);
  return 0;
}

}  // namespace

Action declare_demo(CLI::App& app) {
  auto threads = std::make_shared<int>(0);
  add_threads_option(app, *threads);
  return [threads](const Console& console) { return demo(*threads, console); };
}

}  // namespace tessera::cli
