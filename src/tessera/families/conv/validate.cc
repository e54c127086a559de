// Which problems are valid.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/strides.h"
#include "tessera/families/tile/types.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::conv {
namespace {

constexpr std::int64_t kMostSize = (std::int64_t{1} << 31) - 1;

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "conv: " + fmt::format(sentence, std::forward<Args>(args)...));
}

// The two operands that a direction multiplies, and its result. Gradients have no D tensors.
tile::ProductTypes types_of(const ConvSignature& s) {
  switch (s.direction) {
    case ConvDirection::forward:
      return {s.in, s.weight, s.acc, s.out, s.d, {"in", "weight", "out", "dtype_d"}};
    case ConvDirection::backward_data:
      return {s.out, s.weight, s.acc, s.in, s.in, {"out", "weight", "in", ""}};
    default:
      return {s.out, s.in, s.acc, s.weight, s.weight, {"out", "in", "weight", ""}};
  }
}

std::string epilogue_reason(const ConvSignature& s) {
  if (std::string reason = invalid_reason(s.epilogue); !reason.empty()) return reason;
  if (num_ops(s.epilogue) == 0) return {};
  if (s.direction != ConvDirection::forward) {
    return fmt::format("{} takes no epilogue, got {}", to_string(s.direction),
                       to_string(s.epilogue));
  }
  if (s.out == DType::int32) {
    return fmt::format("out=int32 is exact and takes no epilogue, got {}; use out=fp32",
                       to_string(s.epilogue));
  }
  const auto& ops = s.epilogue.ops;
  if (std::find(ops.begin(), ops.end(), EpilogueOp::row_scale) == ops.end()) return {};
  return fmt::format("an image has no rows to scale, got {}; use col_scale for channels",
                     to_string(s.epilogue));
}

// ---- numbers ----

struct Count {
  std::string_view name;
  std::int64_t value, least;
};

void check_counts(std::span<const Count> counts) {
  for (const Count& count : counts) {
    if (count.value < count.least) {
      refuse("{} must be at least {}, got {}", count.name, count.least, count.value);
    }
    if (count.value > kMostSize) {
      refuse("{} must be at most {}, got {}", count.name, kMostSize, count.value);
    }
  }
}

void check_spatial(std::string_view prefix, const std::array<std::string_view, 3>& ends,
                   const Spatial& values, std::int64_t least) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string name = std::string(prefix).append(ends[i]);
    check_counts(std::array<Count, 1>{{{name, values[i], least}}});
  }
}

// What a problem of fewer dimensions leaves at its default.
void check_dimensions(const ConvProblem& p) {
  if (p.ndim < 1 || p.ndim > 3) refuse("ndim must be 1, 2 or 3, got {}", p.ndim);
  for (std::size_t i = 0; i < 3 - static_cast<std::size_t>(p.ndim); ++i) {
    const auto check = [&](std::string_view prefix, std::string_view end, std::int64_t value,
                           std::int64_t standard) {
      if (value == standard) return;
      refuse("{}{} must be {} with ndim={}, got {}", prefix, end, standard, p.ndim, value);
    };
    check("", kOfSize[i], p.size[i], 1);
    check("", kOfFilter[i], p.filter[i], 1);
    check("stride_", kOfSize[i], p.stride[i], 1);
    check("dilation_", kOfSize[i], p.dilation[i], 1);
    check("pad_", kOfSize[i], p.pad[i], 0);
    check("pad_right_", kOfSize[i], p.pad_right[i] == kPacked ? 0 : p.pad_right[i], 0);
  }
}

