// Groups of lists whose matrices are as large as each group's own sizes say, and end or begin where
// a page lies that nobody may touch.
#pragma once

#include <deque>
#include <vector>

#include "cpu/guarded.h"
#include "grouped_lists.h"

namespace tessera {

// Copies of the matrices. Numbers stay where they are.
class ListsAtEdges {
 public:
  ListsAtEdges(const GemmProblem& given, const measure::OwnedOperands& owned, Edge edge)
      : operands_(owned.operands) {
    const GemmProblem p = with_strides(given);
    const device::GroupArguments x =
        gemm::group_arguments(p, std::get<GemmOperands>(owned.operands));
    for (const Tensor& tensor : owned.tensors) {
      if (!tensor.in_array || tensor.is_empty()) continue;
      const void* const from = owned.family->pointer(owned.operands, tensor.operand);
      std::vector<void*>& pointers = arrays_.emplace_back();
      for (std::int64_t group = 0; group < p.groups; ++group) {
        const std::size_t bytes =
            grouped::bytes_of_list(p, tensor, device::product_of_list(x, group));
        pointers.push_back(memory_
                               .emplace_back(device::listed(from, group), bytes, edge,
                                             static_cast<std::size_t>(size_of(tensor.dtype)))
                               .data());
      }
      owned.family->set_pointer(operands_, tensor.operand, pointers.data());
    }
  }

  const Operands& operands() const { return operands_; }

 private:
  Operands operands_;
  std::deque<std::vector<void*>> arrays_;
  std::deque<Guarded> memory_;
};

}  // namespace tessera
