// What kernels of the toy operation and their launch share: out[r][c] = in[r][c] * scale[c].
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// The one argument of every kernel. A change here raises the family's ABI number.
struct ToyArguments {
  i64 rows, columns;
  const float* in;
  const float* scale;  // one element for each column
  float* out;
  i64 ld_in, ld_out;  // elements between rows
};

}  // namespace tessera::device
