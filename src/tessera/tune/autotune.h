// Measuring the best few candidates of a problem in child processes, within a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/registry/registry.h"
#include "tessera/tune/store.h"

namespace tessera::tune {

struct AutotuneOptions {
  double budget_seconds = 2.0;
  int top = 5;
  int threads = 1;
  int device = 0;  // of the GPUs
  double candidate_timeout_seconds = 10;
  std::string worker;      // the helper program; empty: the one installed with the library
  std::uint64_t seed = 1;  // of the operands
};

// Runs each candidate in a child process that fills random operands, checks the result against the
// reference and times it; then times the fastest three against each other in one more child. No
// candidate is started past the budget, but the first one is always measured. Returns what was
// found, best first. Recorded in the store are ok, wrong, crashed and timeout; a kernel that could
// not be built or loaded is returned as failed and tried again next time. Throws Error{not_found}
// without a worker program.
std::vector<Measurement> autotune(const Problem& problem, const Target& target,
                                  const std::vector<KernelSpec>& candidates, Registry& registry,
                                  Store& store, const AutotuneOptions& options);

}  // namespace tessera::tune