void check_sizes(const ConvProblem& p) {
  check_counts(std::array<Count, 4>{{{"n", p.n, 0}, {"c", p.c, 1}, {"k", p.k, 1}, {"g", p.g, 1}}});
  if (p.c % p.g != 0) refuse("g must divide c, got g={} and c={}", p.g, p.c);
  if (p.k % p.g != 0) refuse("g must divide k, got g={} and k={}", p.g, p.k);
  check_spatial("", kOfSize, p.size, 1);
  check_spatial("", kOfFilter, p.filter, 1);
  check_spatial("stride_", kOfSize, p.stride, 1);
  check_spatial("dilation_", kOfSize, p.dilation, 1);
  check_spatial("pad_", kOfSize, p.pad, 0);
  for (std::size_t i = 0; i < p.pad_right.size(); ++i) {
    const std::int64_t right = p.pad_right[i] == kPacked ? 0 : p.pad_right[i];
    const std::string name = std::string("pad_right_").append(kOfSize[i]);
    check_counts(std::array<Count, 1>{{{name, right, -kMostSize}}});
  }
}

// The filter must fit somewhere.
void check_output(const ConvProblem& p) {
  const Spatial out = out_size(p);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] > 0) continue;
    const std::int64_t extent = p.dilation[i] * (p.filter[i] - 1) + 1;
    refuse("the output is empty: the filter extends over {} {}, which has {} with its padding",
           extent, kOfSize[i], p.size[i] + p.pad[i] + p.pad_right[i]);
  }
}

// Neither the elements of a tensor nor the operations may be 2^63 or more.
void check_products(const ConvProblem& p) {
  const Spatial out = out_size(p);
  const auto check = [](std::string_view what, std::initializer_list<std::int64_t> factors) {
    std::int64_t product = 1;
    for (const std::int64_t factor : factors) {
      if (!__builtin_mul_overflow(product, std::max<std::int64_t>(factor, 1), &product)) continue;
      refuse("{} must be below 2^63, got {}", what, fmt::join(factors, " x "));
    }
  };
  check("bytes of x, n x c x d x h x w x 4,", {p.n, p.c, p.size[0], p.size[1], p.size[2], 4});
  check("bytes of w, k x c / g x z x y x x x 4,",
        {p.k, p.c / p.g, p.filter[0], p.filter[1], p.filter[2], 4});
  check("bytes of y, n x k x its size x 4,", {p.n, p.k, out[0], out[1], out[2], 4});
  check("operations, 2 x n x k x size of y x c / g x filter,",
        {2, p.n, p.k, out[0], out[1], out[2], p.c / p.g, p.filter[0], p.filter[1], p.filter[2]});
}

// ---- strides ----

void check_strides(const Tensor& tensor, ConvLayout layout) {
  if (tensor.rank == 1) return;
  if (tensor.sizes[0] > 1 && tensor.strides[0] != 1) {
    refuse("the innermost stride of {} must be 1 in layout {}, got {}", tensor.name,
           to_string(layout), tensor.strides[0]);
  }
  if (const std::string reason = tile::strides_reason(tensor); !reason.empty()) {
    refuse("{}", reason);
  }
}

}  // namespace

std::string signature_reason(const ConvSignature& s) {
  if (s.ndim < 1 || s.ndim > 3) return fmt::format("ndim must be 1, 2 or 3, got {}", s.ndim);
  const tile::ProductTypes types = types_of(s);
  if (s.direction != ConvDirection::forward) {
    for (const DType dtype : {s.in, s.weight, s.out}) {
      if (size_of(dtype) > 1 && dtype != DType::int32) continue;
      return fmt::format("{} takes fp32, tf32, fp16 and bf16, got {}", to_string(s.direction),
                         to_string(dtype));
    }
  }
  if (std::string reason = tile::types_reason(types); !reason.empty()) return reason;
  return epilogue_reason(s);
}

void validate(const Problem& problem) {
  const ConvProblem& given = conv_of(problem);
  check_numbers("conv", given);
  const std::string reason = signature_reason(std::get<ConvSignature>(signature_of(problem)));
  if (!reason.empty()) refuse("{}", reason);
  check_dimensions(given);
  check_sizes(given);
  const ConvProblem p = with_strides(given);
  check_output(p);
  check_products(p);
  const tile::Scalars scalars = {p.out, p.alpha, p.beta, p.clamp_lo, p.clamp_hi};
  if (std::string why = tile::scalars_reason(scalars); !why.empty()) refuse("{}", why);
  for (const Tensor& tensor : tensors(problem)) check_strides(tensor, p.layout);
}

}  // namespace tessera::conv
