// Counts of blocks.
#pragma once

#include <cstdint>

namespace tessera::tile {

// How many blocks of this size have room for so many.
constexpr std::int64_t ceil_div(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

}  // namespace tessera::tile
