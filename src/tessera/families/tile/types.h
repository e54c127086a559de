// The types that kernels multiply, add up and store.
#pragma once

#include <string>
#include <string_view>

#include "tessera/spec/dtype.h"

namespace tessera::tile {

// What messages call the operands.
struct ProductNames {
  std::string_view a = "a", b = "b", out = "out", d = "d";
};

// The types of a product, of its sums, its output and the D tensors of its epilogue.
struct ProductTypes {
  DType a, b, acc, out, d;
  ProductNames names;
};

// Why no kernel computes such a product; empty where kernels do.
std::string types_reason(const ProductTypes& types);

}  // namespace tessera::tile
