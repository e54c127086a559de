#include "tessera/families/tile/row_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/parallel.h"
#include "tessera/families/draw.h"
#include "tessera/spec/numeric.h"

namespace tessera::tile {
namespace {

// Of each output the rows that are looked at, and all their elements, one row after the other.
struct RowElements {
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<std::vector<Bounded>> outputs;
  Fp8Encoding fp8 = Fp8Encoding::ocp;
};

bool has_reference(const Tensor& tensor) { return tensor.is_written() && !tensor.is_report; }

std::vector<Tensor> outputs_of(const Tensors& tensors) {
  std::vector<Tensor> outputs;
  for (const Tensor& tensor : tensors) {
    if (has_reference(tensor)) outputs.push_back(tensor);
  }
  return outputs;
}

void look(std::string_view op, const Tensor& tensor, const void* data,
          const std::vector<std::int64_t>& rows, const Bounded* x, Fp8Encoding fp8,
          Mismatch& result) {
  for (const std::int64_t row : rows) {
    const std::int64_t first = tensor.row_offset(row);
    for (std::int64_t c = 0; c < tensor.sizes[0]; ++c, ++x) {
      const double got = load_element(tensor.dtype, data, first + c * tensor.strides[0], fp8);
      const double tolerance = tolerance_of(tensor.dtype, *x);
      const double ratio = std::abs(got - x->value) / tolerance;
      ++result.checked;
      if (std::isfinite(ratio)) result.worst_ratio = std::max(result.worst_ratio, ratio);
      if (within_tolerance(tensor.dtype, got, *x)) continue;
      result.ok = false;
      if (result.bad++ > 0) continue;
      result.message =
          fmt::format("{}: {}[{}, {}] is {:.9g}, the reference is {:.9g} with tolerance {:.3g}", op,
                      tensor.name, row, c, got, x->value, tolerance);
    }
  }
}

// The runs of bytes that the rows lie in.
Reference found_in(const Tensors& tensors, std::shared_ptr<RowElements> elements) {
  Reference found;
  std::size_t output = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!has_reference(tensors[i])) continue;
    const std::vector<std::int64_t>& rows = elements->rows[output++];
    if (tensors[i].is_empty()) continue;
    const std::int64_t size = size_of(tensors[i].dtype);
    for (const std::int64_t row : rows) {
      const std::int64_t bytes = ((tensors[i].sizes[0] - 1) * tensors[i].strides[0] + 1) * size;
      found.runs.push_back({i, row / tensors[i].rows(), tensors[i].row_offset(row) * size, bytes});
    }
  }
  found.elements = std::move(elements);
  return found;
}

}  // namespace

std::vector<std::int64_t> spread_rows(const Tensor& tensor, const ReferenceLimits& limits,
                                      double cost) {
  if (tensor.is_empty()) return {};
  const std::int64_t all = tensor.rows() * tensor.batches;
  const auto columns = static_cast<double>(tensor.sizes[0]);
  const double affordable = std::min(limits.multiplications / cost, double(limits.elements));
  std::int64_t count = all;
  if (affordable / columns < double(all)) {
    count =
        std::min(all, std::max<std::int64_t>(2, static_cast<std::int64_t>(affordable / columns)));
  }
  if (limits.rows > 0) count = std::min(count, limits.rows);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::int64_t>(double(all) * double(i) / double(count));
    const auto end = static_cast<std::int64_t>(double(all) * double(i + 1) / double(count));
    const auto width = static_cast<std::uint64_t>(std::max<std::int64_t>(end - begin, 1));
    const std::uint64_t drawn = mix(limits.seed ^ mix(static_cast<std::uint64_t>(i)));
    rows.push_back(begin + static_cast<std::int64_t>(drawn % width));
  }
  rows.front() = 0;
  if (count > 1) rows.back() = all - 1;
  return rows;
}

Reference reference_of_rows(const Family& family, const Problem& problem,
                            std::vector<std::vector<std::int64_t>> rows,
                            const ReferenceLimits& limits, const ComputeOutputRow& compute) {
  const std::vector<Tensor> outputs = outputs_of(family.tensors(problem));
  auto elements = std::make_shared<RowElements>();
  elements->rows = std::move(rows);
  elements->fp8 = limits.fp8;
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    const std::vector<std::int64_t>& of_output = elements->rows[j];
    const auto columns = static_cast<std::size_t>(outputs[j].sizes[0]);
    std::vector<Bounded>& all = elements->outputs.emplace_back(of_output.size() * columns);
    share_work(limits.threads, of_output.size(),
               [&](std::size_t, std::size_t begin, std::size_t end) {
                 for (std::size_t i = begin; i < end; ++i)
                   compute(j, of_output[i], all.data() + i * columns);
               });
  }
  return found_in(family.tensors(problem), std::move(elements));
}

Reference row_reference(const Family& family, const Problem& problem, const ReferenceLimits& limits,
                        double cost, const ComputeRow& compute) {
  const Tensors tensors = family.tensors(problem);
  const std::vector<Tensor> outputs = outputs_of(tensors);
  auto elements = std::make_shared<RowElements>();
  elements->fp8 = limits.fp8;
  const std::vector<std::int64_t> rows = spread_rows(outputs.front(), limits, cost);
  for (const Tensor& tensor : outputs) {
    elements->rows.push_back(rows);
    elements->outputs.emplace_back(rows.size() * static_cast<std::size_t>(tensor.sizes[0]));
  }
  const auto compute_rows = [&](std::size_t, std::size_t begin, std::size_t end) {
    std::vector<Bounded*> places(outputs.size());
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t j = 0; j < outputs.size(); ++j) {
        places[j] = elements->outputs[j].data() + i * static_cast<std::size_t>(outputs[j].sizes[0]);
      }
      compute(rows[i], places.data());
    }
  };
  share_work(limits.threads, rows.size(), compute_rows);
  return found_in(tensors, std::move(elements));
}

Mismatch compare_rows(const Family& family, const Problem& problem, const Operands& operands,
                      const Reference& reference) {
  const auto& elements = *static_cast<const RowElements*>(reference.elements.get());
  const std::vector<Tensor> outputs = outputs_of(family.tensors(problem));
  Mismatch result;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    look(to_string(family.op), outputs[i], family.pointer(operands, outputs[i].operand),
         elements.rows[i], elements.outputs[i].data(), elements.fp8, result);
  }
  if (!result.ok) {
    result.message += fmt::format(" ({} of {} elements checked {} outside)", result.bad,
                                  result.checked, result.bad == 1 ? "is" : "are");
  }
  return result;
}

void require_unchanged_inputs(const Family& family, const Problem& problem,
                              const Operands& operands) {
  const Tensors tensors = family.tensors(problem);
  for (const Tensor& read : tensors) {
    for (const Tensor& written : tensors) {
      const bool differ =
          family.pointer(operands, read.operand) != family.pointer(operands, written.operand);
      if (!read.is_read() || !written.is_written() || read.is_empty() || differ) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: verify needs {} as it was before the kernel ran, but {} is {}; "
                              "pass a copy",
                              to_string(family.op), read.name, read.name, written.name));
    }
  }
}

Mismatch verify_rows(const Family& family, const Problem& problem, const Operands& operands) {
  require_unchanged_inputs(family, problem, operands);
  return compare_rows(family, problem, operands, family.reference(problem, operands, {}));
}

}  // namespace tessera::tile
