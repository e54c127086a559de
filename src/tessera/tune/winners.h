// The measurements of a sweep that the dispatcher should know, and the choices that they change.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/measure/sweep_store.h"
#include "tessera/tune/store.h"

namespace tessera::tune {

// A class of machine: sweeps and the tuning store keep measurements of different classes apart.
struct Machine {
  std::string device;
  std::string target;
  int threads = 1;
};

// Measurements for the tuning store: every problem's finalists, and the kernels that crashed, hung
// or were wrong, so that they are not chosen again.
std::vector<Measurement> winners_of(const measure::SweepData& data, const Machine& machine);

// A problem's kernel before and after.
struct Change {
  std::string problem;
  std::string before, after;  // kernels; `after` is the fastest measured
  double before_seconds = 0;  // 0: the kernel was not measured
  double after_seconds = 0;
};

// The changes for the problems in `chosen`, which maps a problem to its kernel before. Problems
// without an ok kernel are left out. Sorted by problem.
std::vector<Change> changes_of(const measure::SweepData& data, const Machine& machine,
                               const std::map<std::string, std::string>& chosen);

}  // namespace tessera::tune
