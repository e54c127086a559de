// tessera bench: an operation against peers, dispatch, ranking, compilation, start-up, and the
// machine's own roofs.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "bench_launch.h"
#include "bench_problem.h"
#include "bench_rank.h"
#include "command.h"
#include "peer_trial.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"

extern char** environ;

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
}

struct BenchCommand {
  std::string what;
  ProblemOptions problems;
  std::string target;
  std::vector<std::string> peers;  // empty: the peers of the target's kind
  BenchSettings settings;
  std::optional<bool> flush;  // unset: on GPUs only
  std::optional<double> soak;
  int kernels = 24;       // of bench jit
  std::string model;      // of bench rank; empty: the shipped one
  int candidates = 4608;  // of bench rank
  int first = 0;          // of bench peers: the way to begin with
};

Json protocol_json(const runtime::Protocol& protocol) {
  return {{"rounds", protocol.rounds},
          {"warmup", protocol.warmup},
          {"min_seconds", protocol.min_seconds},
          {"soak_seconds", protocol.soak_seconds},
          {"flush_caches", protocol.flush_caches},
          {"seed", protocol.seed}};
}

std::string threads_text(int threads) {
  return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

void print_text(const Console& console, const std::vector<BenchCase>& cases,
                const BenchSummary& summary, const peers::PeerSearch& peers,
                const std::string& where) {
  std::vector<std::string> header = {"problem", "kernel", "time", "GFLOP/s", "of peak"};
  for (const auto& [group, value] : summary.geomean_vs) header.push_back("vs " + group);
  Table table(header);
  for (const BenchCase& bench : cases) {
    std::vector<std::string> row = {to_string(bench.problem), bench.kernel,
                                    format_seconds(bench.seconds),
                                    fmt::format("{:.1f}", bench.gflops), share_text(bench)};
    for (const auto& [group, value] : summary.geomean_vs) row.push_back(ratio_text(bench, group));
    table.add(std::move(row));
  }
  console.write_out("{}\n", table.text());
  for (const auto& peer : peers.found) console.write_out("{} {}\n", peer->name(), peer->version());
  for (const std::string& note : peers.notes) console.write_out("note: {}\n", note);
  for (const BenchCase& bench : cases) {
    for (const std::string& note : bench.notes) {
      console.write_out("note: {}: {}\n", to_string(bench.problem), note);
    }
  }
  for (const auto& [group, value] : summary.geomean_vs) {
    console.write_out("{:.3f}x {} (geometric mean), {:.3f}x at least\n", value, group,
                      summary.min_vs.at(group));
  }
  console.write_out("{:.1f}% of peak on {}, {} cases, {} ties\n", 100 * summary.peak_fraction,
                    where, summary.cases, summary.ties);
}

// A GPU is measured with cold caches and at the clock that it keeps under load. On a CPU, a loop
// over one problem mostly finds its operands in the caches, as it would after the layer before it.
BenchSettings settings_for(const BenchCommand& command, const Target& target) {
  constexpr double kGpuSoakSeconds = 0.25;
  BenchSettings settings = command.settings;
  settings.protocol.flush_caches = command.flush.value_or(starts_cold(target));
  settings.protocol.soak_seconds = command.soak.value_or(is_gpu(target) ? kGpuSoakSeconds : 0);
  return settings;
}

// The peers of the target's kind that have one of the operations.
std::vector<std::string> usual_peers(const Target& target, const std::vector<Problem>& problems) {
  std::vector<std::string> names = peers::peer_names(target.backend);
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(problems, [&](const Problem& problem) {
      return peers::peer_computes(name, op_of(problem));
    });
  });
  return names;
}

// A shape file may hold a whole network, of which one operation is measured.
std::vector<Problem> problems_of(const BenchCommand& command) {
  ProblemOptions options = command.problems;
  options.op = command.what;
  return read_problems(options);
}

