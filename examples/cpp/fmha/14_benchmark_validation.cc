// Which of the best candidates is fastest here, for a prompt and for a step of decoding? Each is
// validated against the fp64 reference, then they are timed against each other: interleaved, in
// random order, medians. TESSERA_TARGET=sm90a measures on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kCandidates = 3;

// Returns how many candidates were validated and timed.
std::size_t compare_candidates(tessera::Dispatcher& dispatcher, const tessera::Problem& problem) {
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  const auto owned = tessera::measure::random_operands(problem, 42);
  const auto placed = tessera::measure::place_operands(owned, place);

  std::vector<tessera::runtime::Candidate> candidates;
  for (const auto& considered : dispatcher.explain(problem).considered) {  // best first
    if (!considered.refusal.empty() || candidates.size() == kCandidates) break;
    tessera::RunOptions run;
    run.force = considered.name;  // that one or an error
    run.verify = true;            // throws unless every element is within its tolerance
    dispatcher.run(problem, placed.operands, run);

    run.verify = false;
    candidates.push_back({considered.name, [&dispatcher, &problem, &placed, run] {
                            dispatcher.run(problem, placed.operands, run);
                          }});
  }
  const double flops = tessera::flops_of(problem);
  const double bytes = tessera::bytes_of(problem);
  const tessera::runtime::Protocol protocol{.rounds = 5, .warmup = 1};
  for (const auto& timing : tessera::runtime::measure(candidates, protocol, place)) {
    std::printf("%10.1f us +- %4.1f%%  %9.2f GFLOP/s  %8.2f GB/s  %s\n",
                timing.median_seconds * 1e6, timing.spread * 50,
                flops / timing.median_seconds / 1e9, bytes / timing.median_seconds / 1e9,
                timing.name.c_str());
  }
  return candidates.size();
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const bool on_gpu = tessera::is_gpu(dispatcher.target());
  const std::string keys = on_gpu ? "4096" : "128";
  const std::string heads = "fmha batch=2 heads=8 heads_kv=2 hdim=64 seqlen_k=" + keys;
  const std::string dtype = on_gpu ? " dtype=bf16" : "";
  for (const std::string& queries :
       {" mask=top_left seqlen_q=" + keys, std::string(" seqlen_q=1")}) {
    const auto problem = tessera::parse_problem(heads + queries + dtype);
    std::printf("%s\n", to_string(problem).c_str());
    if (compare_candidates(dispatcher, problem) == 0) return 1;
  }
  return 0;
}
