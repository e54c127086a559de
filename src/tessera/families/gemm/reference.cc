// The reference: sums of products in fp64 over elements that are converted one by one, compared
// with what a kernel wrote. Small problems are checked whole. Of large problems, rows and columns
// spread over the whole output are checked.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/parallel.h"
#include "tessera/families/gemm/arranged.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/reference_internal.h"
#include "tessera/families/gemm/scales.h"
#include "tessera/families/tile/sum_error.h"
#include "tessera/spec/numeric.h"

namespace tessera::gemm {
namespace {

constexpr double kLoadCost = 8;            // cost of loading one element, in multiplications
constexpr double kCompareCost = 64;        // cost of comparing one result, in multiplications
constexpr double kLeastChecked = 4096;     // elements checked at least, when the output has as many
constexpr std::int64_t kRowsPerBatch = 4;  // rows checked of each batch at least, when few rows are
                                           // checked
constexpr std::int64_t kOne = 1;
constexpr double kFlushedScale = 0x1p-126;  // below it, some machines write zero
constexpr std::int64_t kChunk = 1 << 22;    // elements of an operand converted at a time

// ---- which elements ----

std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15ULL;
  std::uint64_t x = state;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// One index from each of `count` equal parts of [0, size): the first index, the last one, and
// pseudo-random ones between them.
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

double cost(double batches, double rows, double columns, double k) {
  return batches * (rows * columns * (k + kCompareCost) + (rows + columns) * k * kLoadCost);
}

// When few rows can be checked, few batches are: the first and the last row of a batch find more
// errors than the first rows of many batches.
Plan plan(const GemmProblem& p, const ReferenceLimits& limits) {
  std::int64_t counts[3] = {p.batch, p.m, p.n};
  if (limits.rows > 0) {
    counts[0] = std::min(p.batch, std::max<std::int64_t>(1, limits.rows / kRowsPerBatch));
    counts[1] = std::min(p.m, std::max<std::int64_t>(2, limits.rows / std::max(counts[0], kOne)));
  }
  const auto k = static_cast<double>(p.k);
  const auto elements = [&] { return double(counts[0]) * double(counts[1]) * double(counts[2]); };
  const auto too_much = [&] {
    return elements() > double(limits.elements) ||
           cost(double(counts[0]), double(counts[1]), double(counts[2]), k) >
               limits.multiplications;
  };
  while (too_much() && elements() >= 2 * kLeastChecked) {
    std::int64_t& largest = *std::max_element(std::begin(counts), std::end(counts));
    largest = (largest + 1) / 2;
  }
  const auto bits = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
  std::uint64_t state = bits(p.m) * 31 + bits(p.n) * 17 + bits(p.k) + limits.seed;
  return {spread(p.batch, counts[0], state), spread(p.m, counts[1], state),
          spread(p.n, counts[2], state)};
}

// ---- sums of products ----

// The address of a batch's first element, in the host's memory.
const void* matrix_of(const GemmProblem& p, DType dtype, const void* operand, std::int64_t stride,
                      std::int64_t batch) {
  if (p.pointer_arrays) return static_cast<const void* const*>(operand)[batch];
  return static_cast<const std::byte*>(operand) + batch * stride * size_of(dtype);
}

// Elements of A as [row][k] or of B as [k][column], and the largest finite magnitude among them.
struct Operand {
  std::vector<double> values;
  double largest = 0;
  double largest_scale = 1;  // of the finite ones
};

double scale_or_one(const device::ScaleView& scales, std::int64_t row, std::int64_t k) {
  return has_scales(scales) ? static_cast<double>(scale_at(scales, row, k)) : 1;
}

std::span<const std::int64_t> part_of(const Indices& all, std::size_t begin, std::size_t count) {
  return std::span(all).subspan(begin, std::min(count, all.size() - begin));
}

class Computation {
 public:
  Computation(const GemmProblem& problem, const GemmOperands& operands,
              const device::ScaledArguments& scales, const ReferenceLimits& limits)
      : p_(problem),
        o_(operands),
        scales_(scales),
        k_(static_cast<std::size_t>(problem.k)),
        threads_(std::clamp(limits.threads, 1, kMaxThreads)),
        fp8_(limits.fp8) {}

