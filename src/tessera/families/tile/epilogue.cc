// How far a correct kernel may be from the fp64 reference. Bounds are those of the standard model
// of floating-point arithmetic (Higham, "Accuracy and Stability of Numerical Algorithms", chapter
// 3), carried through the epilogue by the largest slope of each step.
#include "tessera/families/tile/epilogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/spec/numeric.h"

namespace tessera::tile {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEps = 0x1p-23;             // of fp32, in which epilogues are evaluated
constexpr double kFunctionError = 8 * kEps;  // the largest error of a function: 8 ulp of 1

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu_tanh(double x) {
  constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  return x * sigmoid(2 * kScale * (x + 0.044715 * x * x * x));
}
double silu(double x) { return x * sigmoid(x); }

// An elementary function and the largest magnitude of its derivative. At minus infinity the
// formulas of gelu and silu give infinity times zero; kernels return the limit, 0.
struct Function {
  EpilogueOp op;
  double (*apply)(double);
  double slope;
  bool zero_at_minus_infinity;
};
constexpr Function kFunctions[] = {
    {EpilogueOp::gelu, gelu, 1.13, true},
    {EpilogueOp::gelu_tanh, gelu_tanh, 1.13, true},
    {EpilogueOp::silu, silu, 1.1, true},
    {EpilogueOp::sigmoid, sigmoid, 0.25, false},
    {EpilogueOp::tanh, [](double x) { return std::tanh(x); }, 1, false},
};

// When an intermediate result may leave the range of fp32, any final result is correct. When the
// reference itself is infinite or NaN, the result is exact.
Bounded in_range(Bounded x) {
  const bool overflows =
      std::isfinite(x.value) && std::abs(x.value) + x.error > max_finite(DType::fp32);
  if (overflows) x.error = kInfinity;
  return x;
}

double rounding(double value) { return std::isfinite(value) ? kEps * std::abs(value) : 0; }

Bounded add(Bounded x, double d) {
  x.value += d;
  x.error += rounding(x.value);
  return x;
}

Bounded multiply(Bounded x, double d) {
  const bool sign_known = std::abs(x.value) > x.error;
  const double spread = std::isfinite(d) ? x.error * std::abs(d) : sign_known ? 0 : kInfinity;
  x.value *= d;
  x.error = std::isnan(spread) ? kInfinity : spread + rounding(x.value);
  return x;
}

Bounded apply_function(EpilogueOp op, Bounded x) {
  for (const Function& f : kFunctions) {
    if (f.op != op) continue;
    const bool at_limit = f.zero_at_minus_infinity && x.value == -kInfinity;
    const double value = at_limit ? 0 : f.apply(x.value);
    const double own = std::isfinite(value) ? kFunctionError * std::max(1.0, std::abs(value)) : 0;
    return {value, f.slope * x.error + own};
  }
  return x;
}

// NaN passes through, as in the kernels.
Bounded clamp(Bounded x, double lo, double hi) {
  if (x.value < lo) x.value = lo;
  if (x.value > hi) x.value = hi;
  return x;
}

}  // namespace

std::string epilogue_text(const Epilogue& epilogue) {
  std::string steps;
  for (int i = 0; i < num_ops(epilogue); ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (epilogue.ops[index] == EpilogueOp::pass_through) continue;
    steps += fmt::format("{}Step::{}", steps.empty() ? "" : ", ", to_string(epilogue.ops[index]));
  }
  return steps;
}

std::string epilogue_fields(const Epilogue& epilogue) {
  const std::string steps = epilogue_text(epilogue);
  std::string text = fmt::format("  static constexpr int kNumSteps = {}, kNumD = {};\n",
                                 num_ops(epilogue), int{epilogue.num_d});
  if (!steps.empty()) text += fmt::format("  static constexpr Step kSteps[] = {{{}}};\n", steps);
  return text;
}

Bounded apply_epilogue(const EpilogueSteps& steps, const DValues& d, Bounded x) {
  using enum EpilogueOp;
  const Epilogue& epilogue = steps.epilogue;
  std::size_t used = 0;
  for (int i = 0; i < num_ops(epilogue); ++i) {
    const EpilogueOp op = epilogue.ops[static_cast<std::size_t>(i)];
    x = in_range(x);
    switch (op) {
      case pass_through:
        break;
      case bias:
      case EpilogueOp::add:
        x = tile::add(x, d[used++]);
        break;
      case EpilogueOp::multiply:
      case row_scale:
      case col_scale:
        x = tile::multiply(x, d[used++]);
        break;
      case multi_d_add:
        while (used < epilogue.num_d) x = tile::add(in_range(x), d[used++]);
        break;
      case multi_d_multiply:
        while (used < epilogue.num_d) x = tile::multiply(in_range(x), d[used++]);
        break;
      case relu:
        x = tile::clamp(x, 0, kInfinity);
        break;
      case EpilogueOp::clamp:
        x = tile::clamp(x, steps.clamp_lo, steps.clamp_hi);
        break;
      default:
        x = apply_function(op, x);
    }
  }
  return x;
}

double tolerance_of(DType out, const Bounded& x) {
  if (out == DType::int32) return 0;
  if (out == DType::int8) return x.error + 0.5;  // x is already saturated
  // Rounding errs by half an ulp of a normal result and by a whole ulp of a subnormal one.
  const double eps = epsilon(out);
  return x.error + eps / 2 * (std::abs(x.value) + x.error) + eps * min_normal(out);
}

bool within_tolerance(DType out, double got, const Bounded& x) {
  if (out == DType::int32) return got == x.value;
  if (x.error == kInfinity) return true;
  if (std::isnan(x.value)) return std::isnan(got);
  if (std::isinf(x.value)) return got == x.value;
  if (std::isinf(got)) {
    // larger values round to infinity
    const double threshold = max_finite(out) * (1 + epsilon(out) / 4);
    return (got > 0 ? x.value : -x.value) + x.error >= threshold;
  }
  return std::abs(got - x.value) <= tolerance_of(out, x);
}

}  // namespace tessera::tile
