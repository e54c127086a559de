// Declarations that the files about operands share.
#pragma once

#include <cstddef>

#include "tessera/spec/dtype.h"

namespace tessera::measure {

inline constexpr std::size_t kGuardBytes = 256;  // on either side; keeps the 64-byte alignment

// All-ones bytes are a NaN in every floating-point type but those with one NaN only.
inline unsigned char poison_byte(DType dtype, Fp8Encoding fp8) {
  if (is_integer(dtype)) return 0x5a;
  return size_of(dtype) == 1 && fp8 == Fp8Encoding::fnuz ? 0x80 : 0xff;
}

}  // namespace tessera::measure
