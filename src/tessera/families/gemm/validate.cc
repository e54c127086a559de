#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::gemm {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "gemm: " + fmt::format(sentence, std::forward<Args>(args)...));
}

constexpr std::array<std::string_view, kMaxD> kDNames = {"d0", "d1", "d2", "d3"};

bool has_output(const GemmProblem& p) { return p.m > 0 && p.n > 0 && p.batch > 0; }

void check_sizes(const GemmProblem& p) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"batch", p.batch}};
  for (const auto& [name, size] : sizes) {
    if (size < 0) refuse("{} must be at least 0, got {}", name, size);
  }
  // An empty dimension does not make operands over the other dimensions small.
  const int widest = std::max({size_of(p.a), size_of(p.b), size_of(p.out)});
  std::int64_t product = widest;
  for (const auto& [name, size] : sizes) {
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) {
      refuse("m x n x k x batch x {} bytes must be below 2^63, got {} x {} x {} x {} x {}", widest,
             p.m, p.n, p.k, p.batch, widest);
    }
  }
}

void check_scalars(const GemmProblem& p) {
  const std::pair<std::string_view, float> scalars[] = {{"alpha", p.alpha}, {"beta", p.beta}};
  for (const auto& [name, value] : scalars) {
    if (!std::isfinite(value)) refuse("{} must be finite, got {}", name, value);
    const bool whole = std::trunc(value) == value && std::abs(value) <= 0x1p30F;
    if (p.out == DType::int32 && !whole) {
      refuse("{} must be a whole number of at most 2^30 when out is int32, got {}; use out=fp32",
             name, value);
    }
  }
  if (!(p.clamp_lo <= p.clamp_hi)) {
    refuse("clamp_lo must not be above clamp_hi, got {} and {}", p.clamp_lo, p.clamp_hi);
  }
}

void check_strides(const Tensor& tensor, std::string_view row_name) {
  const std::int64_t row = tensor.sizes[0];
  const std::int64_t ld = tensor.rank > 1 ? tensor.strides[1] : row;
  if (ld < row) {
    refuse("ld_{} must be at least {} ({}), got {}", tensor.name, row, row_name, ld);
  }
  if (tensor.batch_stride < 0) {
    refuse("batch_stride_{} must be at least 0, got {}", tensor.name, tensor.batch_stride);
  }
  if (tensor.is_too_long()) {
    refuse("the last byte of {} must be below 2^63, got {} rows {} apart and {} batches {} apart",
           tensor.name, tensor.rows(), ld, tensor.batches, tensor.batch_stride);
  }
}

// Batches of the output may lie one after the other or interleaved within a row.
void check_output_batches(const GemmProblem& p) {
  if (p.batch <= 1 || p.pointer_arrays || !has_output(p)) return;
  const std::int64_t behind = (p.m - 1) * p.ld_out + p.n;
  const bool after = p.batch_stride_out >= behind;
  const bool within_row = p.batch_stride_out >= p.n &&
                          (p.m == 1 || p.ld_out >= (p.batch - 1) * p.batch_stride_out + p.n);
  if (after || within_row) return;
  refuse("batch_stride_out must be at least {} so that batches do not overlap, got {}", behind,
         p.batch_stride_out);
}

// Each batch has a pointer of its own. A packed B cannot be given through an array.
void check_arrays(const GemmProblem& given) {
  if (!given.pointer_arrays) return;
  if (given.preshuffled_b) {
    refuse(
        "preshuffle and pointer_arrays do not go together: a packed B has one address; leave one "
        "of them out");
  }
  const auto check = [](std::string_view name, std::int64_t stride) {
    if (stride == kPacked) return;
    refuse(
        "batch_stride_{} must be left out with pointer_arrays, where each batch has a pointer of "
        "its own, got {}",
        name, stride);
  };
  check("a", given.batch_stride_a);
  check("b", given.batch_stride_b);
  check("c", given.batch_stride_c);
  check("out", given.batch_stride_out);
  for (std::size_t i = 0; i < kMaxD; ++i) check(kDNames[i], given.batch_stride_d[i]);
}

}  // namespace

void validate(const Problem& problem) {
  const GemmProblem& given = std::get<GemmProblem>(problem);
  check_numbers("gemm", given);
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  if (const Verdict fits = types_fit(signature); !fits) refuse("{}", fits.reason);
  if (const Verdict fits = epilogue_fits(signature); !fits) refuse("{}", fits.reason);
  check_sizes(given);
  check_scalars(given);
  check_arrays(given);
  GemmProblem p = with_strides(given);
  p.preshuffled_b = false;  // the strides describe B before it was packed
  const std::string layout(to_string(p.layout));
  Tensors all;
  add_a(p, all);
  add_b(p, all);
  add_c(p, all);
  add_out(p, all);
  add_d(p, all);
  for (const Tensor& tensor : all) {
    check_strides(tensor, tensor.name == "a"   ? "the row length of A for " + layout
                          : tensor.name == "b" ? "the row length of B for " + layout
                                               : "n");
  }
  check_output_batches(p);
}

}  // namespace tessera::gemm
