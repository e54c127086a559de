// Operands as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/spec/problem.h"

namespace tessera::measure {

inline constexpr std::size_t kGuardBytes = 256;  // on either side; keeps the 64-byte alignment

// A strided operand: `batch` times `rows` runs of `columns` consecutive elements.
struct Plane {
  DType dtype = DType::fp32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  std::int64_t batch = 0;
  std::int64_t batch_stride = 0;

  bool empty() const { return rows == 0 || columns == 0 || batch == 0; }
  std::int64_t elements() const {  // from the first to the last one
    return empty() ? 0 : (batch - 1) * batch_stride + (rows - 1) * stride + columns;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements() * size_of(dtype)); }
  bool has_gaps() const { return elements() != rows * columns * batch; }
};

// All-ones bytes are a NaN in every floating-point type.
inline int poison_byte(DType dtype) { return is_integer(dtype) ? 0x5a : 0xff; }

// Throws Error{unsupported} for other operations.
const GemmProblem& gemm_of(const Problem& problem);

// Of a problem with strides.
Plane plane_a(const GemmProblem& p);
Plane plane_b(const GemmProblem& p);
Plane plane_c(const GemmProblem& p);
Plane plane_out(const GemmProblem& p);
Plane plane_d(const GemmProblem& p, std::size_t index);

}  // namespace tessera::measure
