#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/measure/planes_internal.h"

namespace tessera::measure {

const GemmProblem& gemm_of(const Problem& problem) {
  const auto* gemm = std::get_if<GemmProblem>(&problem);
  if (gemm == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("operands: only gemm problems can be filled, got {}",
                            to_string(op_of(problem))));
  }
  return *gemm;
}

Plane plane_a(const GemmProblem& p) {
  const bool rows = a_is_row_major(p.layout);
  return {p.a, rows ? p.m : p.k, rows ? p.k : p.m, p.ld_a, p.batch, p.batch_stride_a};
}

Plane plane_b(const GemmProblem& p) {
  const bool rows = b_is_row_major(p.layout);
  return {p.b, rows ? p.k : p.n, rows ? p.n : p.k, p.ld_b, p.batch, p.batch_stride_b};
}

Plane plane_c(const GemmProblem& p) { return {p.out, p.m, p.n, p.ld_c, p.batch, p.batch_stride_c}; }

Plane plane_out(const GemmProblem& p) {
  return {p.out, p.m, p.n, p.ld_out, p.batch, p.batch_stride_out};
}

Plane plane_d(const GemmProblem& p, std::size_t index) {
  const DShape shape = d_uses(p.epilogue)[index].shape;
  const std::int64_t length = shape == DShape::along_m ? p.m : p.n;
  const bool matrix = shape == DShape::matrix;
  return {p.d,     matrix ? p.m : 1,       length, matrix ? p.ld_d[index] : length,
          p.batch, p.batch_stride_d[index]};
}

}  // namespace tessera::measure
