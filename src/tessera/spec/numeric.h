// Conversion of stored elements to double and back, one element at a time: the slow, obvious
// version that references and file readers use.
#pragma once

#include <cstdint>

#include "tessera/spec/dtype.h"

#pragma GCC visibility push(default)
namespace tessera {

// The value of element `index` of an array of `dtype`. Exact for every dtype.
double load_element(DType dtype, const void* data, std::int64_t index,
                    Fp8Encoding fp8 = Fp8Encoding::ocp);

// Rounds to nearest, ties to even. Values past the largest finite one become infinity (formats that
// have none: NaN); integers saturate, and NaN becomes 0.
void store_element(DType dtype, void* data, std::int64_t index, double value,
                   Fp8Encoding fp8 = Fp8Encoding::ocp);

}  // namespace tessera
#pragma GCC visibility pop
