// Declarations that the files about operands share.
#pragma once

#include <cstddef>

#include "tessera/spec/dtype.h"

namespace tessera::measure {

inline constexpr std::size_t kGuardBytes = 256;  // on either side; keeps the 64-byte alignment

// All-ones bytes are a NaN in every floating-point type.
inline unsigned char poison_byte(DType dtype) { return is_integer(dtype) ? 0x5a : 0xff; }

}  // namespace tessera::measure