int bench_problems(const BenchCommand& command, const Console& console) {
  const std::vector<Problem> problems = problems_of(command);
  const int threads = runtime::thread_limit({.threads = command.settings.run.threads});
  Dispatcher dispatcher({.target = command.target});
  const Target& target = dispatcher.target();
  const BenchSettings settings = settings_for(command, target);
  const peers::PeerSearch peers =
      find_peers(command.peers.empty() ? usual_peers(target, problems) : command.peers, threads);

  std::vector<BenchCase> cases;
  Progress progress(console, "bench", Plain::signs);
  const std::optional<Error> failure = run_through(console, problems, [&](const Problem& problem) {
    progress.step(cases.size(), problems.size(), to_string(problem));
    cases.push_back(bench_problem(dispatcher, problem, peers, settings));
  });
  progress.clear();

  const BenchSummary summary = summarise(cases);
  if (console.json) {
    Json versions = Json::object();
    for (const auto& peer : peers.found) versions[peer->name()] = peer->version();
    Json rows = Json::array();
    for (const BenchCase& bench : cases) rows.push_back(to_json(bench));
    Json json = {{"machine", measure::device_name(target, settings.run.device)},
                 {"target", target.name},
                 {"threads", threads},
                 {"protocol", protocol_json(settings.protocol)},
                 {"peers", versions},
                 {"notes", peers.notes},
                 {"cases", rows},
                 {"summary", to_json(summary)}};
    if (failure) json["error"] = error_json(*failure);
    console.print_json(json);
  } else {
    print_text(console, cases, summary, peers,
               counts_threads(target) ? threads_text(threads)
                                      : measure::device_name(target, settings.run.device));
    if (failure) console.print_error(*failure);
  }
  return failure ? 1 : 0;
}

// Measures a warm call up to the start of the kernel, with a memo hit, in batches of calls.
constexpr int kBatches = 1000;
constexpr int kCallsPerBatch = 1000;
std::vector<double> time_dispatch(const std::string& target) {
  Dispatcher dispatcher({.target = target});
  const Problem problem = usual_problem("dispatch");
  const RunOptions options{.launch = {.threads = 1}};
  const ReadyKernel* kernel = &dispatcher.kernel_for(problem, options);
  std::vector<double> seconds;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = Clock::now();
    for (int call = 0; call < kCallsPerBatch; ++call) {
      if (&dispatcher.kernel_for(problem, options) != kernel) {
        throw Error(ErrorCode::internal, "bench dispatch: a warm call gave another kernel");
      }
    }
    seconds.push_back(seconds_since(start) / kCallsPerBatch);
  }
  return seconds;
}

int bench_dispatch(const BenchCommand& command, const Console& console) {
  const std::vector<double> seconds = time_dispatch(command.target);
  const double median = 1e9 * quantile(seconds, 0.5);
  const double p90 = 1e9 * quantile(seconds, 0.9);
  const LaunchCost launch = time_launch(command.target);
  if (console.json) {
    console.print_json({{"calls", kBatches * kCallsPerBatch},
                        {"median_ns", median},
                        {"p90_ns", p90},
                        {"plan_launch_ns", 1e9 * launch.plan},
                        {"bound_launch_ns", 1e9 * launch.kernel}});
  } else {
    console.write_out("warm dispatch: {:.1f} ns (median), {:.1f} ns (90th percentile)\n", median,
                      p90);
    console.write_out(
        "launch through a plan of the C ABI: {:.1f} ns, of which the bound kernel {:.1f} ns\n",
        1e9 * launch.plan, 1e9 * launch.kernel);
  }
  return 0;
}

// Measures the ranking of a new problem, its parts, LightGBM's predictor, and the look-up of a
// known problem.
int bench_rank(const BenchCommand& command, const Console& console) {
  RankBench bench{command.problems, command.target, command.model, command.candidates,
                  command.settings.protocol};
  bench.memo_hit = [] { return quantile(time_dispatch(""), 0.5); };
  return run_rank_bench(bench, console);
}

// A folder in the system's temporary folder, removed at the end.
struct TemporaryFolder {
  fs::path path = make_unique_folder(fs::temp_directory_path(), "tessera-bench-");
  ~TemporaryFolder() { remove_tree(path); }
};

// The machine's preselected sets of all operations.
std::vector<std::vector<KernelSpec>> preselected_sets(const Target& target) {
  std::vector<std::vector<KernelSpec>> sets;
  for (const Family* family : all_families()) {
    for (const std::string& name : family->preselected_names()) {
      try {
        sets.push_back(family->preselected(name, target));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;  // another target's set
      }
    }
  }
  return sets;
}

// The first kernels of the preselected sets, taking turns between the sets.
std::vector<KernelSpec> sample_kernels(const Target& target, int count) {
  const std::vector<std::vector<KernelSpec>> sets = preselected_sets(target);
  std::vector<KernelSpec> specs;
  for (std::size_t place = 0; static_cast<int>(specs.size()) < count; ++place) {
    bool any = false;
    for (const auto& set : sets) {
      if (place >= set.size() || static_cast<int>(specs.size()) >= count) continue;
      any = true;
      if (std::find(specs.begin(), specs.end(), set[place]) == specs.end()) {
        specs.push_back(set[place]);
      }
    }
    if (!any) break;
  }
  return specs;
}

