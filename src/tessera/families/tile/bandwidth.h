// How fast bytes move: for kernels whose time is that of their traffic.
#pragma once

#include "tessera/families/family.h"

namespace tessera::tile {

inline constexpr double kUnitThreads = 2048;  // the most of a GPU's unit

// Bytes a second of so many threads of a CPU, from the smallest cache that has room for `bytes`.
double cpu_bandwidth(const Target& target, double bytes, double threads);

// Bytes a second of a GPU whose blocks ask for `bytes_of_block` at a time; as many blocks are
// active as `blocks`, their threads and registers let be.
double gpu_bandwidth(const Target& target, double blocks, int threads, int registers,
                     double bytes_of_block);

// The bytes of the last cache.
double cache_bytes(const Target& target);

// The total time: the longer of computing and moving, and the overhead.
inline Estimate total_of(double compute, double memory, double overhead, double utilisation = 1) {
  return {std::max(compute, memory) + overhead, compute, memory, overhead, utilisation};
}

}  // namespace tessera::tile
