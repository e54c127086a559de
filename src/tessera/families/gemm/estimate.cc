#include <algorithm>
#include <cmath>

#include "tessera/families/gemm/estimate_internal.h"

namespace tessera::gemm {
namespace {

double over_batches(std::int64_t stride, std::int64_t batch) {
  return stride == 0 ? 1.0 : static_cast<double>(batch);
}

// What the count leaves out of short calls of blocked and stream kernels: copies of incomplete
// panels and blocks. On 402 drawn problems of up to 300 microseconds these calls took up to 6.7
// times as long as counted, 1.5 times those of less than 5 microseconds in the geometric mean. The
// factor keeps the order of kernels. It is not in estimate_cpu(), whose bits are features of
// models.
constexpr double kLeftOut = 0.45;
constexpr double kLongCall = 200e-6;  // seconds, from where on it counts less and less
Estimate with_short_calls(Estimate e) {
  const double busy = e.seconds - e.overhead_seconds;
  const double more = kLeftOut * busy / (1 + busy / kLongCall);
  e.overhead_seconds += more;
  e.seconds += more;
  return e;
}

// Few rows of A by rows of B, in vectors of 8 lanes: each step along k reads half a line, and B's
// next row is lines away. 100 cycles and 5 for each step, at most 650, are what 17 timings of 8
// columns were above the count on an AMD Zen 4 core. Vectors of 16 lanes read whole lines.
constexpr int kNarrowLanes = 8;
double narrow_runs_seconds(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                           int threads) {
  const int lanes = target.vector_bytes / 4;
  const bool reads_rows = b_is_row_major(p.layout) && p.m <= p.n;
  if (spec.algorithm.pipeline != Pipeline::stream || lanes > kNarrowLanes || !reads_rows) return 0;
  const double vectors = std::ceil(static_cast<double>(p.n) / lanes) * static_cast<double>(p.batch);
  const double each = std::min(100 + 5 * static_cast<double>(p.k), 650.0);
  return vectors * each / busy_hertz(target) / threads;
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

double flops_of(const GemmProblem& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
         static_cast<double>(p.batch);
}

double bytes_of(const GemmProblem& p) {
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

double flops(const Problem& problem) { return flops_of(std::get<GemmProblem>(problem)); }

double bytes(const Problem& problem) {
  return bytes_of(with_strides(std::get<GemmProblem>(problem)));
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  if (target.backend == "hip") return estimate_hip(spec, p, target);
  if (is_gpu(target)) return estimate_gpu(spec, p, target);
  const int used = units_used(threads, target);
  Estimate e = estimate_cpu(spec, p, target, used);
  if (is_described(spec)) e = with_short_calls(e);
  const double more = narrow_runs_seconds(spec, p, target, used);
  e.overhead_seconds += more;
  e.seconds += more;
  return e;
}

}  // namespace tessera::gemm
