// Decides which candidate is measured next, and when a candidate has enough readings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::measure {

// Candidates take turns in random order, round by round. A candidate is done when the interval of
// its median is tight, or when it is clearly slower than the best.
struct RoundRules {
  int least = 3;              // readings before the interval is used
  int most = 9;               // the most readings of a candidate
  double tight = 0.01;        // done when half the interval is below this share of the median
  int hopeless_after = 2;     // done after so many readings ...
  double hopeless = 2;        // ... if the lowest is this many times the best median
  double slower = 1.5;        // done after `least` readings if the lowest is so many times it
  double budget_seconds = 0;  // after it only the first round continues; 0: no budget
  std::uint64_t seed = 1;
};

using Readings = std::vector<std::vector<double>>;  // seconds, by candidate

// Half the width of the 95% interval of the median over the median: 1.57 IQR / sqrt(n) (McGill,
// Tukey and Larsen, "Variations of Box Plots", 1978). Infinite for fewer than two readings.
double half_interval(const std::vector<double>& readings);

// `read(i)` returns the seconds of candidate i. After a negative value the candidate is not read
// again.
Readings read_in_rounds(std::size_t candidates, const std::function<double(std::size_t)>& read,
                        const RoundRules& rules);

// The candidates that were dropped after a single reading, although they are expected to take less
// than rules.slower times the best: a pause may have been in that reading. expected: times in any
// unit, by candidate, which is what an estimate gives.
std::vector<std::size_t> doubted(const Readings& readings, const std::vector<double>& expected,
                                 const RoundRules& rules);

// Reads every candidate `rounds` times, whatever its readings are.
Readings read_paired(std::size_t candidates, const std::function<double(std::size_t)>& read,
                     int rounds, std::uint64_t seed);

}  // namespace tessera::measure
