// The operands of arranged problems as they lie in memory.
#include <algorithm>

#include "tessera/families/gemm/arranged.h"

namespace tessera::gemm {
namespace {

// The dimension that lies outermost is the tensor's batches.
void set_view(const ArrangedView& view, const std::array<std::int64_t, kMostDims>& strides,
              Tensor& tensor) {
  const bool has_batches = view.rank > 1;
  tensor.rank = std::max<std::size_t>(has_batches ? view.rank - 1 : view.rank, 1);
  tensor.sizes[0] = 1, tensor.strides[0] = 1;
  for (std::size_t i = 0; i < view.rank && i < tensor.rank; ++i) {
    tensor.sizes[i] = view.sizes.at(i), tensor.strides[i] = strides.at(i);
  }
  if (!has_batches) return;
  tensor.batches = view.sizes.at(view.rank - 1);
  tensor.batch_stride = strides.at(view.rank - 1);
}

void add_arranged(const GemmProblem& p, const DenseProduct& dense, Arranged operand, Tensors& all) {
  const std::size_t first = static_cast<std::size_t>(operand);
  const ArrangedView view = whole_view_of(p, dense, operand);
  for (std::int64_t s = 0; s < sources_of(p, operand); ++s) {
    const auto source = static_cast<std::size_t>(s);
    const std::size_t more = operand == Arranged::a ? kOperandMoreA : kOperandMoreB;
    Tensor& tensor = all.add();
    tensor.operand = source == 0 ? first : more + source - 1;
    tensor.name = operand_name(tensor.operand);
    tensor.dtype = type_of(p, operand);
    set_view(view, source_strides(p, view, operand, source), tensor);
    if (operand == Arranged::out) tensor.access = Access::write;
    tensor.may_be_output = operand >= Arranged::c && operand != Arranged::out;
  }
}

}  // namespace

Tensors arranged_tensors(const GemmProblem& p) {
  const DenseProduct dense = dense_product(p);
  Tensors all;
  for (std::size_t i = 0; i < kArrangedOperands; ++i) {
    const auto operand = static_cast<Arranged>(i);
    if (dense.of(operand).is_used) add_arranged(p, dense, operand, all);
  }
  return all;
}

}  // namespace tessera::gemm
