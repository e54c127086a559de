#include "bench_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>

#include "peer_trial.h"

namespace tessera::cli {
namespace {

// The arithmetic roof of one thread for the instructions that operands of this type can use.
double thread_peak(DType dtype) {
  const runtime::MachinePeak& peak = runtime::machine_peak();
  if (is_integer(dtype)) return peak.int8_ops;
  const bool has_bf16 = peak.bf16_flops > 0;
  const bool fits_bf16 = dtype == DType::bf16 || dtype == DType::fp8 || dtype == DType::bf8;
  return has_bf16 && fits_bf16 ? peak.bf16_flops : peak.fp32_flops;
}

// The machine's roofs for this problem.
struct Roofs {
  double flops = 0;
  double bytes_per_s = 0;
};

Roofs measured_roofs(DType dtype, int threads) {
  const runtime::MachinePeak& peak = runtime::machine_peak();
  return {thread_peak(dtype) * threads,
          threads == 1 ? peak.read_bytes_per_s : peak.read_bytes_per_s_all};
}

// A GPU's roofs come from its row: the instruction's rate times units and clock.
Roofs stated_roofs(const Problem& problem, const Target& target) {
  Roofs roofs{.flops = 0, .bytes_per_s = target.memory_gb_per_s * 1e9};
  const Instruction* best = family_of(problem).roof(problem, target);
  if (best != nullptr) roofs.flops = peak_of(*best, target, target.units);
  return roofs;
}

void add_shares(BenchCase& bench, const Target& target, int threads) {
  const Facts facts = family_of(bench.problem).facts(bench.problem);
  const Roofs roofs = target.backend == "cpu" ? measured_roofs(facts.dtype, threads)
                                              : stated_roofs(bench.problem, target);
  bench.bandwidth_bound = facts.bandwidth_bound;
  bench.gflops = gflops_of(bench.problem, bench.seconds);
  bench.peak_fraction = roofs.flops > 0 ? bench.gflops * 1e9 / roofs.flops : 0;
  const double bytes_per_s = family_of(bench.problem).bytes(bench.problem) / bench.seconds;
  bench.gb_per_s = bytes_per_s * 1e-9;
  bench.bandwidth_fraction = bytes_per_s / roofs.bytes_per_s;
}

// The settings for trying peers before they run in this process.
struct Trials {
  RunSettings run;
  double limit_seconds = 0;  // 0: there are none
};

// The ways in which a peer computes the problem; when there are none, adds a note.
std::vector<peers::PeerCall> calls_of(const peers::Peer& peer, const Workload& work,
                                      const Problem& plain, const Trials& trials,
                                      BenchCase& bench) {
  if (peers::backend_of_peer(peer.name()) != work.place().backend->name()) {
    bench.notes.push_back(
        fmt::format("{} does not run where this problem's operands lie", peer.name()));
    return {};
  }
  if (work.place().options.device != 0) {
    bench.notes.push_back(
        fmt::format("{} runs on device 0 only; choose it with CUDA_VISIBLE_DEVICES", peer.name()));
    return {};
  }
  const std::string refusal = peer.name() + " cannot compute this problem";
  if (!peers::peer_computes(peer.name(), op_of(plain))) {
    bench.notes.push_back(refusal);
    return {};
  }
  try {
    PeerTrial trial{.is_usable = true, .good = {}, .notes = {}};
    if (trials.limit_seconds > 0) {
      trial = try_peer(peer.name(), &plain, trials.run, trials.limit_seconds);
    }
    bench.notes.insert(bench.notes.end(), trial.notes.begin(), trial.notes.end());
    if (!trial.is_usable) return {};
    std::vector<peers::PeerCall> calls = peer.calls(plain, work.operands());
    if (calls.empty()) bench.notes.push_back(refusal);
    if (trials.limit_seconds == 0) return calls;
    std::erase_if(calls, [&trial](const peers::PeerCall& call) {
      const std::string way = fmt::format("{} {}", call.group, call.how);
      return std::ranges::find(trial.good, way) == trial.good.end();
    });
    return calls;
  } catch (const Error& error) {
    bench.notes.emplace_back(error.what());
    return {};
  }
}

// A sentence about what is wrong with the peer or with its result; empty when nothing is.
std::string why_not(Workload& work, const peers::PeerCall& call) {
  try {
    const Mismatch mismatch = work.verify(call.call);
    return mismatch.ok ? "" : ", its result is wrong: " + mismatch.message;
  } catch (const Error& error) {
    return fmt::format(": {}", error.what());
  }
}

// Peers get operands that are not packed, and write to our output.
std::vector<peers::PeerCall> verified_calls(Workload& work, const peers::PeerSearch& peers,
                                            const Trials& trials, BenchCase& bench) {
  const Problem plain = family_of(work.problem()).unpacked(work.problem());
  std::vector<peers::PeerCall> good;
  for (const std::unique_ptr<peers::Peer>& peer : peers.found) {
    for (peers::PeerCall& call : calls_of(*peer, work, plain, trials, bench)) {
      if (const std::string why = why_not(work, call); why.empty()) {
        good.push_back(std::move(call));
      } else {
        bench.notes.push_back(fmt::format("{} {} is left out{}", call.group, call.how, why));
      }
    }
  }
  return good;
}

void require_right(const std::string& kernel, const Problem& problem, const Mismatch& mismatch) {
  if (mismatch.ok) return;
  throw Error(ErrorCode::verification_failed,
              fmt::format("{} on '{}': {}", kernel, to_string(problem), mismatch.message));
}

// As the dispatcher chooses that has the wish.
std::string batch_invariant_kernel(const Target& target, const Problem& problem, int threads) {
  ChooseOptions options{.threads = threads, .batch_invariant = true};
  options.rankers = {make_library_ranker(shared_model_library(environment("TESSERA_MODELS"))),
                     make_analytic_ranker(), make_first_legal_ranker()};
  return choose(problem, target, options).name;
}

// One of our kernels on the same problem, with its own operands. Throws what Workload throws, and
// Error{verification_failed}.
peers::PeerCall own_call(Dispatcher& dispatcher, const Workload& work, const std::string& name,
                         RunSettings run) {
  Problem problem = work.problem();
  run.force = name;
  if (name == kPlain) {
    KernelSpec spec = work.kernel().spec;
    problem = family_of(problem).plain(problem);
    spec.signature = signature_of(problem);
    run.force = name_of(spec);
  }
  if (name == kBatchInvariant) {
    run.force = batch_invariant_kernel(dispatcher.target(), problem, run.threads);
    problem = any_batch(problem).own;
  }
  const auto own = std::make_shared<Workload>(dispatcher, problem, run);
  require_right(own->kernel().name, problem, own->verify());
  return {name, own->kernel().name, [own] { own->run(); }};
}

std::vector<peers::PeerCall> own_calls(Dispatcher& dispatcher, const Workload& work,
                                       const BenchSettings& settings, BenchCase& bench) {
  std::vector<peers::PeerCall> calls;
  for (const std::string& name : settings.beside) {
    const Problem& problem = work.problem();
    const bool is_plain = signature_of(family_of(problem).plain(problem)) == signature_of(problem);
    if (name == kPlain && is_plain) {
      bench.notes.emplace_back("has no epilogue, so that nothing is beside it as 'plain'");
      continue;
    }
    calls.push_back(own_call(dispatcher, work, name, settings.run));
  }
  return calls;
}

// The error of a peer that failed while it was measured, with its index among the calls.
struct PeerFailure {
  std::size_t place;
  std::string why;
};

std::vector<runtime::Timing> measure_all(Workload& work, const std::vector<peers::PeerCall>& calls,
                                         std::size_t first_peer, const BenchSettings& settings) {
  std::vector<runtime::Candidate> candidates = {{work.kernel().name, [&work] { work.run(); }}};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto guarded = [&call = calls[i].call, i] {
      try {
        call();
      } catch (const Error& error) {
        throw PeerFailure{i, error.what()};
      }
    };
    const bool is_peer = i >= first_peer;
    candidates.push_back({calls[i].group + " " + calls[i].how,
                          is_peer ? std::function<void()>(guarded) : calls[i].call});
  }
  return runtime::measure(candidates, settings.protocol, work.place());
}

// Peers that fail are left out, and the others are measured again.
std::vector<runtime::Timing> measure_good(Workload& work, std::vector<peers::PeerCall>& calls,
                                          std::size_t first_peer, const BenchSettings& settings,
                                          BenchCase& bench) {
  for (;;) {
    try {
      return measure_all(work, calls, first_peer, settings);
    } catch (const PeerFailure& failure) {
      const peers::PeerCall& call = calls[failure.place];
      bench.notes.push_back(
          fmt::format("{} {} is left out: {}", call.group, call.how, failure.why));
      calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(failure.place));
    }
  }
}

