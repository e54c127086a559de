// Operands of references, read fast.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/spec/dtype.h"

namespace tessera::tile {

// The elements of an operand. Types of one or two bytes are looked up in a table of all their
// values when there are many reads.
class Values {
 public:
  // tf32 is read as it is stored, as fp32.
  Values(DType dtype, const void* data, double reads);

  // Converts `count` elements: those at `at`, at + step, ...
  void read(std::int64_t at, std::int64_t step, std::int64_t count, double* to) const;
  double at(std::int64_t index) const {
    double value = 0;
    read(index, 1, 1, &value);
    return value;
  }

 private:
  DType dtype_;
  int bytes_;
  const void* data_;
  std::vector<float> table_;
};

}  // namespace tessera::tile
