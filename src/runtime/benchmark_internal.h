// The benchmark protocol with its clock as a parameter, so that tests bring their own.
#pragma once

#include "tessera/runtime/benchmark.h"

namespace tessera::runtime {

using Clock = double (*)();  // seconds since any fixed moment

double steady_seconds();

std::vector<Timing> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            Clock now);

// The value below which `fraction` of the values lie, interpolated between neighbours.
double quantile(std::vector<double> values, double fraction);

// Bytes of the last-level cache.
std::int64_t last_level_cache_bytes();

}  // namespace tessera::runtime
