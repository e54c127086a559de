// What of a sweep the dispatcher should know, and what it changes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/measure/sweep_store.h"
#include "tessera/tune/store.h"

namespace tessera::tune {

// A class of machine, as sweeps and the tuning store tell them apart.
struct Machine {
  std::string device;
  std::string target;
  int threads = 1;
};

// For the tuning store: every problem's finalists, and the kernels that crashed, hung or were
// wrong, so that they are not chosen again. Problems without an ok kernel bring the latter only.
std::vector<Measurement> winners_of(const measure::SweepData& data, const Machine& machine);

// What a problem's kernel was and is.
struct Change {
  std::string problem;
  std::string before, after;  // kernels; `after` is the fastest measured
  double before_seconds = 0;  // 0: the kernel was not measured
  double after_seconds = 0;
};

// For each of these problems that has an ok kernel, sorted; `chosen` gives the kernel before.
std::vector<Change> changes_of(const measure::SweepData& data, const Machine& machine,
                               const std::map<std::string, std::string>& chosen);

}  // namespace tessera::tune
