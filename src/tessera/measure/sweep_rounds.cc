#include "tessera/measure/sweep_rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tessera/base/timer.h"
#include "tessera/runtime/benchmark.h"

namespace tessera::measure {
namespace {

// Fisher-Yates, spelled out: std::shuffle differs between standard libraries.
void shuffle(std::vector<std::size_t>& order, std::mt19937_64& random) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

double best_median(const Readings& readings) {
  double best = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& of_one : readings) {
    if (!of_one.empty()) best = std::min(best, runtime::quantile(of_one, 0.5));
  }
  return best;
}

bool is_done(const std::vector<double>& readings, double best, const RoundRules& rules) {
  const int count = static_cast<int>(readings.size());
  if (count >= rules.most) return true;
  const double lowest = *std::min_element(readings.begin(), readings.end());
  if (count >= rules.hopeless_after && lowest > rules.hopeless * best) return true;
  if (count < rules.least) return false;
  return lowest > rules.slower * best || half_interval(readings) <= rules.tight;
}

std::vector<std::size_t> all_of(std::size_t candidates) {
  std::vector<std::size_t> all(candidates);
  for (std::size_t i = 0; i < candidates; ++i) all[i] = i;
  return all;
}

}  // namespace

double half_interval(const std::vector<double>& readings) {
  if (readings.size() < 2) return std::numeric_limits<double>::infinity();
  const double median = runtime::quantile(readings, 0.5);
  const double range = runtime::quantile(readings, 0.75) - runtime::quantile(readings, 0.25);
  return 1.57 * range / std::sqrt(static_cast<double>(readings.size())) / median;
}

Readings read_in_rounds(std::size_t candidates, const std::function<double(std::size_t)>& read,
                        const RoundRules& rules) {
  Readings readings(candidates);
  std::vector<std::size_t> active = all_of(candidates);
  std::mt19937_64 random(rules.seed);
  const Timer timer;
  while (!active.empty()) {
    shuffle(active, random);
    std::erase_if(active, [&](std::size_t i) {
      const double seconds = read(i);
      if (seconds >= 0) readings[i].push_back(seconds);
      return seconds < 0;
    });
    const double best = best_median(readings);
    std::erase_if(active, [&](std::size_t i) { return is_done(readings[i], best, rules); });
    if (rules.budget_seconds > 0 && timer.seconds() > rules.budget_seconds) break;
  }
  return readings;
}

std::vector<std::size_t> doubted(const Readings& readings, const std::vector<double>& expected,
                                 const RoundRules& rules) {
  std::vector<double> units;  // seconds of the expected ones' unit
  for (std::size_t i = 0; i < readings.size(); ++i) {
    if (readings[i].size() < static_cast<std::size_t>(rules.least)) continue;
    units.push_back(runtime::quantile(readings[i], 0.5) / expected[i]);
  }
  if (units.empty()) return {};
  const double limit = rules.slower * best_median(readings) / runtime::quantile(units, 0.5);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < readings.size(); ++i) {
    if (readings[i].size() == 1 && expected[i] < limit) found.push_back(i);
  }
  return found;
}

Readings read_paired(std::size_t candidates, const std::function<double(std::size_t)>& read,
                     int rounds, std::uint64_t seed) {
  Readings readings(candidates);
  std::vector<std::size_t> order = all_of(candidates);
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    shuffle(order, random);
    for (const std::size_t i : order) readings[i].push_back(read(i));
  }
  return readings;
}

}  // namespace tessera::measure
