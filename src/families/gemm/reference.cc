// The slow obvious answer: sums of products in fp64 over elements converted one by one, compared
// with what a kernel wrote. Small problems are checked whole; of large ones, rows and columns
// spread over the whole output.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/spec/numeric.h"

namespace tessera::gemm {
namespace {

constexpr double kBudget = 0x1p28;           // multiplications, about a quarter of a second
constexpr double kLoadCost = 8;              // of one element, in multiplications
constexpr double kCompareCost = 64;          // of one result
constexpr double kLeastChecked = 4096;       // elements, where there are as many
constexpr std::int64_t kChunk = 1 << 22;     // elements of an operand converted at a time
constexpr int kExtraRoundings = 8;           // of a product, of partial sums, of alpha
constexpr double kTwoRoundings = 0x1.1p-23;  // of fp32, and what one adds to the other
constexpr double kFlushed = 0x1p-126;        // below it some machines read and write zero

using Indices = std::vector<std::int64_t>;

// ---- which elements ----

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15ULL;
  std::uint64_t x = state;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// One index from each of `count` equal parts of [0, size): the first, the last, and between them
// whichever the fixed sequence picks.
Indices spread(std::int64_t size, std::int64_t count, std::uint64_t& state) {
  Indices indices;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::int64_t>(static_cast<double>(size) * i / count);
    const auto end = static_cast<std::int64_t>(static_cast<double>(size) * (i + 1) / count);
    const auto width = static_cast<std::uint64_t>(std::max<std::int64_t>(end - begin, 1));
    indices.push_back(begin + static_cast<std::int64_t>(next_random(state) % width));
  }
  if (count > 0) indices.front() = 0;
  if (count > 1) indices.back() = size - 1;
  return indices;
}

struct Plan {
  Indices batches, rows, columns;
};

double cost(double batches, double rows, double columns, double k) {
  return batches * (rows * columns * (k + kCompareCost) + (rows + columns) * k * kLoadCost);
}

Plan plan(const GemmProblem& p) {
  std::int64_t counts[3] = {p.batch, p.m, p.n};
  const auto k = static_cast<double>(p.k);
  const auto elements = [&] { return double(counts[0]) * double(counts[1]) * double(counts[2]); };
  while (cost(double(counts[0]), double(counts[1]), double(counts[2]), k) > kBudget &&
         elements() >= 2 * kLeastChecked) {
    std::int64_t& largest = *std::max_element(std::begin(counts), std::end(counts));
    largest = (largest + 1) / 2;
  }
  const auto bits = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
  std::uint64_t state = bits(p.m) * 31 + bits(p.n) * 17 + bits(p.k);
  return {spread(p.batch, counts[0], state), spread(p.m, counts[1], state),
          spread(p.n, counts[2], state)};
}

// ---- sums of products ----

// Elements of A as [row][k] or of B as [k][column], and the largest finite magnitude among them.
struct Operand {
  std::vector<double> values;
  double largest = 0;

  void put(std::size_t at, double value) {
    values[at] = value;
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
};

std::span<const std::int64_t> part_of(const Indices& all, std::size_t begin, std::size_t count) {
  return std::span(all).subspan(begin, std::min(count, all.size() - begin));
}

class Comparison {
 public:
  Comparison(const GemmProblem& problem, const GemmOperands& operands)
      : p_(problem), o_(operands), k_(static_cast<std::size_t>(problem.k)) {}

  Mismatch run() {
    const Plan all = plan(p_);
    const std::size_t chunk = kChunk / std::max<std::size_t>(k_, 1) + 1;
    for (const std::int64_t batch : all.batches) {
      for (std::size_t i = 0; i < all.rows.size(); i += chunk) {
        const auto rows = part_of(all.rows, i, chunk);
        const Operand a = load_a(batch, rows);
        for (std::size_t j = 0; j < all.columns.size(); j += chunk) {
          const auto columns = part_of(all.columns, j, chunk);
          compare_block(batch, rows, columns, a, load_b(batch, columns));
        }
      }
    }
    if (!result_.ok) describe();
    return result_;
  }

