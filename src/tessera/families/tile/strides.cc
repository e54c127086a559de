#include "tessera/families/tile/strides.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::tile {
namespace {

struct Extremes {
  std::int64_t negative = 0;  // the one nearest to 0: the others may follow from it
  std::int64_t most = 0;
};

// Of the dimensions with more than one element.
Extremes extremes_of(const Tensor& tensor) {
  Extremes found;
  const auto look = [&found](std::int64_t size, std::int64_t stride) {
    if (size <= 1) return;
    const bool is_nearer = found.negative == 0 || stride > found.negative;
    if (stride < 0 && is_nearer) found.negative = stride;
    found.most = std::max(found.most, stride);
  };
  for (std::size_t i = 0; i < tensor.rank; ++i) look(tensor.sizes[i], tensor.strides[i]);
  look(tensor.batches, tensor.batch_stride);
  return found;
}

}  // namespace

std::string strides_reason(const Tensor& tensor) {
  const Extremes strides = extremes_of(tensor);
  if (strides.negative < 0) {
    return fmt::format("strides of {} must be at least 0, got {}", tensor.name, strides.negative);
  }
  if (tensor.is_too_long()) {
    return fmt::format("the last byte of {} must be below 2^63, got strides of up to {}",
                       tensor.name, strides.most);
  }
  const std::optional<Fold> fold = tensor.is_written() ? tensor.fold() : std::nullopt;
  if (!fold) return {};
  return fmt::format(
      "strides must not fold {} onto itself: {} is less than the {} elements that smaller strides "
      "span",
      tensor.name, fold->stride, fold->span);
}

std::optional<std::int64_t> common_distance(std::initializer_list<Dimension> dimensions,
                                            std::int64_t alone) {
  std::optional<std::int64_t> distance;
  std::int64_t count = 1;
  for (const auto [size, stride] : dimensions) {
    if (size == 1) continue;
    if (!distance) distance = stride;
    if (stride != *distance * count) return std::nullopt;
    count *= size;
  }
  return distance.value_or(alone);
}

}  // namespace tessera::tile
