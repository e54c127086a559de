// Kernels against the machine's measured roofs and against peers, by the one benchmark protocol.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "peers/peers.h"
#include "tessera/commands/work.h"

namespace tessera::cli {

// Names of our own kernels that are measured in turns with the chosen one.
inline constexpr std::string_view kPlain = "plain";  // the kernel that is chosen for the problem
                                                     // without its epilogue
// The kernel that is chosen where bits must not depend on the batch; the ratio is its price.
inline constexpr std::string_view kBatchInvariant = "batch-invariant";

struct BenchSettings {
  RunSettings run;
  runtime::Protocol protocol;
  std::vector<std::string> beside;
  // The least time limit of a peer for trying its ways of one problem in a process of its own. 0:
  // they are not tried.
  double peer_seconds = 30;
};

// The fastest of a peer's ways to compute a problem.
struct PeerTiming {
  // "onednn", "onednn_packed", "openblas", "plain", "batch-invariant", a kernel's name
  std::string group;
  std::string how;
  double seconds = 0;
  double spread = 0;
  runtime::Ratio ratio;  // above 1: we are faster
};

struct BenchCase {
  Problem problem;
  std::string kernel;
  ChoiceSource source = ChoiceSource::first_legal;
  double seconds = 0;
  double spread = 0;
  double gflops = 0;
  bool bandwidth_bound = false;   // bytes limit the time, not operations
  double peak_fraction = 0;       // share of the machine's measured arithmetic peak
  double gb_per_s = 0;            // counts every operand once
  double bandwidth_fraction = 0;  // share of the machine's measured read bandwidth
  std::vector<PeerTiming> peers;
  std::vector<std::string> notes;  // peers that could not take part, and why
};

// Chooses and builds the kernel, verifies it and every peer against the reference, then measures
// them together. Throws Error{verification_failed} when our own result is wrong.
BenchCase bench_problem(Dispatcher& dispatcher, const Problem& problem,
                        const peers::PeerSearch& peers, const BenchSettings& settings);

struct BenchSummary {
  std::map<std::string, double> geomean_vs;  // by group
  std::map<std::string, double> min_vs;
  double peak_fraction = 0;       // geometric mean over the cases that are not bandwidth-bound
  double bandwidth_fraction = 0;  // geometric mean over the cases that are
  std::size_t cases = 0;
  std::size_t ties = 0;  // comparisons whose difference is below their spread
};
BenchSummary summarise(const std::vector<BenchCase>& cases);

Json to_json(const BenchCase& bench);
Json to_json(const BenchSummary& summary);

// "1.08x", or "tie 1.01x"; "-" for a group that did not take part.
std::string ratio_text(const BenchCase& bench, const std::string& group);
// The share of the peak, "93%", or "41.2 GB/s (95%)" for a bandwidth-bound case.
std::string share_text(const BenchCase& bench);

}  // namespace tessera::cli