  Elements run(Plan plan) const {
    Elements elements{std::move(plan), {}};
    const Plan& all = elements.plan;
    if (all.columns.empty()) return elements;  // A may be a null pointer
    elements.wanted.resize(all.batches.size() * all.rows.size() * all.columns.size());
    const std::size_t chunk = kChunk / std::max<std::size_t>(k_, 1) + 1;
    for (std::size_t batch = 0; batch < all.batches.size(); ++batch) {
      for (std::size_t i = 0; i < all.rows.size(); i += chunk) {
        const auto rows = part_of(all.rows, i, chunk);
        const Operand a = load_a(all.batches[batch], rows);
        for (std::size_t j = 0; j < all.columns.size(); j += chunk) {
          const auto columns = part_of(all.columns, j, chunk);
          Bounded* first = &elements.wanted[(batch * all.rows.size() + i) * all.columns.size() + j];
          compute_block({all.batches[batch], rows, columns, first, all.columns.size()}, a,
                        load_b(all.batches[batch], columns));
        }
      }
    }
    return elements;
  }

 private:
  // The destination of a part of the rows and columns; `stride` is the distance between rows in
  // elements.
  struct Block {
    std::int64_t batch;
    std::span<const std::int64_t> rows, columns;
    Bounded* first;
    std::size_t stride;
  };

  // Stores load(i), which is an element and its scale, for every i below `count`, and finds the
  // largest finite magnitudes.
  template <typename Load>
  Operand load_all(std::size_t count, const Load& load) const {
    Operand operand{std::vector<double>(count)};
    std::vector<double> largest(static_cast<std::size_t>(threads_), 0.0);
    std::vector<double> scales(static_cast<std::size_t>(threads_), 0.0);
    share_work(threads_, count, [&](std::size_t part, std::size_t begin, std::size_t end) {
      double most = 0, most_scale = 0;
      for (std::size_t i = begin; i < end; ++i) {
        const auto [element, scale] = load(i);
        const double value = operand.values[i] = element * scale;
        if (std::isfinite(value)) most = std::max(most, std::abs(value));
        if (std::isfinite(scale)) most_scale = std::max(most_scale, std::abs(scale));
      }
      largest[part] = most, scales[part] = most_scale;
    });
    operand.largest_scale = *std::max_element(scales.begin(), scales.end());
    operand.largest = *std::max_element(largest.begin(), largest.end());
    return operand;
  }

  Operand load_a(std::int64_t batch, std::span<const std::int64_t> rows) const {
    if (k_ == 0) return {};
    const bool by_row = a_is_row_major(p_.layout);
    const void* const a = matrix_of(p_, p_.a, o_.a, p_.batch_stride_a, batch);
    const device::ScaleView scales = scales_of(scales_.a, batch);
    return load_all(rows.size() * k_, [&](std::size_t i) {
      const std::int64_t row = row_of_a(rows[i / k_]);
      const auto depth = static_cast<std::int64_t>(i % k_);
      const std::int64_t at = by_row ? row * p_.ld_a + depth : depth * p_.ld_a + row;
      return std::pair{load_element(p_.a, a, at, fp8_), scale_or_one(scales, row, depth)};
    });
  }

  Operand load_b(std::int64_t batch, std::span<const std::int64_t> columns) const {
    if (k_ == 0) return {};
    const bool by_row = b_is_row_major(p_.layout);
    const void* const b = matrix_of(p_, p_.b, o_.b, p_.batch_stride_b, batch);
    const device::ScaleView scales = scales_of(scales_.b, batch);
    return load_all(columns.size() * k_, [&](std::size_t i) {
      const std::int64_t column = columns[i % columns.size()];
      const auto depth = static_cast<std::int64_t>(i / columns.size());
      const std::int64_t at = by_row ? depth * p_.ld_b + column : column * p_.ld_b + depth;
      return std::pair{load_element(p_.b, b, at, fp8_), scale_or_one(scales, column, depth)};
    });
  }

  void compute_block(const Block& block, const Operand& a, const Operand& b) const {
    const double operands = static_cast<double>(k_ + 1) * (a.largest + b.largest);
    share_work(threads_, block.rows.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) compute_row(block, i, a, b, operands);
    });
  }

  void compute_row(const Block& block, std::size_t i, const Operand& a, const Operand& b,
                   double operands) const {
    const std::size_t width = block.columns.size();
    std::vector<double> sums(width, 0.0);
    std::vector<double> magnitudes(width, 0.0);
    for (std::size_t k = 0; k < k_; ++k) {
      const double x = a.values[i * k_ + k];
      const double* y = &b.values[k * width];
      for (std::size_t j = 0; j < width; ++j) {
        sums[j] += x * y[j];
        magnitudes[j] += std::abs(x * y[j]);
      }
    }
    for (std::size_t j = 0; j < width; ++j) {
      const Bounded sum = scaled(
          tile::sum_of(types(), {static_cast<double>(k_), sums[j], magnitudes[j], operands}), a, b);
      block.first[i * block.stride + j] = finish(block.batch, block.rows[i], block.columns[j], sum);
    }
  }

