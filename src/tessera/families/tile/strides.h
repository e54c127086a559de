// Which strides of operands are refused, and which dimensions can be walked as one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "tessera/families/tensor.h"

namespace tessera::tile {

// Why no kernel takes such strides; empty where kernels do. Elements of an input may share a place.
std::string strides_reason(const Tensor& tensor);

struct Dimension {
  std::int64_t size, stride;
};
// The distance between neighbours when the dimensions, innermost first, are walked as one; nothing
// where no distance is common. It is 0 where all elements share a place, and `alone` where there is
// only one element.
std::optional<std::int64_t> common_distance(std::initializer_list<Dimension> dimensions,
                                            std::int64_t alone);

}  // namespace tessera::tile