// The time limit of a peer: many times our kernel's time, and the start of the child.
Trials trials_for(Workload& work, const BenchSettings& settings) {
  if (settings.peer_seconds == 0) return {settings.run, 0};
  constexpr double kTimesOurs = 100;
  const auto begin = std::chrono::steady_clock::now();
  work.run();
  work.place().backend->synchronize(work.place().options);
  const std::chrono::duration<double> ours = std::chrono::steady_clock::now() - begin;
  return {settings.run, settings.peer_seconds + kTimesOurs * ours.count()};
}

// One entry for each group: its fastest call.
void add_peers(BenchCase& bench, const std::vector<peers::PeerCall>& calls,
               const std::vector<runtime::Timing>& timings) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const runtime::Timing& timing = timings[i + 1];
    PeerTiming entry{calls[i].group, calls[i].how, timing.median_seconds, timing.spread,
                     runtime::paired_ratio(timings[0], timing)};
    const auto same = std::find_if(bench.peers.begin(), bench.peers.end(),
                                   [&](const PeerTiming& p) { return p.group == entry.group; });
    if (same == bench.peers.end()) {
      bench.peers.push_back(std::move(entry));
    } else if (entry.seconds < same->seconds) {
      *same = std::move(entry);
    }
  }
}

double geometric_mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