bool runs_here(const Target& target) {
  try {
    return runtime::backend_for(target).unavailable_reason(target).empty();
  } catch (const Error&) {
    return false;
  }
}

// Measures the compile times of kernels that are not in any cache, then the time to load each from
// the cache. Loading is left out when this machine cannot run the kernels.
int bench_jit(const BenchCommand& command, const Console& console) {
  const Target target = resolve_target_here(command.target);
  const TemporaryFolder folder;
  const jit::BuildOptions options{.cache = {.folder = folder.path}};
  const bool loads = runs_here(target);
  std::vector<double> compile;
  std::vector<double> load;
  Progress progress(console, "compile", Plain::signs);
  const std::vector<KernelSpec> specs = sample_kernels(target, command.kernels);
  for (const KernelSpec& spec : specs) {
    for (std::vector<double>* seconds : {&compile, &load}) {
      Registry registry("bench", options);
      registry.add_target(target);
      const auto start = Clock::now();
      if (loads) {
        registry.get(spec);
      } else {
        registry.builder().build(emit_legal(spec, target), target);
      }
      seconds->push_back(seconds_since(start));
    }
    progress.step(compile.size(), specs.size(), name_of(spec));
  }
  progress.clear();
  const std::string compiler = jit::compiler_for(target).find({}, target, {}).version;
  if (console.json) {
    console.print_json({{"compiler", compiler},
                        {"kernels", specs.size()},
                        {"compile_median_s", quantile(compile, 0.5)},
                        {"compile_p90_s", quantile(compile, 0.9)},
                        {"cached_load_median_ms", 1e3 * quantile(load, 0.5)},
                        {"cached_load_p90_ms", 1e3 * quantile(load, 0.9)}});
  } else {
    console.write_out("{} kernels with {}\n", specs.size(), compiler);
    console.write_out("compile: {} (median), {} (90th percentile)\n",
                      format_seconds(quantile(compile, 0.5)),
                      format_seconds(quantile(compile, 0.9)));
    console.write_out("cached load: {} (median), {} (90th percentile)\n",
                      format_seconds(quantile(load, 0.5)), format_seconds(quantile(load, 0.9)));
  }
  return 0;
}

// Runs this program again, silently, and returns its wall time.
double time_child(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  const auto start = Clock::now();
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  if (error == 0) waitpid(child, &status, 0);
  if (error != 0 || status != 0) {
    throw Error(ErrorCode::internal, fmt::format("bench start: 'tessera {}' failed with status {}",
                                                 join(std::span(words).subspan(1), " "), status));
  }
  return seconds_since(start);
}

// Measures the time from exec to the first result, with the kernel in a pack or in the cache.
int bench_start(const BenchCommand&, const Console& console) {
  std::vector<std::string> words = {"tessera", "run", "--repeat", "1"};
  const std::string problem = to_string(usual_problem("start"));
  for (const std::string_view word : split_words(problem)) words.emplace_back(word);
  time_child(words);  // builds the kernel if need be
  std::vector<double> seconds;
  for (int i = 0; i < 21; ++i) seconds.push_back(time_child(words));
  const double median = 1e3 * quantile(seconds, 0.5);
  const double p90 = 1e3 * quantile(seconds, 0.9);
  if (console.json) {
    console.print_json({{"median_ms", median}, {"p90_ms", p90}});
  } else {
    console.write_out(
        "process start to first result: {:.1f} ms (median), {:.1f} ms (90th percentile)\n", median,
        p90);
  }
  return 0;
}

int bench_peak(const BenchCommand&, const Console& console) {
  const runtime::MachinePeak& peak = runtime::machine_peak();
  if (console.json) {
    console.print_json({{"machine", host_info().cpu_model},
                        {"fp32_gflops", peak.fp32_flops * 1e-9},
                        {"bf16_gflops", peak.bf16_flops * 1e-9},
                        {"int8_gops", peak.int8_ops * 1e-9},
                        {"read_gb_per_s", peak.read_bytes_per_s * 1e-9},
                        {"read_gb_per_s_all", peak.read_bytes_per_s_all * 1e-9}});
    return 0;
  }
  console.write_out("{}\n", host_info().cpu_model);
  console.write_out(
      "one thread: fp32 {:.1f} GFLOP/s, bf16 {:.1f} GFLOP/s, int8 {:.1f} GOP/s, reads {:.1f} "
      "GB/s\n",
      peak.fp32_flops * 1e-9, peak.bf16_flops * 1e-9, peak.int8_ops * 1e-9,
      peak.read_bytes_per_s * 1e-9);
  console.write_out("all threads: reads {:.1f} GB/s\n", peak.read_bytes_per_s_all * 1e-9);
  return 0;
}

