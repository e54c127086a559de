// What is asked of a normalisation, and the pointers that it gets.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/spec/dtype.h"
#include "tessera/spec/packed.h"

#pragma GCC visibility push(default)
namespace tessera {

// What is computed of each row of a matrix.
enum class NormKind : std::uint8_t {
  softmax,
  rmsnorm,
  layernorm,
  silu_mul,
  gelu_mul,
  gelu_tanh_mul,
  copy
};
std::string_view to_string(NormKind kind);
// Kinds whose results each follow their own elements of `in` alone.
constexpr bool is_elementwise(NormKind kind) { return kind >= NormKind::silu_mul; }
// Kinds that multiply one half of `in` by a function of the other half.
constexpr bool is_gated(NormKind kind) { return is_elementwise(kind) && kind != NormKind::copy; }
// How far elements go that share a scale of an output of 8 bits; a block is 128 columns of a row.
enum class NormQuant : std::uint8_t { none, tensor, row, block };
std::string_view to_string(NormQuant quant);

// x is `in`, or with a residual sum = in + residual, rounded to the type of both. For each row:
// softmax:   out = exp(x - max(x)) / sum(exp(x - max(x)))
// rmsnorm:   out = x / sqrt(mean(x^2) + epsilon) * scale + shift
// layernorm: out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + shift
// silu_mul:  out = gate / (1 + exp(-gate)) * up
// gelu_mul:  out = gate * (1 + erf(gate / sqrt(2))) / 2 * up; gelu_tanh_mul: by the usual formula
//            with tanh
// copy:      out = x; with quant it is in 8 bits
// in, residual, out and sum are rows x columns, row-major; scale and shift have an element for each
// column. Strides count elements. silu_mul, gelu_mul and gelu_tanh_mul have a row of 2 * columns in
// `in`: the gates and then what they multiply, or with interleaved each gate beside what it
// multiplies.
//
// With quant, out is fp8 or bf8 and has what was computed over a scale, rounded to nearest even, at
// most the largest finite number. quant=tensor reads the scale, out_scale. Otherwise the scales are
// written, out_scales: the greatest magnitude of the row or block over the type's largest number,
// or 1 where none reaches 2^-100. NaN does not count.
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
  NormQuant quant = NormQuant::none;
  bool scales_by_column = false;  // quant=block: a row's scales lie `rows` elements apart
  bool interleaved = false;       // silu_mul and the like: `in` has pairs (gate, up)
  friend bool operator==(const NormProblem&, const NormProblem&) = default;
};

// How many elements a row of `in` has.
constexpr std::int64_t columns_of_in(const NormProblem& p) {
  return is_gated(p.kind) ? 2 * p.columns : p.columns;
}

// Replaces every kPacked by the number of elements of such a row.
NormProblem with_strides(const NormProblem& problem);

// The pointers a normalisation reads and writes. Those that the problem does not use may be null.
struct NormOperands {
  const void* in = nullptr;
  const void* residual = nullptr;
  const void* scale = nullptr;
  const void* shift = nullptr;
  void* out = nullptr;
  void* sum = nullptr;
  const void* out_scale = nullptr;  // fp32, one: quant=tensor
  void* out_scales = nullptr;       // fp32, one for each row, or for each block of each row
};

}  // namespace tessera
#pragma GCC visibility pop
