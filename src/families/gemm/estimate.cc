#include <algorithm>
#include <cmath>

#include "tessera/families/gemm/estimate_internal.h"

namespace tessera::gemm {
namespace {

// Launch floor and the share of the peak that a full GPU reaches. Source: a measured prototype on
// an H200: 3.3 us for an empty kernel (the row's launch_us), about 90% of the tensor pipe busy.
constexpr double kGpuPeakShare = 0.9;
constexpr double kGpuMemoryShare = 0.85;

double over_batches(std::int64_t stride, std::int64_t batch) {
  return stride == 0 ? 1.0 : static_cast<double>(batch);
}

double blocks(std::int64_t size, std::int64_t block) {
  const std::int64_t whole = (size + block - 1) / block;
  return static_cast<double>(whole);
}

// The instruction whose rate the kernel runs at.
double macs_per_cycle(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const bool wgmma = spec.algorithm.pipeline != Pipeline::cpasync;
  double best = 0;
  for (const Instruction& i : target.instructions) {
    const bool is_wide = i.name == "wgmma" || i.name == "mfma";
    const bool same = i.a == s.a && i.b == s.b;
    if (!same || (is_wide && !wgmma)) continue;
    best = std::max(best, i.per_cycle * i.shape.m * i.shape.n * i.shape.k);
  }
  return best > 0 ? best : 1;
}

}  // namespace

Estimate total_of(double compute_seconds, double memory_seconds, double overhead_seconds,
                  double utilisation) {
  Estimate e;
  e.compute_seconds = compute_seconds;
  e.memory_seconds = memory_seconds;
  e.overhead_seconds = overhead_seconds;
  e.seconds = std::max(compute_seconds, memory_seconds) + overhead_seconds;
  e.utilisation = utilisation;
  return e;
}

double flops(const Problem& problem) {
  const auto& p = std::get<GemmProblem>(problem);
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
         static_cast<double>(p.batch);
}

double bytes(const Problem& problem) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  const auto m = static_cast<double>(p.m);
  const auto n = static_cast<double>(p.n);
  const auto k = static_cast<double>(p.k);
  double sum = m * k * size_of(p.a) * over_batches(p.batch_stride_a, p.batch) +
               k * n * size_of(p.b) * over_batches(p.batch_stride_b, p.batch) +
               m * n * size_of(p.out) * static_cast<double>(p.batch);
  if (p.beta != 0) sum += m * n * size_of(p.out) * over_batches(p.batch_stride_c, p.batch);
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    const DShape shape = uses[i].shape;
    const double elements = shape == DShape::along_m ? m : shape == DShape::along_n ? n : m * n;
    sum += elements * size_of(p.d) * over_batches(p.batch_stride_d[i], p.batch);
  }
  return sum;
}

// Tiles run in waves over the machine's units, each as long as its multiplications or the loads
// that feed them; all of it at least as long as the least traffic takes.
Estimate estimate_gpu(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return total_of(0, 0, target.launch_us * 1e-6, 1);
  const Algorithm& a = spec.algorithm;
  const std::int64_t rows = a.swap_ab ? p.n : p.m;
  const std::int64_t columns = a.swap_ab ? p.m : p.n;
  const double k = static_cast<double>(p.k) / a.splits;
  const double tiles =
      blocks(rows, a.tile.m) * blocks(columns, a.tile.n) * static_cast<double>(p.batch) * a.splits;
  const double waves = std::max(1.0, std::ceil(tiles / target.units));
  const double hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  const double tile_macs = static_cast<double>(a.tile.m) * a.tile.n * k;
  const double multiply = tile_macs / (macs_per_cycle(spec, target) * kGpuPeakShare);
  const int element = size_of(p.a);
  const double load_bytes =
      (static_cast<double>(a.tile.m) / a.cluster_n + static_cast<double>(a.tile.n) / a.cluster_m) *
      k * element;
  const double rate = target.caches.empty() ? 0 : target.caches.back().bytes_per_cycle;
  const double load = load_bytes / std::max(rate, 1.0);
  const double compute = waves * std::max(multiply, load) / hertz;
  const double memory = bytes(p) / (std::max(target.memory_gb_per_s, 1.0) * 1e9 * kGpuMemoryShare);
  const double useful = flops(p) / 2;
  const double issued = waves * target.units * tile_macs;
  return total_of(compute, memory, target.launch_us * 1e-6, issued > 0 ? useful / issued : 1);
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  if (target.backend != "cpu") return estimate_gpu(spec, p, target);
  return estimate_cpu(spec, p, target, threads > 0 ? threads : target.units);
}

}  // namespace tessera::gemm
