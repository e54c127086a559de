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
  // Every candidate, whatever `top` is and whenever the budget ends; the final still gets its share
  // of the budget.
  bool all = false;
  int threads = 1;
  int device = 0;  // the GPU's number
  double candidate_timeout_seconds = 10;
  std::string worker;      // the worker program; empty: the one installed with the library
  std::uint64_t seed = 1;  // seed of the operands
};

// Runs each candidate in a child process, which fills random operands, compares the result with the
// reference and times the kernel. One more child then times the three fastest against each other.
// After the budget no candidate is started, but the first one is always measured. Returns the
// measurements, best first. The store gets the outcomes ok, wrong, crashed and timeout. A kernel
// that could not be built or loaded is returned as failed and tried again the next time. Throws
// Error{not_found} when there is no worker program.
std::vector<Measurement> autotune(const Problem& problem, const Target& target,
                                  const std::vector<KernelSpec>& candidates, Registry& registry,
                                  Store& store, const AutotuneOptions& options);

}  // namespace tessera::tune
