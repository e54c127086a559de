// The reference of gates, rows by index and outputs of 8 bits: the elements of the product after
// its epilogue, and what becomes of them until they are stored.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/device/norm.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/reference_internal.h"
#include "tessera/families/tile/quant_reference.h"
#include "tessera/families/tile/sum_error.h"
#include "tessera/spec/numeric.h"

namespace tessera::gemm {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

// Elements of out, columns innermost, and for each row of them the scales that are written.
struct Stored {
  Indices batches, rows, columns;  // of out; rows are those in memory
  std::vector<Bounded> wanted, scales;
  std::size_t scales_of_row = 0;
  Fp8Encoding fp8 = Fp8Encoding::ocp;
};

bool writes_scales(const GemmProblem& p) { return p.quant >= NormQuant::row; }

// ---- which elements ----

// The rows of the product that name a row, or all.
Indices with_row(const GemmProblem& p, const GemmOperands& o, Indices rows) {
  if (p.indexing != GemmIndexing::none) {
    std::erase_if(rows, [&](std::int64_t row) { return o.row_index[row] < 0; });
  }
  return rows;
}

// Which columns of out are checked: a scale that is written needs its whole row.
Indices columns_of_out(const GemmProblem& p, const Plan& plan) {
  Indices columns;
  const std::int64_t n = stored_columns_out(p);
  if (writes_scales(p)) {
    for (std::int64_t i = 0; i < n; ++i) columns.push_back(i);
    return columns;
  }
  for (const std::int64_t column : plan.columns) {
    columns.push_back(p.gate == GemmGate::none ? column
                      : p.gate_interleaved     ? column / 2
                                               : column % n);
  }
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  return columns;
}

// The columns of the product that make them: with a gate first all x, then all y.
Indices columns_of_product(const GemmProblem& p, const Indices& columns) {
  if (p.gate == GemmGate::none) return columns;
  Indices all;
  for (const std::int64_t second : {0, 1}) {
    for (const std::int64_t i : columns) {
      all.push_back(p.gate_interleaved ? 2 * i + second : i + second * (p.n / 2));
    }
  }
  return all;
}

// A row takes all its columns, and so fewer rows are checked.
Plan plan_of_outputs(const GemmProblem& p, const ReferenceLimits& limits) {
  if (!writes_scales(p)) return plan_of(p, limits);
  const double row = static_cast<double>(std::max<std::int64_t>(p.n, 1)) *
                     static_cast<double>(std::max<std::int64_t>(p.k, 64));
  ReferenceLimits fewer = limits;
  const double most = std::clamp(limits.multiplications / row, 2.0, 0x1p30);
  if (most < static_cast<double>(p.m) * static_cast<double>(p.batch)) {
    const auto rows = static_cast<std::int64_t>(most);
    fewer.rows = limits.rows > 0 ? std::min(limits.rows, rows) : rows;
  }
  return plan_of(p, fewer);
}

// ---- one row ----

double two_ulps(double value) { return std::isfinite(value) ? 0x1p-23 * std::abs(value) : 0; }

Bounded gated(const GemmProblem& p, const Bounded& x, const Bounded& y) {
  constexpr std::string_view kSteps[] = {"silu", "gelu", "gelu_tanh"};
  const Epilogue step = parse_epilogue(kSteps[static_cast<std::size_t>(p.gate) - 1]);
  const Bounded act = tile::apply_epilogue({step, 0, 0}, {}, x);
  const double value = act.value * y.value;
  const bool overflows = std::abs(value) > max_finite(DType::fp32) / 2;
  if (act.error == kNoBound || y.error == kNoBound || overflows) return {value, kNoBound};
  if (!std::isfinite(value)) return {value, 0};
  const double error = std::abs(act.value) * y.error + std::abs(y.value) * act.error +
                       act.error * y.error + two_ulps(value) + 0x1p-126;
  return {value, error};
}

// From the elements of a row of the product to what is stored.
void finish_row(const GemmProblem& p, const GemmOperands& o, const Bounded* product, Stored& all) {
  const std::size_t count = all.columns.size();
  std::vector<Bounded> y(product, product + count);
  if (p.gate != GemmGate::none) {
    for (std::size_t i = 0; i < count; ++i) y[i] = gated(p, y[i], product[count + i]);
  }
  if (p.quant == NormQuant::none) {
    all.wanted.insert(all.wanted.end(), y.begin(), y.end());
    return;
  }
  const double largest = tile::largest_of(p.out, all.fp8);
  const bool is_block = p.quant == NormQuant::block;
  const std::size_t width = is_block ? device::kQuantBlock : std::max<std::size_t>(count, 1);
  for (std::size_t first = 0; first < count; first += width) {
    const std::span<const Bounded> part(y.data() + first, std::min(width, count - first));
    const Bounded scale = writes_scales(p) ? tile::scale_of(part, largest)
                                           : Bounded{load_element(DType::fp32, o.out_scale, 0), 0};
    if (writes_scales(p)) all.scales.push_back(scale);
    for (const Bounded& one : part) all.wanted.push_back(tile::quantised(one, scale, largest));
  }
}

// ---- where they lie ----

std::int64_t place_of_scale(const ScaleStrides& x, std::int64_t batch, std::int64_t row,
                            std::size_t block) {
  return batch * x.matrix + row * x.row + static_cast<std::int64_t>(block) * x.block;
}

void add_runs(const GemmProblem& p, const Stored& all, const ScaleStrides& x, Reference& found) {
  if (all.columns.empty()) return;
  const std::size_t out = place_of(p, "out");
  const std::size_t scales = writes_scales(p) ? place_of(p, "out_scales") : 0;
  const int size = size_of(p.out);
  for (const std::int64_t batch : all.batches) {
    for (const std::int64_t row : all.rows) {
      const std::int64_t stride = p.pointer_arrays ? 0 : p.batch_stride_out;
      const std::int64_t first = batch * stride + row * p.ld_out;
      found.runs.push_back({out, batch, (first + all.columns.front()) * size,
                            (all.columns.back() - all.columns.front() + 1) * size});
      for (std::size_t i = 0; i < all.scales_of_row; ++i) {
        found.runs.push_back({scales, batch, 4 * place_of_scale(x, batch, row, i), 4});
      }
    }
  }
}

// ---- the comparison ----

struct Checks {
  Mismatch all;
  double worst = -1;

