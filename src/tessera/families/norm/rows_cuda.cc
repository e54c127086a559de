// Kernels for NVIDIA GPUs: a block of warps takes whole rows, or slices of few long ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::norm {
namespace {

constexpr int kVectorBytes = 16;    // that a thread moves at once
constexpr int kMoreRegisters = 40;  // than the values that a thread holds

constexpr double kStepSeconds = 2e-6;  // first bytes, last bytes

// What each warp of a block adds to the block's time where warps wait for each other, and what each
// value adds that a thread has beyond some. From which kernels were best on an H200.
constexpr double kShareOfWarp = 0.03;
constexpr double kShareOfValue = 0.0013;
constexpr double kFewValues = 16;

int threads_of(const Algorithm& a) { return a.wave.m * a.wave.n * kWarp; }
int registers_needed(const Algorithm& a) {
  return a.tile.n / (kWarp * std::max(1, a.wave.n)) + kMoreRegisters;
}
int registers_of_thread(const Case& c) {
  return std::min(c.target.registers_per_thread,
                  c.target.registers_per_unit / threads_of(c.algorithm));
}
int tile_unit(const Case& c) {
  return c.algorithm.wave.n * kWarp * kVectorBytes / size_of(c.signature.in);
}

constexpr tile::Rule<Case> kCudaRules[] = {
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       const int most = c.target.max_threads_per_block;
       return w.m >= 1 && w.n >= 1 && w.k == 1 && w.m <= most && w.n <= most &&
              threads_of(c.algorithm) <= most;
     },
     [](const Case& c) {
       return fmt::format("wave must be m x n x 1 warps of {} threads, at most {} in all, got {}",
                          kWarp, c.target.max_threads_per_block, to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return tile_fits(c.algorithm.tile, c.algorithm.wave.m, tile_unit(c)); },
     [](const Case& c) {
       return tile_does_not_fit(c.algorithm.tile, c.algorithm.wave.m, tile_unit(c));
     }},
    {[](const Case& c) { return registers_needed(c.algorithm) <= registers_of_thread(c); },
     [](const Case& c) {
       return fmt::format("needs {} registers a thread, {} has {} for each of {} threads",
                          registers_needed(c.algorithm), c.target.name, registers_of_thread(c),
                          threads_of(c.algorithm));
     }},
};

// A block has as many rows as its warps stand for.
std::vector<Algorithm> cuda_algorithms(const Target& target) {
  return rows_algorithms(target, [](const Algorithm& a) { return a.wave.m; });
}

Source emit_cuda(const KernelSpec& spec, const Target&) {
  constexpr std::array<tile::GpuEntry, 2> kEntries = {{{"", "run"}, {"_result", "run_result"}}};
  const auto steps = static_cast<std::size_t>(steps_of(spec.algorithm));
  return tile::cuda_source(spec, kAbi, rows_template(spec), threads_of(spec.algorithm),
                           std::span(kEntries).first(steps));
}

Estimate estimate_cuda(const KernelSpec& spec, const NormProblem& p, const Target& target, int) {
  const Algorithm& a = spec.algorithm;
  const double blocks = std::ceil(static_cast<double>(p.rows) / a.wave.m) * a.slices;
  const double columns = std::min<double>(a.tile.n, static_cast<double>(p.columns) / a.slices);
  const double bandwidth = tile::gpu_bandwidth(target, blocks, threads_of(a), registers_needed(a),
                                               a.wave.m * columns * size_of(p.in));
  const double again = bytes_again(a, p);
  const bool is_cached = again < 0.5 * tile::cache_bytes(target);
  const double values = a.tile.n / double(a.wave.n * kWarp);
  const int waiting = a.wave.n > 1 ? a.wave.m * a.wave.n : 1;  // warps
  const double more =
      1 + kShareOfWarp * waiting + kShareOfValue * std::max(0.0, values - kFewValues);
  const double memory = (bytes(p) + (is_cached ? again / 3 : again)) * more / bandwidth;
  return tile::total_of(0, memory, target.launch_us * 1e-6 + steps_of(a) * kStepSeconds);
}

}  // namespace

const Way kRowsCuda = {
    .backend = "cuda",
    .pipeline = Pipeline::rows,
    .rules = kCudaRules,
    .serves = rows_serve,
    .algorithms = cuda_algorithms,
    .emit = emit_cuda,
    .bind = bind_rows,
    .estimate = estimate_cuda,
    .own = {
        {.pipeline = Pipeline::rows, .tile = {1, 4096, 1}, .wave = {1, 8, 1}, .warp_tile = {}}}};

}  // namespace tessera::norm
