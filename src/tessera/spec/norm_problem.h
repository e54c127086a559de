// What is asked of a normalisation.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/spec/dtype.h"
#include "tessera/spec/packed.h"

#pragma GCC visibility push(default)
namespace tessera {

// What is computed of each row of a matrix.
enum class NormKind : std::uint8_t { softmax, rmsnorm, layernorm };
std::string_view to_string(NormKind kind);

// x is `in`, or with a residual sum = in + residual, rounded to the type of both. For each row:
// softmax:   out = exp(x - max(x)) / sum(exp(x - max(x)))
// rmsnorm:   out = x / sqrt(mean(x^2) + epsilon) * scale + shift
// layernorm: out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + shift
// in, residual, out and sum are rows x columns, row-major; scale and shift have an element for each
// column. Strides count elements.
struct NormProblem {
  NormKind kind = NormKind::softmax;
  DType in = DType::fp32;      // of residual and sum too
  DType weight = DType::fp32;  // of scale and shift
  DType out = DType::fp32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t ld_in = kPacked;
  std::int64_t ld_residual = kPacked;
  std::int64_t ld_out = kPacked;
  std::int64_t ld_sum = kPacked;
  float epsilon = 1e-5F;  // softmax: not used
  bool scale = false;
  bool shift = false;
  bool residual = false;
  friend bool operator==(const NormProblem&, const NormProblem&) = default;
};

// Replaces every kPacked by the number of columns.
NormProblem with_strides(const NormProblem& problem);

}  // namespace tessera
#pragma GCC visibility pop
