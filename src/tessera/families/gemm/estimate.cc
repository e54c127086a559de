#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/groups.h"

namespace tessera::gemm {
namespace {

double over_batches(std::int64_t stride, std::int64_t batch) {
  return stride == 0 ? 1.0 : static_cast<double>(batch);
}

}  // namespace

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

// Only a launch knows how much of their room groups fill: these are all of it.
double flops(const Problem& problem) {
  const auto& p = std::get<GemmProblem>(problem);
  return has_groups(p) ? flops_of(as_batches(p)) : flops_of(p);
}

double bytes(const Problem& problem) {
  const auto& p = std::get<GemmProblem>(problem);
  return bytes_of(with_strides(has_groups(p) ? as_batches(p) : p));
}

}  // namespace tessera::gemm