const PeerTiming* find_group(const BenchCase& bench, const std::string& group) {
  for (const PeerTiming& peer : bench.peers) {
    if (peer.group == group) return &peer;
  }
  return nullptr;
}

}  // namespace

BenchCase bench_problem(Dispatcher& dispatcher, const Problem& problem,
                        const peers::PeerSearch& peers, const BenchSettings& settings) {
  Workload work(dispatcher, problem, settings.run);
  BenchCase bench{.problem = problem, .kernel = work.kernel().name, .source = work.kernel().source};
  require_right(bench.kernel, problem, work.verify());
  std::vector<peers::PeerCall> calls = own_calls(dispatcher, work, settings, bench);
  const std::size_t first_peer = calls.size();
  const Trials trials = trials_for(work, settings);
  std::ranges::move(verified_calls(work, peers, trials, bench), std::back_inserter(calls));

  const std::vector<runtime::Timing> timings =
      measure_good(work, calls, first_peer, settings, bench);
  bench.seconds = timings[0].median_seconds;
  bench.spread = timings[0].spread;
  add_shares(bench, dispatcher.target(), runtime::thread_limit({.threads = settings.run.threads}));
  add_peers(bench, calls, timings);
  return bench;
}

BenchSummary summarise(const std::vector<BenchCase>& cases) {
  std::map<std::string, std::vector<double>> ratios;
  std::vector<double> peak;
  std::vector<double> bandwidth;
  BenchSummary summary{.cases = cases.size()};
  for (const BenchCase& bench : cases) {
    (bench.bandwidth_bound ? bandwidth : peak)
        .push_back(bench.bandwidth_bound ? bench.bandwidth_fraction : bench.peak_fraction);
    for (const PeerTiming& peer : bench.peers) {
      ratios[peer.group].push_back(peer.ratio.median);
      summary.ties += peer.ratio.tie ? 1 : 0;
    }
  }
  for (const auto& [group, values] : ratios) {
    summary.geomean_vs[group] = geometric_mean(values);
    summary.min_vs[group] = *std::min_element(values.begin(), values.end());
  }
  summary.peak_fraction = geometric_mean(peak);
  summary.bandwidth_fraction = geometric_mean(bandwidth);
  return summary;
}

Json to_json(const BenchCase& bench) {
  Json peers = Json::array();
  for (const PeerTiming& peer : bench.peers) {
    peers.push_back({{"peer", peer.group},
                     {"how", peer.how},
                     {"seconds", peer.seconds},
                     {"spread", rounded(peer.spread)},
                     {"gflops", rounded(gflops_of(bench.problem, peer.seconds))},
                     {"ratio", rounded(peer.ratio.median)},
                     {"ratio_low", rounded(peer.ratio.low)},
                     {"ratio_high", rounded(peer.ratio.high)},
                     {"tie", peer.ratio.tie}});
  }
  return {{"problem", to_string(bench.problem)},
          {"kernel", bench.kernel},
          {"source", to_string(bench.source)},
          {"seconds", bench.seconds},
          {"spread", rounded(bench.spread)},
          {"gflops", rounded(bench.gflops)},
          {"peak_fraction", rounded(bench.peak_fraction)},
          {"bandwidth_bound", bench.bandwidth_bound},
          {"gb_per_s", rounded(bench.gb_per_s)},
          {"bandwidth_fraction", rounded(bench.bandwidth_fraction)},
          {"peers", peers},
          {"notes", bench.notes}};
}

Json to_json(const BenchSummary& summary) {
  Json geomean = Json::object();
  Json least = Json::object();
  for (const auto& [group, value] : summary.geomean_vs) geomean[group] = rounded(value);
  for (const auto& [group, value] : summary.min_vs) least[group] = rounded(value);
  return {{"geomean_vs", geomean},
          {"min_vs", least},
          {"peak_fraction", rounded(summary.peak_fraction)},
          {"bandwidth_fraction", rounded(summary.bandwidth_fraction)},
          {"cases", summary.cases},
          {"ties", summary.ties}};
}

std::string ratio_text(const BenchCase& bench, const std::string& group) {
  const PeerTiming* peer = find_group(bench, group);
  if (peer == nullptr) return "-";
  return fmt::format("{:.2f}x{}", peer->ratio.median, peer->ratio.tie ? " tie" : "");
}

std::string share_text(const BenchCase& bench) {
  if (!bench.bandwidth_bound) return fmt::format("{:.0f}%", 100 * bench.peak_fraction);
  return fmt::format("{:.0f}% of read bandwidth", 100 * bench.bandwidth_fraction);
}

}  // namespace tessera::cli
