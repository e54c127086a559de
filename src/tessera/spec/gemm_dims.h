// The dimensions of a contraction, a product of tensors of any number of dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/spec/epilogue.h"
#include "tessera/spec/packed.h"

#pragma GCC visibility push(default)
namespace tessera {

// Which operands have the dimension. g: A, B and out; m: A and out; n: B and out; k: A and B, over
// which products are added up. C and D tensors have the dimensions that out has.
enum class GemmDimKind : std::uint8_t { g, m, n, k };
std::string_view to_string(GemmDimKind kind);

// Strides count elements and are at least 0; those of operands without the dimension are 0.
struct GemmDim {
  std::int64_t size = 1;
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t out = 0;
  std::int64_t c = kPacked;                                                  // packed: as out
  std::array<std::int64_t, kMaxD> d = {kPacked, kPacked, kPacked, kPacked};  // packed: as out
  GemmDimKind kind = GemmDimKind::g;
  friend bool operator==(const GemmDim&, const GemmDim&) = default;
};

inline constexpr std::size_t kMostDims = 8;

// In the order g, m, n, k, and within a kind from the outermost to the innermost dimension.
struct GemmDims {
  std::uint8_t count = 0;  // of `all`, the first `count` exist
  std::array<GemmDim, kMostDims> all{};
  const GemmDim* begin() const { return all.data(); }
  const GemmDim* end() const { return all.data() + count; }
  friend constexpr bool operator==(const GemmDims& x, const GemmDims& y) {
    if (x.count != y.count) return false;
    for (std::size_t i = 0; i < x.count; ++i) {
      if (!(x.all[i] == y.all[i])) return false;
    }
    return true;
  }
};

// "g8:64:64:4096,m128:512:64,n32:512:1,k64:1:1", or "none": the kind, the size and the strides, of
// A where it has the dimension, of B likewise, of out, of C, of D0 to D3. "-" is packed, and packed
// strides at the end are left out. Lossless.
std::string to_string(const GemmDims& dims);
// Throws Error{parse_error} with the dimension that is wrong.
GemmDims parse_gemm_dims(std::string_view text);

}  // namespace tessera
#pragma GCC visibility pop
