#include "tessera/families/tile/sum_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/spec/numeric.h"

namespace tessera::tile {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr int kExtraRoundings = 8;           // of a product, of partial sums, of alpha
constexpr double kTwoRoundings = 0x1.1p-23;  // of fp32; the second also rounds the first's error
constexpr double kFlushed = 0x1p-126;        // below it, some machines read and write zero

bool is_narrow(DType dtype) { return size_of(dtype) == 1; }

// The precision that instructions lose, as a share of the sum of magnitudes. tf32 cuts 13 bits
// off each operand. Hopper's instructions for 8-bit floats align products to the largest one and
// drop bits that are more than about 13 bits below it; the largest loss seen was 6e-4.
double operand_error(const SumTypes& types) {
  if (types.a == DType::tf32 || types.b == DType::tf32) return 0x1p-9;
  return is_narrow(types.a) || is_narrow(types.b) ? 0x1p-10 : 0;
}

// There are as many roundings as products and a few more, each of at most half an ulp of the sum of
// magnitudes. Twice that holds where pairs of bf16 may be rounded once more.
double sum_error(const SumTypes& types, const Products& products) {
  const double magnitude = products.magnitude;
  if (types.acc == DType::int32 || !std::isfinite(magnitude)) return 0;  // exact, infinite or NaN
  if (magnitude > max_finite(DType::fp32) / 2) return kUnbounded;
  const bool has_bf16 = types.a == DType::bf16 || types.b == DType::bf16;
  const double unit = has_bf16 || is_narrow(types.a) || is_narrow(types.b) ? 0x1p-23 : 0x1p-24;
  const double flushed = kFlushed * (products.count + 1 + products.operands);
  return magnitude * ((products.count + kExtraRoundings) * unit + operand_error(types)) + flushed;
}

// Two roundings: a conversion from int32 and a product, or a product and a sum.
double two_roundings(double value) {
  return std::isfinite(value) ? kTwoRoundings * std::abs(value) : 0;
}

// int32 arithmetic is modulo 2^32. Sums are whole numbers below 2^53, scalars at most 2^30.
std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }
double wrapped(std::int64_t value) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
}

constexpr double kReadsForTable = 0x1p16;  // fewer reads are made one by one

template <class T>
T stored(const void* data, std::int64_t at) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + at * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

}  // namespace

Values::Values(DType dtype, const void* data, double reads, Fp8Encoding fp8)
    : dtype_(dtype == DType::tf32 ? DType::fp32 : dtype),
      fp8_(fp8),
      bytes_(size_of(dtype)),
      data_(data) {
  if (bytes_ > 2 || reads < kReadsForTable) return;
  table_.resize(std::size_t{1} << (8 * bytes_));
  for (std::size_t bits = 0; bits < table_.size(); ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);  // little-endian
    table_[bits] = static_cast<float>(load_element(dtype_, &word, 0, fp8_));
  }
}

void Values::read(std::int64_t at, std::int64_t step, std::int64_t count, double* to) const {
  const auto* const end = to + count;
  if (dtype_ == DType::fp32) {
    for (; to != end; at += step) *to++ = stored<float>(data_, at);
  } else if (table_.empty()) {
    for (; to != end; at += step) *to++ = load_element(dtype_, data_, at, fp8_);
  } else if (bytes_ == 2) {
    for (; to != end; at += step) *to++ = table_[stored<std::uint16_t>(data_, at)];
  } else {
    for (; to != end; at += step) *to++ = table_[stored<std::uint8_t>(data_, at)];
  }
}

// In parts, so that sums do not wait for each other.
void add_products(const double* x, const double* y, std::int64_t count, Products& all) {
  constexpr std::int64_t kParts = 4;
  std::array<double, kParts> sums{}, magnitudes{}, operands{};
  const auto add = [&](std::size_t part, double a, double b) {
    sums[part] += a * b;
    magnitudes[part] += std::abs(a * b);
    operands[part] += std::abs(a) + std::abs(b);
  };
  std::int64_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (std::size_t part = 0; part < kParts; ++part) {
      add(part, x[i + static_cast<std::int64_t>(part)], y[i + static_cast<std::int64_t>(part)]);
    }
  }
  for (; i < count; ++i) add(0, x[i], y[i]);
  all.count += static_cast<double>(count);
  for (std::size_t part = 0; part < kParts; ++part) {
    all.sum += sums[part];
    all.magnitude += magnitudes[part];
    all.operands += operands[part];
  }
}

Bounded sum_of(const SumTypes& types, const Products& products) {
  return {products.sum, sum_error(types, products)};
}

Bounded finish_sum(const Finish& finish, Bounded x, double c, const DValues& d) {
  if (finish.types.acc == DType::int32) x.value = wrapped(whole(x.value));
  if (finish.beta == 0) c = 0;
  if (finish.types.out == DType::int32) {
    return {wrapped(whole(x.value) * whole(finish.alpha) + whole(c) * whole(finish.beta)), 0};
  }
  if (x.error != kUnbounded) x.error *= std::abs(finish.alpha);
  x.value *= finish.alpha;
  x.error += two_roundings(x.value);
  if (finish.beta != 0) {
    x.value += c * finish.beta;
    x.error += two_roundings(c * finish.beta) + two_roundings(x.value);
  }
  x = apply_epilogue(finish.steps, d, x);
  if (finish.types.out == DType::int8) {
    x.value = std::isnan(x.value) ? 0 : std::clamp(x.value, -128.0, 127.0);
  }
  return x;
}

double error_ratio(DType out, double got, const Bounded& x) {
  const double tolerance = tolerance_of(out, x);
  const double error = std::abs(got - x.value);
  if (error == 0 || x.error == kUnbounded) return 0;
  return std::isfinite(error) && tolerance > 0 ? error / tolerance : HUGE_VAL;
}

}  // namespace tessera::tile
