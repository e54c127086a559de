// Which candidate is read next, and when it has been read often enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::measure {

// Candidates take turns in random order, round by round. A candidate is done when the interval of
// its median is tight, or when it is plainly slower than the best.
struct RoundRules {
  int least = 3;              // readings before the interval counts
  int most = 9;               // readings of a candidate
  double tight = 0.01;        // half the interval over the median
  int hopeless_after = 2;     // readings, the lowest of which is
  double hopeless = 2;        // that many times the best median: done
  double slower = 1.5;        // done after `least` readings, the lowest of which is
  double budget_seconds = 0;  // past it no new round starts after the first; 0: none
  std::uint64_t seed = 1;
};

using Readings = std::vector<std::vector<double>>;  // seconds, by candidate

// Half the width of the 95% interval of the median over the median: 1.57 IQR / sqrt(n) (McGill,
// Tukey and Larsen, "Variations of Box Plots", 1978). Infinite for fewer than two readings.
double half_interval(const std::vector<double>& readings);

// `read(i)` gives seconds of candidate i; a negative value takes it out for good.
Readings read_in_rounds(std::size_t candidates, const std::function<double(std::size_t)>& read,
                        const RoundRules& rules);

// Every candidate `rounds` times, whatever it reads.
Readings read_paired(std::size_t candidates, const std::function<double(std::size_t)>& read,
                     int rounds, std::uint64_t seed);

}  // namespace tessera::measure
