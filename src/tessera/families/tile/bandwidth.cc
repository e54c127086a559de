#include "tessera/families/tile/bandwidth.h"

#include <algorithm>
#include <cmath>

namespace tessera::tile {
namespace {

constexpr double kCpuReached = 0.7;     // of nominal bandwidths
constexpr double kGpuReached = 0.88;    // of the nominal bandwidth, by a copy on an H200
constexpr double kGpuLatency = 1.5e-7;  // of memory, the part that nothing hides
constexpr double kMostBlocks = 32;      // of a GPU's unit

}  // namespace

double cpu_bandwidth(const Target& target, double bytes, double threads) {
  for (const CacheLevel& level : target.caches) {
    const double room = static_cast<double>(level.bytes) * (level.shared ? 1 : threads);
    if (bytes > 0.75 * room) continue;
    return kCpuReached * level.bytes_per_cycle * target.clock_ghz * 1e9 * threads;
  }
  const double share = std::min(1.0, 0.25 + 0.75 * threads / target.units);
  return kCpuReached * share * target.memory_gb_per_s * 1e9;
}

double gpu_bandwidth(const Target& target, double blocks, int threads, int registers,
                     double bytes_of_block) {
  const double by_registers = target.registers_per_unit / (double(registers) * threads);
  const double resident = std::floor(std::min({kUnitThreads / threads, kMostBlocks, by_registers}));
  const double in_flight =
      std::min(blocks, std::max(1.0, resident) * target.units) * bytes_of_block;
  const double most = target.memory_gb_per_s * 1e9 * kGpuReached;
  return most * in_flight / (in_flight + most * kGpuLatency);
}

double cache_bytes(const Target& target) {
  return target.caches.empty() ? 0 : static_cast<double>(target.caches.back().bytes);
}

}  // namespace tessera::tile
