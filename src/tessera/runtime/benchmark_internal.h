// The benchmark protocol with its clock as a parameter, so that tests bring their own.
#pragma once

#include "tessera/runtime/benchmark.h"

namespace tessera::runtime {

using Clock = double (*)();  // seconds since any fixed moment

double steady_seconds();

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            Clock now);

// How a machine is timed and its caches are emptied.
class Meter {
 public:
  virtual ~Meter() = default;
  virtual void flush() = 0;
  // Seconds from the start of the work to its end, which is waited for.
  virtual double time(const std::function<void()>& work) = 0;
  virtual double now() = 0;
};

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            Meter& meter);

// Bytes of the last-level cache.
std::int64_t last_level_cache_bytes();

}  // namespace tessera::runtime
