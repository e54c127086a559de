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
  double min_seconds = 0.002;  // one reading repeats the call for at least this time
  double budget_seconds = 0;   // 0: none; after it no new round starts (3 rounds at least)
  double soak_seconds = 0;     // load before the first round, so that the clock settles
  bool flush_caches = false;   // write more than the last-level cache holds before each reading; a
                               // reading is then a single call, since a second call would find the
                               // caches warm
  std::uint64_t seed = 1;
};

struct Candidate {
  std::string name;
  std::function<void()> call;  // returns when the work is done, on a GPU when it is enqueued
};

struct Timing {
  std::string name;
  double median_seconds = 0;
  double min_seconds = 0;
  double spread = 0;            // interquartile range / median
  std::vector<double> seconds;  // one per round
};

// Measures all candidates; the result has their order. Throws Error{invalid_argument} for a
// protocol without rounds and for a candidate without a call, and passes on what a call throws.
std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol);

// The same for work on a place's stream. On a GPU, events measure the time from before the first
// call of a reading to the end of its last call, and the stream flushes the caches between
// readings.
std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            const Place& place);

class Meter;

// Takes one reading at a time, for callers who choose the next candidate by the readings so far.
// Uses the protocol's min_seconds and flush_caches.
class Stopwatch {
 public:
  Stopwatch(const Place& place, const Protocol& protocol);
  ~Stopwatch();
  // Returns the seconds of one call. `once` is roughly the seconds of one call; it decides how many
  // calls make a reading.
  double read(const std::function<void()>& call, double once);

 private:
  Protocol protocol_;
  std::unique_ptr<Meter> meter_;
};

// The value below which `fraction` of the values lie, interpolated between neighbours; 0 when there
// are no values.
double quantile(std::vector<double> values, double fraction);

// The quotient of b's time and a's time, round by round. Above 1, a is faster.
struct Ratio {
  double median = 1;
  double low = 1;    // 25th percentile
  double high = 1;   // 75th percentile
  bool tie = false;  // 1 lies within [low, high]
};
// Throws Error{invalid_argument} unless both have the same number of rounds and at least one.
Ratio paired_ratio(const Timing& a, const Timing& b);

// The machine's measured roofs: the highest of several readings.
struct MachinePeak {
  double fp32_flops = 0;  // of one thread; a fused multiply-add counts as 2
  double bf16_flops = 0;  // 0 without the instruction
  double int8_ops = 0;
  double read_bytes_per_s = 0;  // one thread, from memory
  double read_bytes_per_s_all = 0;
};
// Measured on the first call (1.5 s at most), then remembered by the process.
const MachinePeak& machine_peak();

double flush_bytes();  // bytes that a flush writes: twice the last-level cache

}  // namespace tessera::runtime
