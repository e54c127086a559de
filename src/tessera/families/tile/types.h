// The types that kernels multiply, add up and store.
#pragma once

#include <string>
#include <string_view>

#include "tessera/spec/target.h"

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

// Why no product is scaled and clamped so; empty where products are.
struct Scalars {
  DType out;
  float alpha, beta, clamp_lo, clamp_hi;
};
std::string scalars_reason(const Scalars& scalars);

// The CPU instruction that adds so many products of two operands of this type to each lane, with
// the type in which the lanes hold them; null when the target has none.
const Instruction* find_word_instruction(DType operand, DType acc, int products_per_lane,
                                         const Target& target);

}  // namespace tessera::tile
