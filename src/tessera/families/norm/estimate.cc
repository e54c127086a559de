// Predicted times: bytes over bandwidth, and what is paid once.
#include <algorithm>
#include <cmath>

#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::norm {
namespace {

constexpr double kGpuStepSeconds = 2e-6;  // first bytes, last bytes
constexpr double kCyclesOfVector = 8;     // CPU: both passes of one vector
constexpr double kCyclesOfExp = 4;        // CPU: one of a vector
constexpr double kCyclesOfChunk = 60;     // CPU

// GPU: what each warp of a block adds to the block's time where warps wait for each other, and what
// each value adds that a thread has beyond some. From which kernels were best on an H200.
constexpr double kShareOfWarp = 0.03;
constexpr double kShareOfValue = 0.0013;
constexpr double kFewValues = 16;

// What is read once more, where a block does not hold its row.
double again_of(const Algorithm& a, const NormProblem& p) {
  const bool is_held = p.columns <= a.tile.n && a.slices == 1;
  return is_held ? 0 : elements(p) * size_of(p.in);
}
int steps_of(const Algorithm& a) { return a.slices > 1 ? 2 : 1; }

Estimate estimate_gpu(const Algorithm& a, const NormProblem& p, const Target& target) {
  const double blocks = std::ceil(static_cast<double>(p.rows) / a.wave.m) * a.slices;
  const double columns = std::min<double>(a.tile.n, static_cast<double>(p.columns) / a.slices);
  const double bandwidth =
      tile::gpu_bandwidth(target, blocks, a.wave.m * a.wave.n * kWarp, registers_needed(a),
                          a.wave.m * columns * size_of(p.in));
  const double again = again_of(a, p);
  const bool is_cached = again < 0.5 * tile::cache_bytes(target);
  const double values = a.tile.n / double(a.wave.n * kWarp);
  const int waiting = a.wave.n > 1 ? a.wave.m * a.wave.n : 1;  // warps
  const double more =
      1 + kShareOfWarp * waiting + kShareOfValue * std::max(0.0, values - kFewValues);
  const double memory = (bytes(p) + (is_cached ? again / 3 : again)) * more / bandwidth;
  return tile::total_of(0, memory, target.launch_us * 1e-6 + steps_of(a) * kGpuStepSeconds);
}

Estimate estimate_cpu(const Algorithm& a, const NormProblem& p, const Target& target, int limit) {
  const double work = static_cast<double>(p.rows) * a.slices;
  const double threads = a.wave.m == 1 ? 1 : limit;
  const double used = std::min(threads, work);
  const double idle = std::ceil(work / used) * used / work;  // while others do the last rows
  const double lanes = std::max(1, target.vector_bytes / 4);
  const double again = again_of(a, p);
  const int exps = p.kind != NormKind::softmax ? 0 : again > 0 ? 2 : 1;  // the held row keeps them
  const double of_vector = kCyclesOfVector + exps * kCyclesOfExp;
  const double chunks = std::max<double>(a.slices, std::ceil(double(p.columns) / a.tile.n));
  const double cycles =
      elements(p) / lanes * of_vector + static_cast<double>(p.rows) * chunks * kCyclesOfChunk;
  const double compute = cycles * idle / (target.clock_ghz * 1e9 * used);
  const double reread = a.slices > 1 ? again : again / static_cast<double>(p.rows) * used;
  const double memory = bytes(p) / tile::cpu_bandwidth(target, bytes(p), used) +
                        again / tile::cpu_bandwidth(target, reread, used);
  const double entering = threads > 1 ? target.launch_us * 1e-6 : 1e-7;
  return tile::total_of(compute, memory, entering * steps_of(a));
}

}  // namespace

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const auto& p = std::get<NormProblem>(problem);
  if (p.rows == 0 || p.columns == 0) return tile::total_of(0, 0, target.launch_us * 1e-6);
  if (is_gpu(target)) return estimate_gpu(spec.algorithm, p, target);
  return estimate_cpu(spec.algorithm, p, target, units_used(threads, target));
}

}  // namespace tessera::norm
