#include <algorithm>
#include <array>
#include <bit>

#include "tessera/dispatch/pointer_rules_internal.h"

namespace tessera {

PointerRules::PointerRules(const Family& family, const Problem& problem) : family_(family) {
  const Tensors tensors = family.tensors(problem);
  if (writes_nothing(tensors)) return;
  for (const bool is_output : {true, false}) {
    for (const Tensor& tensor : tensors) {
      if (tensor.is_written() != is_output || tensor.is_empty()) continue;
      const int alignment = tensor.alignment != 0 ? tensor.alignment : size_of(tensor.dtype);
      const auto bytes = tensor.in_array ? alignof(void*) : static_cast<std::size_t>(alignment);
      const std::uintptr_t low_bits = std::has_single_bit(bytes) ? bytes - 1 : ~std::uintptr_t{0};
      rules_.push_back({tensor.operand, tensor.in_array ? 0 : tensor.bytes(), low_bits});
    }
    if (is_output) outputs_ = rules_.size();
  }
}

bool PointerRules::are_usual(const Operands& operands) const {
  const Op op = family_.op;
  if (operands.index() != static_cast<std::size_t>(op)) return false;
  std::array<std::uintptr_t, kMaxTensors> begins;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i];
    const auto begin = reinterpret_cast<std::uintptr_t>(family_.pointer(operands, rule.operand));
    if (begin == 0 || (begin & rule.low_bits) != 0) return false;
    begins[i] = begin;
    for (std::size_t o = 0; o < std::min(i, outputs_); ++o) {
      if (begin < begins[o] + rules_[o].bytes && begins[o] < begin + rule.bytes) return false;
    }
  }
  return true;
}

void check_operands(const ReadyKernel& kernel, const Problem& problem, const Operands& operands,
                    const CallerMemory& workspace) {
  if (workspace.bytes == 0 && kernel.pointers->are_usual(operands)) return;
  validate_operands(*kernel.family, problem, operands, workspace);
}

}  // namespace tessera
