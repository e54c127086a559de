// Which of the best candidates of each direction is fastest here? Each is validated against the
// fp64 reference, then they are timed against each other: interleaved, in random order, medians.
// TESSERA_TARGET=sm90a measures on a GPU.
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
  const tessera::runtime::Protocol protocol{.rounds = 5, .warmup = 1};
  for (const auto& timing : tessera::runtime::measure(candidates, protocol, place)) {
    std::printf("%10.1f us +- %4.1f%%  %9.2f GFLOP/s  %s\n", timing.median_seconds * 1e6,
                timing.spread * 50, flops / timing.median_seconds / 1e9, timing.name.c_str());
  }
  return candidates.size();
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const std::string sizes = tessera::is_gpu(dispatcher.target())
                                ? " n=32 c=128 k=128 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16"
                                : " n=1 c=32 k=32 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1";
  for (const char* const direction : {"forward", "backward_data", "backward_weight"}) {
    const auto problem = tessera::parse_problem("conv direction=" + std::string(direction) + sizes);
    std::printf("%s\n", to_string(problem).c_str());
    if (compare_candidates(dispatcher, problem) == 0) return 1;
  }
  return 0;
}
