// Which strides of operands are refused.
#pragma once

#include <string>

#include "tessera/families/tensor.h"

namespace tessera::tile {

// Why no kernel takes such strides; empty where kernels do. Elements of an input may share a place.
std::string strides_reason(const Tensor& tensor);

}  // namespace tessera::tile