 private:
  Operand load_a(std::int64_t batch, std::span<const std::int64_t> rows) const {
    const bool by_row = a_is_row_major(p_.layout);
    Operand a{std::vector<double>(rows.size() * k_)};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t k = 0; k < k_; ++k) {
        const auto depth = static_cast<std::int64_t>(k);
        const std::int64_t at = by_row ? rows[i] * p_.ld_a + depth : depth * p_.ld_a + rows[i];
        a.put(i * k_ + k, load_element(p_.a, o_.a, batch * p_.batch_stride_a + at));
      }
    }
    return a;
  }

  Operand load_b(std::int64_t batch, std::span<const std::int64_t> columns) const {
    const bool by_row = b_is_row_major(p_.layout);
    Operand b{std::vector<double>(columns.size() * k_)};
    for (std::size_t k = 0; k < k_; ++k) {
      for (std::size_t j = 0; j < columns.size(); ++j) {
        const auto depth = static_cast<std::int64_t>(k);
        const std::int64_t at =
            by_row ? depth * p_.ld_b + columns[j] : columns[j] * p_.ld_b + depth;
        b.put(k * columns.size() + j, load_element(p_.b, o_.b, batch * p_.batch_stride_b + at));
      }
    }
    return b;
  }

  void compare_block(std::int64_t batch, std::span<const std::int64_t> rows,
                     std::span<const std::int64_t> columns, const Operand& a, const Operand& b) {
    const std::size_t width = columns.size();
    std::vector<double> sums(width);
    std::vector<double> magnitudes(width);
    const double flushed = kFlushed * static_cast<double>(k_ + 1) * (1 + a.largest + b.largest);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::fill(sums.begin(), sums.end(), 0.0);
      std::fill(magnitudes.begin(), magnitudes.end(), 0.0);
      for (std::size_t k = 0; k < k_; ++k) {
        const double x = a.values[i * k_ + k];
        const double* y = &b.values[k * width];
        for (std::size_t j = 0; j < width; ++j) {
          sums[j] += x * y[j];
          magnitudes[j] += std::abs(x * y[j]);
        }
      }
      for (std::size_t j = 0; j < width; ++j) {
        const Bounded sum = {sums[j], sum_error(magnitudes[j]) + flushed};
        compare(batch, rows[i], columns[j], sum);
      }
    }
  }

  // (k + a few) roundings of at most half an ulp of the sum of magnitudes; twice that where bf16
  // pairs may be rounded once more.
  double sum_error(double magnitude) const {
    if (p_.acc == DType::int32 || !std::isfinite(magnitude)) return 0;  // exact, or inf or NaN
    if (magnitude > max_finite(DType::fp32) / 2) return std::numeric_limits<double>::infinity();
    const bool pairs = p_.a == DType::bf16 || size_of(p_.a) == 1;
    const double roundings = static_cast<double>(k_) + kExtraRoundings;
    const double unit = pairs ? 0x1p-23 : 0x1p-24;
    return magnitude * (roundings * unit + operand_error());
  }

  // What instructions lose of their operands, as a share of the sum of magnitudes: tf32 cuts 13
  // bits off each; Hopper's instructions for 8-bit floats align products to the largest of them and
  // drop what is more than about 13 bits below it (6e-4 was the worst that was seen there).
  double operand_error() const {
    if (p_.a == DType::tf32) return 0x1p-9;
    return size_of(p_.a) == 1 ? 0x1p-10 : 0;
  }

  // ---- one element ----

  void compare(std::int64_t batch, std::int64_t row, std::int64_t column, Bounded sum) {
    const double got =
        load_element(p_.out, o_.out, batch * p_.batch_stride_out + row * p_.ld_out + column);
    const Bounded x = finish(batch, row, column, sum);
    ++result_.checked;
    const double r = ratio(got, x);
    if (within_tolerance(p_.out, got, x)) {
      if (std::isfinite(r)) result_.worst_ratio = std::max(result_.worst_ratio, r);
      return;
    }
    result_.ok = false;
    ++result_.bad;
    if (result_.bad == 1 || r > worst_.ratio) worst_ = {batch, row, column, got, r, x};
    result_.worst_ratio = std::max(result_.worst_ratio, r);
  }

  double ratio(double got, const Bounded& x) const {
    const double tolerance = tolerance_of(p_.out, x);
    const double error = std::abs(got - x.value);
    if (error == 0 || x.error == std::numeric_limits<double>::infinity()) return 0;
    return std::isfinite(error) && tolerance > 0 ? error / tolerance : HUGE_VAL;
  }

  Bounded finish(std::int64_t batch, std::int64_t row, std::int64_t column, Bounded x) const {
    if (p_.acc == DType::int32) x.value = wrapped(whole(x.value));
    double c = 0;
    if (p_.beta != 0) {
      c = load_element(p_.out, o_.c, batch * p_.batch_stride_c + row * p_.ld_c + column);
    }
    if (p_.out == DType::int32) {
      return {wrapped(whole(x.value) * whole(p_.alpha) + whole(c) * whole(p_.beta)), 0};
    }
    x.error = std::abs(double{p_.alpha}) * x.error;
    x.value *= p_.alpha;
    x.error += rounding(x.value);
    if (p_.beta != 0) {
      x.value += c * p_.beta;
      x.error += rounding(c * p_.beta) + rounding(x.value);
    }
    x = apply_epilogue(p_, d_values(batch, row, column), x);
    if (p_.out == DType::int8)
      x.value = std::isnan(x.value) ? 0 : std::clamp(x.value, -128.0, 127.0);
    return x;
  }

  // A conversion from int32 and a product, or a product and a sum.
  static double rounding(double value) {
    return std::isfinite(value) ? kTwoRoundings * std::abs(value) : 0;
  }

  DValues d_values(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    DValues values{};
    const auto uses = d_uses(p_.epilogue);
    for (std::size_t i = 0; i < p_.epilogue.num_d; ++i) {
      const DShape shape = uses[i].shape;
      const std::int64_t at = shape == DShape::along_m   ? row
                              : shape == DShape::along_n ? column
                                                         : row * p_.ld_d[i] + column;
      values[i] = load_element(p_.d, o_.d[i], batch * p_.batch_stride_d[i] + at);
    }
    return values;
  }

  // int32 arithmetic is modulo 2^32. Sums are whole numbers below 2^53, scalars of at most 2^30.
  static std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }
  static double wrapped(std::int64_t value) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
  }

  void describe() {
    const std::string where =
        p_.batch > 1 ? fmt::format("{}, {}, {}", worst_.batch, worst_.row, worst_.column)
                     : fmt::format("{}, {}", worst_.row, worst_.column);
    result_.message = fmt::format(
        "gemm: out[{}] is {:.9g}, the reference is {:.9g} with tolerance {:.3g} ({} of {} elements "
        "checked {} outside)",
        where, worst_.got, worst_.wanted.value, tolerance_of(p_.out, worst_.wanted), result_.bad,
        result_.checked, result_.bad == 1 ? "is" : "are");
  }

  struct Worst {
    std::int64_t batch, row, column;
    double got, ratio;
    Bounded wanted;
  };

  const GemmProblem& p_;
  const GemmOperands& o_;
  std::size_t k_;
  Mismatch result_;
  Worst worst_{};
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "gemm: " + sentence);
}

}  // namespace

Mismatch verify(const Problem& problem, const Operands& operands) {
  GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  if (p.out == DType::tf32) p.out = DType::fp32;  // as it is stored
  const auto& o = std::get<GemmOperands>(operands);
  if (p.preshuffled_b) {
    refuse(
        "verify reads B as it was before packing; pass the problem with preshuffle=0 and that B");
  }
  if (p.beta != 0 && o.c == o.out && p.m > 0 && p.n > 0 && p.batch > 0) {
    refuse("verify needs C as it was before the kernel ran, but c is out; pass a copy");
  }
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    if (o.d[i] != o.out || p.m == 0 || p.n == 0 || p.batch == 0) continue;
    refuse(
        fmt::format("verify needs D{0} as it was before the kernel ran, but d{0} is out; pass a "
                    "copy",
                    i));
  }
  return Comparison(p, o).run();
}

}  // namespace tessera::gemm