  void look(DType type, double got, const Bounded& x, const std::string& where) {
    ++all.checked;
    const double ratio = tile::error_ratio(type, got, x);
    const bool fits = within_tolerance(type, got, x);
    if (!fits || std::isfinite(ratio)) all.worst_ratio = std::max(all.worst_ratio, ratio);
    if (fits) return;
    all.ok = false, ++all.bad;
    if (ratio <= worst) return;
    worst = ratio;
    all.message = fmt::format("gemm: {} is {:.9g}, the reference is {:.9g} with tolerance {:.3g}",
                              where, got, x.value, tolerance_of(type, x));
  }
  Mismatch result() const {
    Mismatch found = all;
    if (!found.ok) {
      found.message += fmt::format(" ({} of {} elements checked {} outside)", all.bad, all.checked,
                                   all.bad == 1 ? "is" : "are");
    }
    return found;
  }
};

const void* out_of_batch(const GemmProblem& p, const GemmOperands& o, std::int64_t batch) {
  if (p.pointer_arrays) return static_cast<const void* const*>(o.out)[batch];
  return static_cast<const std::byte*>(o.out) + batch * p.batch_stride_out * size_of(p.out);
}

}  // namespace

Reference outputs_reference(const GemmProblem& p, const GemmOperands& o,
                            const device::ScaledArguments& of_blocks, const ReferenceLimits& limits,
                            const ScaleStrides& scales) {
  refuse_bad_index(p, o);
  Plan plan = plan_of_outputs(p, limits);
  auto all = std::make_shared<Stored>();
  all->fp8 = limits.fp8;
  all->columns = columns_of_out(p, plan);
  plan.rows = with_row(p, o, plan.rows);
  plan.columns = columns_of_product(p, all->columns);
  all->batches = plan.batches;
  for (const std::int64_t row : plan.rows) {
    all->rows.push_back(p.indexing == GemmIndexing::scattered ? o.row_index[row] : row);
  }
  if (writes_scales(p)) {
    all->scales_of_row =
        p.quant == NormQuant::row
            ? (all->columns.empty() ? 0 : 1)
            : (all->columns.size() + device::kQuantBlock - 1) / device::kQuantBlock;
  }
  const Elements product = product_elements(p, o, of_blocks, limits, plan);
  for (std::size_t i = 0; i < plan.batches.size() * plan.rows.size(); ++i) {
    finish_row(p, o, product.wanted.data() + i * plan.columns.size(), *all);
  }
  Reference found;
  add_runs(p, *all, scales, found);
  found.elements = std::move(all);
  return found;
}

Mismatch outputs_compare(const GemmProblem& p, const GemmOperands& o, const Reference& reference,
                         const ScaleStrides& scales) {
  const auto& all = *static_cast<const Stored*>(reference.elements.get());
  Checks checks;
  const Bounded* wanted = all.wanted.data();
  const Bounded* scale = all.scales.data();
  for (const std::int64_t batch : all.batches) {
    for (const std::int64_t row : all.rows) {
      const void* const out = out_of_batch(p, o, batch);
      for (const std::int64_t column : all.columns) {
        checks.look(p.out, load_element(p.out, out, row * p.ld_out + column, all.fp8), *wanted++,
                    fmt::format("out[{}, {}, {}]", batch, row, column));
      }
      for (std::size_t i = 0; i < all.scales_of_row; ++i) {
        const std::int64_t at = place_of_scale(scales, batch, row, i);
        checks.look(DType::fp32, load_element(DType::fp32, o.out_scales, at), *scale++,
                    fmt::format("out_scales[{}, {}, {}]", batch, row, i));
      }
    }
  }
  return checks.result();
}

}  // namespace tessera::gemm
