// The one benchmark protocol: interleaved candidates in random order, medians of paired ratios.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

struct Protocol {
  int rounds = 11;             // every candidate once per round, in random order
  int warmup = 2;              // calls before the first round
  double min_seconds = 0.002;  // one reading repeats the call until this long
  double budget_seconds = 0;   // 0: none; past it no new round starts (3 rounds at least)
  double soak_seconds = 0;     // load before the first round, to reach lasting clocks
  bool flush_caches = false;   // write through the last-level cache before each reading, which is
                               // then a single call: a second one would find the caches warm
  std::uint64_t seed = 1;
};

struct Candidate {
  std::string name;
  std::function<void()> call;  // returns when the work is done, or on a GPU enqueued
};

struct Timing {
  std::string name;
  double median_seconds = 0;
  double min_seconds = 0;
  double spread = 0;            // interquartile range / median
  std::vector<double> seconds;  // one per round
};

// Readings of all candidates, in the order given. Throws Error{invalid_argument} for a protocol
// without rounds or a candidate without a call; passes on what a call throws.
std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol);

// The same for work on a place's stream: a GPU's own clock counts, from before the first call of a
// reading to the end of its last, and the caches are flushed in the stream's order.
std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            const Place& place);

class Meter;

// Takes one reading at a time, for callers who decide by what they have seen which candidate comes
// next. Uses the protocol's min_seconds and flush_caches.
class Stopwatch {
 public:
  Stopwatch(const Place& place, const Protocol& protocol);
  ~Stopwatch();
  // Seconds per call; `once` is about what a call takes, and says how many make a reading.
  double read(const std::function<void()>& call, double once);

 private:
  Protocol protocol_;
  std::unique_ptr<Meter> meter_;
};

// The value below which `fraction` of the values lie, interpolated between neighbours; 0 of none.
double quantile(std::vector<double> values, double fraction);

// b's time over a's, pair by pair: above 1, a is faster.
struct Ratio {
  double median = 1;
  double low = 1;    // 25th percentile
  double high = 1;   // 75th percentile
  bool tie = false;  // 1 lies within [low, high]
};
// Throws Error{invalid_argument} unless both have the same number of rounds, at least one.
Ratio paired_ratio(const Timing& a, const Timing& b);

// The machine's measured roofs: the highest of several readings.
struct MachinePeak {
  double fp32_flops = 0;  // of one thread: fused multiply-adds counted as 2
  double bf16_flops = 0;  // 0 without the instruction
  double int8_ops = 0;
  double read_bytes_per_s = 0;  // one thread, from memory
  double read_bytes_per_s_all = 0;
};
// Measured on the first call (1.5 s at most), then remembered by the process.
const MachinePeak& machine_peak();

double flush_bytes();  // how much a flush writes: twice the last-level cache

}  // namespace tessera::runtime
