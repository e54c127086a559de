// Strides that follow from sizes.
#pragma once

#include <cstdint>
#include <limits>

#pragma GCC visibility push(default)
namespace tessera {

// A stride left at kPacked follows from the sizes: no gap between rows, columns or batches.
inline constexpr std::int64_t kPacked = std::numeric_limits<std::int64_t>::min();

}  // namespace tessera
#pragma GCC visibility pop
