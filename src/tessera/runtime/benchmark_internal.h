// The benchmark protocol with its clock as a parameter, so that tests bring their own.
#pragma once

#include "tessera/runtime/benchmark.h"

namespace tessera::runtime {

using Clock = double (*)();  // seconds since any fixed moment

double steady_seconds();

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            Clock now);

// How to time work on a machine and how to flush its caches.
class Meter {
 public:
  virtual ~Meter() = default;
  virtual void flush() = 0;
  // Runs the work, waits for its end, and returns the seconds that it took.
  virtual double time(const std::function<void()>& work) = 0;
  virtual double now() = 0;
};

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            Meter& meter);

// Bytes of the last-level cache.
std::int64_t last_level_cache_bytes();

}  // namespace tessera::runtime
