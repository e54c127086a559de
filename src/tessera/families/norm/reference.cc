// The slow obvious answer: each row in fp64, and how far a correct kernel may be from it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/device/norm.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/quant_reference.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/spec/numeric.h"

namespace tessera::norm {
namespace {

using tile::Bounded;

constexpr double kCost = 64;           // of one element, in multiplications
constexpr double kUnit = 0x1p-24;      // half an ulp of fp32
constexpr double kFlushed = 0x1p-125;  // below it some machines read and write zero
constexpr double kLeast = 0x1p-126;    // fp32's least normal number
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// No kernel adds more numbers one after the other: up to 512 of a chunk or of a thread, then the
// sums of chunks of at least 256 columns, of threads and of slices.
double longest_chain(double columns) { return std::min(columns, 512 + columns / 256) + 16; }

// The sum as kernels make it: in fp32, rounded to the type that it is stored in.
double stored_sum(DType dtype, double x, double residual) {
  const float sum = static_cast<float>(x) + static_cast<float>(residual);
  std::uint32_t word = 0;
  store_element(dtype, &word, 0, double{sum});
  return load_element(dtype, &word, 0);
}

// out = exp(x - offset) * factor, or (x - offset) * factor. `offset_error` is absolute,
// `factor_share` a share of the factor.
struct Factors {
  double offset, offset_error, factor, factor_share;
};

// Each exponential loses a share that grows with its argument, which is rounded, and each merge of
// two parts, whose maxima may differ, as much again.
Factors softmax_factors(const std::vector<double>& x) {
  double most = -kInfinity;
  for (const double value : x) most = std::isnan(value) ? value : std::max(most, value);
  double sum = 0;
  double distance = 0;
  for (const double value : x) {
    sum += std::exp(value - most);
    if (value > -kInfinity) distance += std::exp(value - most) * (most - value);
  }
  const double chain = longest_chain(static_cast<double>(x.size()));
  return {most, 0, 1 / sum, kUnit * (6 * chain + 16 + 8 * distance / sum)};
}

// The mean is off by `error`, and so are the means of parts, whose squared distances enter the
// variance; an element is off by as much where the machine reads zero.
Factors moment_factors(const NormProblem& p, const std::vector<double>& x) {
  const bool has_mean = p.kind == NormKind::layernorm;
  const auto count = static_cast<double>(x.size());
  const double roundings = kUnit * (4 * longest_chain(count) + 16);
  double mean = 0;
  double magnitude = 0;
  for (const double value : x) mean += value, magnitude += std::abs(value);
  mean = has_mean ? mean / count : 0;
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  if (!std::isfinite(squares)) return {mean, 0, 1 / std::sqrt(squares), 8 * kUnit};
  const double error = (has_mean ? roundings * magnitude / count : 0) + kLeast;
  const double variance = squares / count;
  const double epsilon = double{p.epsilon};
  const double lost = roundings * variance + 8 * error * std::sqrt(variance) + 4 * error * error +
                      (epsilon < kLeast ? epsilon : 0);
  const double sum = variance + epsilon;
  const double share = lost < sum / 2 ? lost / sum + 8 * kUnit : kInfinity;
  return {mean, error, 1 / std::sqrt(sum), share};
}

// silu_mul and the like are a chain of an epilogue.
Epilogue chain_of(NormKind kind) {
  const EpilogueOp op = kind == NormKind::silu_mul   ? EpilogueOp::silu
                        : kind == NormKind::gelu_mul ? EpilogueOp::gelu
                                                     : EpilogueOp::gelu_tanh;
  Epilogue chain;
  chain.ops[0] = op, chain.ops[1] = EpilogueOp::multiply;
  chain.num_d = 1;
  return chain;
}

// Some machines read and write zero for the least numbers.
std::vector<Bounded> gated_row(const NormProblem& p, const NormOperands& o, std::int64_t row) {
  const Epilogue chain = chain_of(p.kind);
  const std::int64_t first = row * p.ld_in;
  const std::int64_t step = p.interleaved ? 2 : 1;
  const std::int64_t to_up = p.interleaved ? 1 : p.columns;
  std::vector<Bounded> y(static_cast<std::size_t>(p.columns));
  for (std::int64_t c = 0; c < p.columns; ++c) {
    const double gate = load_element(p.in, o.in, first + c * step);
    const double up = load_element(p.in, o.in, first + c * step + to_up);
    Bounded& x = y[static_cast<std::size_t>(c)];
    x = tile::apply_epilogue({chain, 0, 0}, {up}, {gate, 0});
    if (std::isfinite(x.value)) {
      const bool is_tiny = std::min(std::abs(gate), std::abs(up)) < kLeast;
      x.error += kFlushed + (is_tiny ? std::abs(x.value) : 0);
      if (std::abs(x.value) + x.error > max_finite(DType::fp32)) x.error = kInfinity;
    }
  }
  return y;
}

std::vector<Bounded> copied_row(const NormProblem& p, const NormOperands& o, std::int64_t row) {
  std::vector<Bounded> y;
  y.reserve(static_cast<std::size_t>(p.columns));
  for (std::int64_t c = 0; c < p.columns; ++c) {
    y.push_back({load_element(p.in, o.in, row * p.ld_in + c), kFlushed});
  }
  return y;
}

Bounded result(const NormProblem& p, const NormOperands& o, const Factors& f, double x,
               std::int64_t column) {
  const double distance = x - f.offset;
  if (p.kind == NormKind::softmax) {
    const double y = std::exp(distance) * f.factor;
    const double share = f.factor_share + kUnit * (16 + (y > 0 ? 4 * std::abs(distance) : 0));
    return {y, y * share + kFlushed};
  }
  const double scale = p.scale ? load_element(p.weight, o.scale, column) : 1;
  const double shift = p.shift ? load_element(p.weight, o.shift, column) : 0;
  const double y = distance * f.factor * scale;
  if (f.factor_share == kInfinity) return {y + shift, kInfinity};
  const double error = std::abs(y) * (f.factor_share + 8 * kUnit) +
                       f.offset_error * f.factor * std::abs(scale) * (1 + f.factor_share);
  return {y + shift, error + 2 * kUnit * std::abs(y + shift) + kFlushed};
}

// ---- outputs of 8 bits ----

void quantise_row(const NormProblem& p, const NormOperands& o, const std::vector<Bounded>& y,
                  double largest, Bounded* out, Bounded* scales) {
  if (p.quant == NormQuant::tensor) {
    const Bounded scale = {load_element(DType::fp32, o.out_scale, 0), 0};
    for (std::size_t i = 0; i < y.size(); ++i) out[i] = tile::quantised(y[i], scale, largest);
    return;
  }
  const std::size_t width = p.quant == NormQuant::row ? y.size() : device::kQuantBlock;
  for (std::size_t first = 0; first < y.size(); first += width) {
    const std::size_t count = std::min(width, y.size() - first);
    const Bounded scale = *scales++ = tile::scale_of({y.data() + first, count}, largest);
    for (std::size_t i = first; i < first + count; ++i)
      out[i] = tile::quantised(y[i], scale, largest);
  }
}

// What is normalised, which with a residual is stored.
std::vector<double> read_row(const NormProblem& p, const NormOperands& o, std::int64_t row,
                             Bounded* sum) {
  std::vector<double> x(static_cast<std::size_t>(p.columns));
  for (std::int64_t c = 0; c < p.columns; ++c) {
    double& value = x[static_cast<std::size_t>(c)];
    value = load_element(p.in, o.in, row * p.ld_in + c);
    if (!p.residual) continue;
    value = stored_sum(p.in, value, load_element(p.in, o.residual, row * p.ld_residual + c));
    sum[c] = {value, kFlushed};
  }
  return x;
}

std::vector<Bounded> normalised_row(const NormProblem& p, const NormOperands& o,
                                    const std::vector<double>& x) {
  const Factors f = p.kind == NormKind::softmax ? softmax_factors(x) : moment_factors(p, x);
  std::vector<Bounded> y;
  y.reserve(x.size());
  for (const double value : x) {
    y.push_back(result(p, o, f, value, static_cast<std::int64_t>(y.size())));
  }
  return y;
}

// Outputs are `out`, with a residual `sum`, and scales that are written.
void compute_row(const NormProblem& p, const NormOperands& o, double largest, std::int64_t row,
                 Bounded* const* outputs) {
  Bounded* const sum = p.residual ? outputs[1] : nullptr;
  const std::vector<Bounded> y = is_gated(p.kind) ? gated_row(p, o, row)
                                 : is_elementwise(p.kind)
                                     ? copied_row(p, o, row)
                                     : normalised_row(p, o, read_row(p, o, row, sum));
  if (p.quant == NormQuant::none) {
    std::copy(y.begin(), y.end(), outputs[0]);
  } else {
    const bool writes_scales = p.quant != NormQuant::tensor;
    quantise_row(p, o, y, largest, outputs[0],
                 writes_scales ? outputs[p.residual ? 2 : 1] : nullptr);
  }
}

}  // namespace

Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits) {
  const NormProblem p = with_strides(std::get<NormProblem>(problem));
  const auto& o = std::get<NormOperands>(operands);
  const double largest = tile::largest_of(p.out, limits.fp8);
  return tile::row_reference(
      family(), problem, limits, kCost,
      [&](std::int64_t row, Bounded* const* outputs) { compute_row(p, o, largest, row, outputs); });
}

Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference) {
  return tile::compare_rows(family(), problem, operands, reference);
}

Mismatch verify(const Problem& problem, const Operands& operands) {
  return tile::verify_rows(family(), problem, operands);
}

}  // namespace tessera::norm
