// Sums of products as references make them: operands read fast, how far a kernel's sum may be from
// the exact one, what becomes of the sum until it is stored, and how far a stored element is off.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/families/tile/epilogue.h"

namespace tessera::tile {

// The elements of an operand. Types of one or two bytes are looked up in a table of all their
// values when there are many reads.
class Values {
 public:
  // tf32 is read as it is stored, as fp32. fp8: how floats of 8 bits are encoded.
  Values(DType dtype, const void* data, double reads, Fp8Encoding fp8 = Fp8Encoding::ocp);

  // Converts `count` elements: those at `at`, at + step, ...
  void read(std::int64_t at, std::int64_t step, std::int64_t count, double* to) const;
  double at(std::int64_t index) const {
    double value = 0;
    read(index, 1, 1, &value);
    return value;
  }

 private:
  DType dtype_;
  Fp8Encoding fp8_;
  int bytes_;
  const void* data_;
  std::vector<float> table_;
};

struct SumTypes {
  DType a, b, acc, out;
};

// What a sum is made of, in double.
struct Products {
  double count = 0;
  double sum = 0;
  double magnitude = 0;  // the sum of the products' magnitudes
  double operands = 0;   // no less than the sum of the operands' magnitudes where all are finite
};

// Adds the products x[i] * y[i].
void add_products(const double* x, const double* y, std::int64_t count, Products& all);

// The sum of products that a kernel may add in any order, in parts, fused or not.
Bounded sum_of(const SumTypes& types, const Products& products);

// What a kernel makes of a sum: epilogue(alpha * sum + beta * c, d), saturated for an int8 output.
// An int32 accumulator counts modulo 2^32. c is not read when beta is 0.
struct Finish {
  SumTypes types;
  double alpha, beta;
  EpilogueSteps steps;
};
Bounded finish_sum(const Finish& finish, Bounded sum, double c, const DValues& d);

// The error of `got` as a share of its tolerance; infinite where no share can be named.
double error_ratio(DType out, double got, const Bounded& x);

}  // namespace tessera::tile
