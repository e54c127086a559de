// The reference of groups: each group is one product, whose reference is computed by itself.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/scales.h"

namespace tessera::gemm {
namespace {

using device::GroupPart;

// The product of one part of a group.
struct Product {
  std::int64_t group;
  GemmProblem problem;
  GemmOperands operands;
  std::int64_t offset;         // of its output, in bytes
  std::int64_t scales_offset;  // the same of its scales
  device::ScaledArguments scales;
};

struct PartReference {
  Product product;
  Reference reference;
};
using PartReferences = std::vector<PartReference>;

Product product_of_part(const GemmProblem& p, const GemmOperands& o,
                        const device::ScaledArguments& scaled, const GroupPart& part) {
  const device::GroupArguments& x = scaled.groups;
  const device::GroupElements sizes = {size_of(p.a), size_of(p.b), size_of(p.d), size_of(p.out)};
  const device::GemmArguments g = device::product_of(x, part, sizes);
  Product made{
      part.group, problem_of_part(p, g), {.a = g.a, .b = g.b, .c = g.c, .out = g.out}, 0, 0, {}};
  if (has_scales(p)) {
    made.scales.a = a_scales_of(scaled, part), made.scales.b = b_scales_of(scaled, part);
    if (p.indexing == GemmIndexing::gathered) made.scales.a.first_row = 0;  // as the index counts
  }
  std::copy(std::begin(g.d), std::end(g.d), made.operands.d.begin());
  if (is_list(p)) return made;
  if (o.row_index != nullptr) made.operands.row_index = o.row_index + part.begin;
  made.operands.out_scale = o.out_scale;
  if (p.quant >= NormQuant::row) made.scales_offset = scales_offset(p, part);
  made.offset = static_cast<const std::byte*>(g.out) - static_cast<const std::byte*>(o.out);
  return made;
}

void* out_of(const GemmProblem& p, const GemmOperands& o, const Product& product) {
  if (is_list(p)) return static_cast<void* const*>(o.out)[product.group];
  return static_cast<std::byte*>(o.out) + product.offset;
}

std::vector<Product> products_of(const GemmProblem& p, const GemmOperands& o) {
  device::ScaledArguments x{};
  if (has_scales(p)) x = scaled_arguments(p, o);
  x.groups = output_arguments(p, o).groups;
  std::vector<Product> all;
  if (x.groups.numbers == nullptr || p.n == 0 || p.m == 0) return all;
  device::for_each_part(
      x.groups, [&](const GroupPart& part) { all.push_back(product_of_part(p, o, x, part)); });
  return all;
}

// With few rows, some of the parts, the first and the last one among them.
std::vector<Product> some_of(std::vector<Product> all, std::int64_t rows) {
  const std::size_t most =
      rows == 0 ? all.size() : static_cast<std::size_t>(std::max<std::int64_t>(2, rows / 2));
  if (all.size() <= most) return all;
  std::vector<Product> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

ReferenceLimits share_of(ReferenceLimits limits, std::size_t parts) {
  const auto count = static_cast<std::int64_t>(std::max<std::size_t>(parts, 1));
  limits.multiplications /= static_cast<double>(count);
  limits.elements = std::max<std::int64_t>(1, limits.elements / count);
  if (limits.rows > 0) limits.rows = std::max<std::int64_t>(1, limits.rows / count);
  return limits;
}

}  // namespace

Reference grouped_reference(const GemmProblem& p, const GemmOperands& o,
                            const ReferenceLimits& limits) {
  refuse_bad_group(p, o);
  auto parts = std::make_shared<PartReferences>();
  Reference found;
  const std::size_t out = place_of(p, "out");
  const std::size_t scales = p.quant >= NormQuant::row ? place_of(p, "out_scales") : out;
  const std::vector<Product> all = some_of(products_of(p, o), limits.rows);
  const ReferenceLimits each = share_of(limits, all.size());
  for (const Product& product : all) {
    Reference one = has_outputs(p)
                        ? outputs_reference(product.problem, product.operands, product.scales, each,
                                            scale_strides(p))
                        : scaled_reference(product.problem, product.operands, product.scales, each);
    for (Reference::Run run : one.runs) {
      const bool is_out = run.tensor == place_of(product.problem, "out");
      run.tensor = is_out ? out : scales, run.batch = is_list(p) ? product.group : 0;
      run.offset += is_out ? product.offset : product.scales_offset;
      found.runs.push_back(run);
    }
    parts->push_back({product, std::move(one)});
  }
  found.elements = std::move(parts);
  return found;
}

Mismatch grouped_compare(const GemmProblem& p, const GemmOperands& o, const Reference& reference) {
  Mismatch all;
  for (const PartReference& part : *static_cast<const PartReferences*>(reference.elements.get())) {
    GemmOperands operands = part.product.operands;
    operands.out = out_of(p, o, part.product);
    if (o.out_scales != nullptr) {
      operands.out_scales = static_cast<std::byte*>(o.out_scales) + part.product.scales_offset;
    }
    const Mismatch one = has_outputs(p) ? outputs_compare(part.product.problem, operands,
                                                          part.reference, scale_strides(p))
                                        : compare(part.product.problem, operands, part.reference);
    const bool is_worse = !one.ok && (all.ok || one.worst_ratio > all.worst_ratio);
    if (is_worse) all.message = fmt::format("{} (of group {})", one.message, part.product.group);
    all.ok = all.ok && one.ok;
    all.bad += one.bad, all.checked += one.checked;
    all.worst_ratio = std::max(all.worst_ratio, one.worst_ratio);
  }
  if (!p.check_groups || o.bad_group == nullptr || o.bad_group[0] == 0) return all;
  all.ok = false, ++all.bad;
  all.message =
      fmt::format("gemm: bad_group is {} {} {} {}, but all numbers fit: it must be 0 -1 -1 -1",
                  o.bad_group[0], o.bad_group[1], o.bad_group[2], o.bad_group[3]);
  return all;
}

}  // namespace tessera::gemm
