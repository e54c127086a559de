#include "tessera/families/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {

std::size_t Tensor::batch_bytes() const {
  Tensor one = *this;
  one.batches = std::min<std::int64_t>(batches, 1);
  return one.bytes();
}

bool Tensor::has_gaps() const {
  std::int64_t count = batches;
  for (std::size_t i = 0; i < rank; ++i) count *= sizes[i];
  return elements() != count;
}

bool Tensor::is_too_long() const {
  if (is_empty()) return false;
  std::int64_t elements = 1;
  const auto overflows = [&elements](std::int64_t size, std::int64_t stride) {
    std::int64_t distance = 0;
    return __builtin_mul_overflow(size - 1, stride, &distance) ||
           __builtin_add_overflow(elements, distance, &elements);
  };
  for (std::size_t i = 0; i < rank; ++i) {
    if (overflows(sizes[i], strides[i])) return true;
  }
  std::int64_t bytes = 0;
  return overflows(in_array ? 1 : batches, batch_stride) ||
         __builtin_mul_overflow(elements, std::int64_t{size_of(dtype)}, &bytes);
}

std::optional<Fold> Tensor::fold() const {
  if (is_empty()) return std::nullopt;
  std::vector<std::pair<std::int64_t, std::int64_t>> lines;  // strides and sizes
  for (std::size_t i = 0; i < rank; ++i) {
    if (sizes[i] > 1) lines.emplace_back(strides[i], sizes[i]);
  }
  if (batches > 1) lines.emplace_back(batch_stride, batches);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::int64_t span = 1;
  for (const auto& [stride, size] : lines) {
    if (stride < span) return Fold{stride, span};
    span += (size - 1) * stride;
  }
  return std::nullopt;
}

std::int64_t Tensor::rows() const {
  std::int64_t count = 1;
  for (std::size_t i = 1; i < rank; ++i) count *= sizes[i];
  return count;
}

std::int64_t Tensor::row_offset(std::int64_t row) const {
  std::int64_t offset = 0;
  for (std::size_t i = 1; i < rank; ++i) {
    offset += row % sizes[i] * strides[i];
    row /= sizes[i];
  }
  return offset + row * batch_stride;
}

void Tensors::refuse_one_more() {
  throw Error(ErrorCode::internal, fmt::format("an operation has at most {} operands, got {}",
                                               kMaxTensors, kMaxTensors + 1));
}

}  // namespace tessera