  // A kernel may multiply each element by its scale, or the sum of a block by the product of its
  // scales. Both are as many roundings as products and a few more, which sum_of() counts. Here are
  // the cases where one of them leaves the range of fp32: no bound where a product overflows, and
  // the block's sum times what may be lost where the product of scales is below the range.
  Bounded scaled(Bounded sum, const Operand& a, const Operand& b) const {
    if (!has_scales(scales_.a) && !has_scales(scales_.b)) return sum;
    const double most = std::max({a.largest, b.largest, a.largest_scale * b.largest_scale});
    if (most > max_finite(DType::fp32)) sum.error = HUGE_VAL;
    const double elements = max_finite(p_.a) * max_finite(p_.b) * static_cast<double>(k_);
    sum.error += kFlushedScale * elements;
    return sum;
  }

  // ---- one element ----

  tile::SumTypes types() const { return {p_.a, p_.b, p_.acc, p_.out}; }

  // The rows of memory of a row of the product.
  std::int64_t row_of_a(std::int64_t row) const {
    return p_.indexing == GemmIndexing::gathered ? o_.row_index[row] : row;
  }
  std::int64_t row_of_out(std::int64_t row) const {
    return p_.indexing == GemmIndexing::scattered ? o_.row_index[row] : row;
  }

  Bounded finish(std::int64_t batch, std::int64_t of_product, std::int64_t column,
                 Bounded sum) const {
    const std::int64_t row = row_of_out(of_product);
    double c = 0;
    if (p_.beta != 0) {
      const void* const from = matrix_of(p_, p_.out, o_.c, p_.batch_stride_c, batch);
      c = load_element(p_.out, from, row * p_.ld_c + column);
    }
    return tile::finish_sum({types(), p_.alpha, p_.beta, {p_.epilogue, p_.clamp_lo, p_.clamp_hi}},
                            sum, c, d_values(batch, row, column));
  }

  DValues d_values(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    DValues values{};
    const auto uses = d_uses(p_.epilogue);
    for (std::size_t i = 0; i < p_.epilogue.num_d; ++i) {
      const DShape shape = uses[i].shape;
      const std::int64_t at = shape == DShape::along_m   ? row
                              : shape == DShape::along_n ? column
                                                         : row * p_.ld_d[i] + column;
      const void* const d = matrix_of(p_, p_.d, o_.d[i], p_.batch_stride_d[i], batch);
      values[i] = load_element(p_.d, d, at);
    }
    return values;
  }

  const GemmProblem& p_;
  const GemmOperands& o_;
  const device::ScaledArguments& scales_;
  std::size_t k_;
  int threads_;
  Fp8Encoding fp8_;  // of A and B; no other operand has 8-bit floats
};

// ---- the comparison ----

struct Worst {
  std::int64_t batch = 0, row = 0, column = 0;
  double got = 0, ratio = 0;
  Bounded wanted;
};

std::string describe(const GemmProblem& p, const Mismatch& result, const Worst& worst) {
  const std::string where = p.batch > 1
                                ? fmt::format("{}, {}, {}", worst.batch, worst.row, worst.column)
                                : fmt::format("{}, {}", worst.row, worst.column);
  return fmt::format(
      "gemm: out[{}] is {:.9g}, the reference is {:.9g} with tolerance {:.3g} ({} of {} elements "
      "checked {} outside)",
      where, worst.got, worst.wanted.value, tolerance_of(p.out, worst.wanted), result.bad,
      result.checked, result.bad == 1 ? "is" : "are");
}

class Comparison {
 public:
  Comparison(const GemmProblem& problem, const void* out) : p_(problem), out_(out) {}

  void look(std::int64_t batch, std::int64_t row, std::int64_t column, const Bounded& x) {
    const void* const out = matrix_of(p_, p_.out, out_, p_.batch_stride_out, batch);
    const double got = load_element(p_.out, out, row * p_.ld_out + column);
    ++result_.checked;
    const double r = tile::error_ratio(p_.out, got, x);
    if (within_tolerance(p_.out, got, x)) {
      if (std::isfinite(r)) result_.worst_ratio = std::max(result_.worst_ratio, r);
      return;
    }
    result_.ok = false;
    ++result_.bad;
    if (result_.bad == 1 || r > worst_.ratio) worst_ = {batch, row, column, got, r, x};
    result_.worst_ratio = std::max(result_.worst_ratio, r);
  }

