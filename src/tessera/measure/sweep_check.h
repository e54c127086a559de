// Checks of measurements, to be made before one learns from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/measure/sweep_store.h"

namespace tessera::measure {

struct CheckLimits {
  double outlier_z = 8;     // in robust standard deviations
  int least_rows = 8;       // rows that a problem needs for a search for outliers
  double drift = 0.05;      // of the clock readings in a run, as a share
  double variation = 0.10;  // coefficient of variation of a row's readings
  std::size_t examples = 5;
};

struct Finding {
  std::string what;  // "outlier", "drift", "duplicate", "variation"
  std::int64_t count = 0;
  std::string rule;                   // what counts as such a finding
  std::vector<std::string> examples;  // sentences, the worst first
};

// Findings of all four kinds, in this order, also when a kind has none.
//   outlier: log of a time, less the problem's median, less the median that the kernel then has
//     over all problems, so that a kernel that is always slow is none; what remains is further
//     from zero than outlier_z times MAD / 0.6745 (Iglewicz and Hoaglin, 1993), MAD being the
//     problem's and at least 2%;
//   drift: highest over lowest of the run's clock readings, each the median of three neighbours;
//   duplicate: the same problem and kernel twice on one class of machine;
//   variation: spread / 1.349, which for normal readings is standard deviation / mean.
std::vector<Finding> check(const SweepData& data, const CheckLimits& limits = {});

// Counts for one word, such as a data type.
struct Share {
  std::string word;
  std::int64_t rows = 0;
};
struct Description {
  std::int64_t rows = 0;
  std::int64_t problems = 0;
  std::int64_t kernels = 0;
  std::int64_t clock_readings = 0;
  std::vector<Share> outcomes, machines, types, pipelines, runs;
  double least_seconds = 0;  // of the rows that are ok
  double most_seconds = 0;
};
Description describe(const SweepData& data);

}  // namespace tessera::measure
