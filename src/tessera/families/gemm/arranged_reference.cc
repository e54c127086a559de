// The reference of arranged problems: operands as matrices, merged and rounded once, and the
// reference of the product that is left.
#include <cstring>
#include <vector>

#include "tessera/families/gemm/arranged.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/spec/numeric.h"

namespace tessera::gemm {
namespace {

using Bytes = std::vector<std::byte>;

// Calls visit(index of the tensor, index of the matrix, place) for each element.
template <class Visit>
void for_each_place(const ArrangedView& view, const Visit& visit) {
  std::array<std::int64_t, kMostDims> at{};
  for (std::int64_t i = 0; i < view.elements; ++i) {
    std::int64_t tensor = 0, matrix = 0;
    for (std::size_t d = 0; d < view.rank; ++d) {
      tensor += at.at(d) * view.strides.at(d), matrix += at.at(d) * view.dense.at(d);
    }
    visit(tensor, matrix, at);
    for (std::size_t d = 0; d < view.rank && ++at.at(d) == view.sizes.at(d); ++d) at.at(d) = 0;
  }
}

std::size_t bytes_of_matrix(const DenseProduct& dense, Arranged operand) {
  return static_cast<std::size_t>(dense.of(operand).bytes);
}

void move_element(DType type, const void* from, std::int64_t at, void* to, std::int64_t to_at) {
  const std::int64_t bytes = size_of(type);
  std::memcpy(static_cast<std::byte*>(to) + to_at * bytes,
              static_cast<const std::byte*>(from) + at * bytes, static_cast<std::size_t>(bytes));
}

// A source: its elements, and its strides in the order of the view.
struct MergedSource {
  const void* data;
  std::array<std::int64_t, kMostDims> strides;
};
std::vector<MergedSource> merged_sources(const GemmProblem& p, const GemmOperands& o,
                                         Arranged operand, const ArrangedView& view) {
  const auto& more = operand == Arranged::a ? o.more_a : o.more_b;
  std::vector<MergedSource> all = {{pointer(o, static_cast<std::size_t>(operand)), view.strides}};
  for (std::int64_t s = 1; s < sources_of(p, operand); ++s) {
    const auto source = static_cast<std::size_t>(s);
    all.push_back({more.at(source - 1), source_strides(p, view, operand, source)});
  }
  return all;
}

float merged_value(DType type, GemmMerge merge, const std::vector<MergedSource>& sources,
                   const std::array<std::int64_t, kMostDims>& at) {
  float value = merge == GemmMerge::multiply ? 1 : -0.0F;
  for (const MergedSource& source : sources) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < at.size(); ++d) place += at.at(d) * source.strides.at(d);
    const auto x = static_cast<float>(load_element(type, source.data, place));
    value = merge == GemmMerge::multiply ? value * x : value + x;
  }
  return value;
}

Bytes gathered(const GemmProblem& p, const DenseProduct& dense, const GemmOperands& o,
               Arranged operand) {
  Bytes matrix(bytes_of_matrix(dense, operand));
  const ArrangedView view = view_of(p, dense, operand);
  const DType type = type_of(p, operand);
  const GemmMerge merge = operand == Arranged::a ? p.merge_a : p.merge_b;
  const std::vector<MergedSource> sources = merged_sources(p, o, operand, view);
  const void* const data = pointer(o, static_cast<std::size_t>(operand));
  for_each_place(view, [&](std::int64_t tensor, std::int64_t place, const auto& at) {
    if (sources.size() > 1) {
      store_element(type, matrix.data(), place, merged_value(type, merge, sources, at));
    } else {
      move_element(type, data, tensor, matrix.data(), place);
    }
  });
  return matrix;
}

}  // namespace

Reference arranged_reference(const GemmProblem& p, const GemmOperands& o,
                             const ReferenceLimits& limits) {
  const DenseProduct dense = dense_product(p);
  Operands operands = o;
  std::array<Bytes, kArrangedOperands> copies;
  for (std::size_t i = 0; i < kArrangedOperands; ++i) {
    const auto operand = static_cast<Arranged>(i);
    if (!dense.of(operand).is_copy || operand == Arranged::out) continue;
    copies.at(i) = gathered(p, dense, o, operand);
    set_pointer(operands, i, copies.at(i).data());
  }
  Reference found = reference(dense.problem, operands, limits);
  found.runs.clear();
  const std::size_t place = place_of(p, "out");
  const Tensors all = tensors(p);
  found.runs.push_back({place, 0, 0, static_cast<std::int64_t>(all[place].bytes())});
  return found;
}

Mismatch arranged_compare(const GemmProblem& p, const GemmOperands& o, const Reference& reference) {
  const DenseProduct dense = dense_product(p);
  GemmOperands product = o;
  Bytes out;
  if (dense.of(Arranged::out).is_copy) {
    out = gathered(p, dense, o, Arranged::out);
    product.out = out.data();
  }
  return compare(dense.problem, product, reference);
}

}  // namespace tessera::gemm