  Mismatch result() {
    if (!result_.ok) result_.message = describe(p_, result_, worst_);
    return result_;
  }

 private:
  const GemmProblem& p_;
  const void* out_;
  Mismatch result_;
  Worst worst_;
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "gemm: " + sentence);
}

// The problem with its strides filled in, and with tf32 replaced by fp32, as it is stored.
GemmProblem as_stored(const Problem& problem) {
  GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  if (p.out == DType::tf32) p.out = DType::fp32;
  return p;
}

void require_plain_b(const GemmProblem& p) {
  if (!p.preshuffled_b) return;
  refuse("verify reads B as it was before packing; pass the problem with preshuffle=0 and that B");
}

// Whether the output overwrote an operand that the kernel reads.
bool is_out(const GemmProblem& p, const GemmOperands& o, const void* operand) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return false;
  if (!p.pointer_arrays) return operand == o.out;
  const auto* const outs = static_cast<const void* const*>(o.out);
  const auto* const theirs = static_cast<const void* const*>(operand);
  for (std::int64_t i = 0; i < p.batch; ++i) {
    if (outs[i] == theirs[i]) return true;
  }
  return false;
}

}  // namespace

Plan plan_of(const GemmProblem& p, const ReferenceLimits& limits) { return plan(p, limits); }

Elements product_elements(const GemmProblem& p, const GemmOperands& o,
                          const device::ScaledArguments& scales, const ReferenceLimits& limits,
                          const Plan& plan) {
  return Computation(p, o, scales, limits).run(plan);
}

Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits) {
  const GemmProblem p = as_stored(problem);
  require_plain_b(p);
  const auto& o = std::get<GemmOperands>(operands);
  if (is_arranged(p)) return arranged_reference(p, o, limits);
  if (has_groups(p)) return grouped_reference(p, o, limits);
  const device::ScaledArguments scales =
      has_scales(p) ? scaled_arguments(p, o) : device::ScaledArguments{};
  if (has_outputs(p)) return outputs_reference(p, o, scales, limits, scale_strides(p));
  return scaled_reference(p, o, scales, limits);
}

Reference scaled_reference(const GemmProblem& p, const GemmOperands& o,
                           const device::ScaledArguments& scales, const ReferenceLimits& limits) {
  auto elements =
      std::make_shared<Elements>(Computation(p, o, scales, limits).run(plan(p, limits)));
  Reference found;
  const std::size_t tensor = place_of(p, "out");
  for (const std::int64_t batch : elements->plan.batches) {
    for (const std::int64_t row : elements->plan.rows) {
      if (elements->plan.columns.empty()) continue;
      const std::int64_t stride = p.pointer_arrays ? 0 : p.batch_stride_out;
      const std::int64_t first = batch * stride + row * p.ld_out;
      found.runs.push_back(
          {tensor, batch, (first + elements->plan.columns.front()) * size_of(p.out),
           (elements->plan.columns.back() - elements->plan.columns.front() + 1) * size_of(p.out)});
    }
  }
  found.elements = std::move(elements);
  return found;
}

Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference) {
  const GemmProblem p = as_stored(problem);
  if (is_arranged(p)) return arranged_compare(p, std::get<GemmOperands>(operands), reference);
  if (has_groups(p)) return grouped_compare(p, std::get<GemmOperands>(operands), reference);
  if (has_outputs(p)) {
    return outputs_compare(p, std::get<GemmOperands>(operands), reference, scale_strides(p));
  }
  const auto& elements = *static_cast<const Elements*>(reference.elements.get());
  Comparison comparison(p, std::get<GemmOperands>(operands).out);
  const Bounded* x = elements.wanted.data();
  for (const std::int64_t batch : elements.plan.batches) {
    for (const std::int64_t row : elements.plan.rows) {
      for (const std::int64_t column : elements.plan.columns) {
        comparison.look(batch, row, column, *x++);
      }
    }
  }
  return comparison.result();
}

Mismatch verify(const Problem& problem, const Operands& operands) {
  const GemmProblem p = as_stored(problem);
  const auto& o = std::get<GemmOperands>(operands);
  require_plain_b(p);
  if (p.beta != 0 && is_out(p, o, o.c)) {
    refuse("verify needs C as it was before the kernel ran, but c is out; pass a copy");
  }
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    if (!is_out(p, o, o.d[i])) continue;
    refuse(
        fmt::format("verify needs D{0} as it was before the kernel ran, but d{0} is out; pass a "
                    "copy",
                    i));
  }
  return compare(problem, operands, reference(problem, operands, {}));
}

}  // namespace tessera::gemm
