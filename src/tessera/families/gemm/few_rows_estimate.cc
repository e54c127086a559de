// How long a CPU kernel should take that streams B past products of few rows and packs it for
// others: src/tessera/device/cpu/gemm/few_rows_gemm.h.
#include <algorithm>
#include <cmath>

#include "tessera/device/cpu/packed_sizes.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"

namespace tessera::gemm {
namespace {

constexpr double kFew = device::kFewRows;
// The share of a strip's instructions that its traffic does not hide: what was fitted for blocked
// kernels of a Zen 4 (CpuModel). Without it words of one element count as fast as words of two,
// which they are not: 32 groups of one row (N 1536, K 2048, bf16) took 1.25 times as long.
constexpr double kExposed = 0.75;

Estimate few_rows(const KernelSpec& spec, const GemmProblem& p, const Target& target, int threads) {
  Estimate e = estimate_narrow(spec, p, target, threads);
  e.seconds += kExposed * std::min(e.compute_seconds, e.memory_seconds);
  return e;
}

Estimate many_rows(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                   int threads) {
  KernelSpec blocked = spec;
  blocked.algorithm.pipeline = Pipeline::packab;
  return estimate_packed(blocked, p, target, threads);
}

Estimate sum_of(const Estimate& a, const Estimate& b) {
  return {a.seconds + b.seconds, a.compute_seconds + b.compute_seconds,
          a.memory_seconds + b.memory_seconds, a.overhead_seconds + b.overhead_seconds,
          std::min(a.utilisation, b.utilisation)};
}

// The problem is batches of as many rows as groups have on average. Their sizes are taken for
// geometric ones: a share of exp(-few / mean) of the groups has more than a few rows, by the mean
// more on average.
Estimate of_groups(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                   int threads) {
  const auto mean = static_cast<double>(p.m);
  const double share = std::exp(-kFew / mean);
  GemmProblem large = p, small = p;
  large.batch = std::llround(share * static_cast<double>(p.batch));
  large.m = std::llround(kFew + mean);
  small.batch = p.batch - large.batch;
  if (small.batch == 0) return many_rows(spec, large, target, threads);
  const std::int64_t left = p.batch * p.m - large.batch * large.m;
  small.m = std::clamp<std::int64_t>(left / small.batch, 1, device::kFewRows);
  const Estimate of_small = few_rows(spec, small, target, threads);
  if (large.batch == 0) return of_small;
  return sum_of(many_rows(spec, large, target, threads), of_small);
}

}  // namespace

Estimate estimate_few_rows(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                           int threads) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const bool shares_rows = has_groups(s) && s.grouping != GemmGrouping::along_k;
  if (shares_rows && p.batch > 1 && p.m > 0) return of_groups(spec, p, target, threads);
  if (!has_groups(s) && !has_outputs(s)) return estimate_narrow(spec, p, target, threads);
  return p.m > device::kFewRows ? many_rows(spec, p, target, threads)
                                : few_rows(spec, p, target, threads);
}

}  // namespace tessera::gemm