// Runs every way of one peer once. The benchmark starts this before it trusts a peer.
int bench_peers(const BenchCommand& command, const Console&) {
  const bool has_problems = !command.problems.words.empty();
  const std::vector<Problem> problems =
      has_problems ? read_problems(command.problems) : std::vector<Problem>{};
  if (command.peers.size() != 1) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("bench peers: name one peer with --peers, got {}", command.peers.size()));
  }
  return serve_peer_trial(command.peers.front(), problems, command.settings.run, command.first);
}

struct BenchRow {
  std::string_view name;
  int (*run)(const BenchCommand&, const Console&);
};
constexpr std::array kBenches = {
    BenchRow{"dispatch", bench_dispatch}, BenchRow{"rank", bench_rank},
    BenchRow{"jit", bench_jit},           BenchRow{"start", bench_start},
    BenchRow{"peak", bench_peak},         BenchRow{"peers", bench_peers}};

// The subjects of `bench`: every operation, and the rows of the table.
std::vector<std::string> bench_names() {
  std::vector<std::string> names;
  for (const Family* family : all_families()) names.emplace_back(to_string(family->op));
  for (const BenchRow& row : kBenches) names.emplace_back(row.name);
  return names;
}

// 'bench gemm m=64 ...' names the operation already.
int bench(BenchCommand command, const Console& console) {
  std::vector<std::string>& words = command.problems.words;
  const bool is_named = words.empty() || words.front().find('=') == std::string::npos;
  if (!is_named) words.insert(words.begin(), command.what == "rank" ? usual_op() : command.what);
  for (const BenchRow& row : kBenches) {
    if (row.name == command.what) return row.run(command, console);
  }
  for (const Family* family : all_families()) {
    if (to_string(family->op) == command.what) return bench_problems(command, console);
  }
  const std::vector<std::string> names = bench_names();
  throw Error(ErrorCode::not_found,
              fmt::format("bench: unknown bench '{}'{} (known: {})", command.what,
                          did_you_mean(command.what, names), join(names, ", ")));
}

}  // namespace

Action declare_bench(CLI::App& app) {
  auto command = std::make_shared<BenchCommand>();
  app.add_option("what", command->what, fmt::format("One of {}", join(bench_names(), ", ")))
      ->required();
  add_problem_options(app, command->problems);
  add_target_option(app, command->target);
  app.add_option("--peers", command->peers, "Libraries to compare with")->delimiter(',');
  add_real_option(
      app, "--peer-seconds", command->settings.peer_seconds, 0,
      "A peer that takes longer for one problem, and 100 times as long as the kernel, is "
      "left out; 0 runs peers without trying them in a process of their own first");
  add_integer_option(app, "--first", command->first, 0,
                     "Of bench peers: the way to begin with, counted from 0");
  app.add_option(
         "--beside", command->settings.beside,
         "Kernels of ours that take turns with the chosen one, by name; 'plain' is that one "
         "without its epilogue, 'batch-invariant' the one whose bits do not depend on the batch")
      ->delimiter(',');
  RunSettings& run = command->settings.run;
  add_threads_option(app, run.threads);
  add_device_option(app, run.device);
  app.add_option("--force", run.force, "This kernel, or an error that says why not");
  add_seed_option(app, run.seed, "Of the random operands");
  runtime::Protocol& protocol = command->settings.protocol;
  add_integer_option(app, "--rounds", protocol.rounds, 1,
                     "Readings of each candidate, taking turns");
  add_real_option(app, "--min-seconds", protocol.min_seconds, 0, "Length of a reading");
  app.add_flag_callback(
      "--flush", [command] { command->flush = true; },
      "Empty the caches before each reading (GPUs: the default)");
  app.add_flag_callback(
      "--no-flush", [command] { command->flush = false; }, "Leave the caches as they are");
  app.add_option_function<std::string>(
         "--soak", [command](const std::string& text) { read_real(text, command->soak.emplace()); },
         "Seconds of load before the first round")
      ->type_name("FLOAT")
      ->check(real_from(0));
  add_integer_option(app, "--kernels", command->kernels, 1, "How many kernels bench jit compiles");
  app.add_option("--model", command->model,
                 "A model's folder for bench rank; else the target's shipped one");
  add_integer_option(app, "--candidates", command->candidates, 1, "How many bench rank ranks");
  return [command](const Console& console) { return bench(*command, console); };
}

}  // namespace tessera::cli
