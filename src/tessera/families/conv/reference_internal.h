// What a reference of a convolution keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/families/tile/epilogue.h"

namespace tessera::conv {

// The elements that are looked at: as many columns of each of some rows. A row is a run along the
// result's innermost dimension, see Tensor::rows, and each row has columns of its own.
struct Sample {
  std::vector<std::int64_t> rows;
  std::int64_t columns = 0;
  std::int64_t width = 0;  // of a row
  std::uint64_t seed = 0;

  // The i-th column of a row; `row` is its place in the list.
  std::int64_t column(std::size_t row, std::int64_t i) const;
};

struct SampledElements {
  Sample sample;
  std::vector<tile::Bounded> wanted;  // of the columns of each row
};

}  // namespace tessera::conv
