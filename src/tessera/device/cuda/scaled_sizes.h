// How a tmaws kernel with scales of blocks keeps them in shared memory. These are plain functions
// on numbers, for host and device.
#pragma once

#include "tessera/device/cuda/tile_sizes.h"

namespace tessera::device {

inline constexpr int kScaledDepth = 128;  // elements along k of a block, and of a stage

// The tile's rows and columns, and how many rows of P and of Q share a scale: 1 or 128. part_q:
// where the tile has rows of two halves of Q by turns, how many it has one behind the other, each
// time from a multiple of that on; else 0.
struct ScaledShape {
  int tile_m, tile_n;
  int rows_p, rows_q;
  int part_q = 0;
};

// So many rows of the tile have one place, and there are so many places. Numbers of places are
// even, so that two neighbours can be loaded at a time.
struct ScaledSizes {
  int unit_p, unit_q;
  int places_p, places_q;
  int stage_bytes;
};
constexpr int unit_of_part(int part) { return least_of(part & -part, kWgmmaRows); }
constexpr ScaledSizes scaled_sizes(const ScaledShape& s) {
  const int unit_p = s.rows_p == 1 ? 1 : kWgmmaRows;
  const bool one_q = s.tile_n > 0 && s.rows_q % s.tile_n == 0;
  const int shared_q = s.part_q > 0 ? unit_of_part(s.part_q) : one_q ? s.tile_n : 8;
  const int unit_q = s.rows_q == 1 ? 1 : shared_q;
  const int places_p = rounded_up(s.tile_m / unit_p, 2);
  const int places_q = rounded_up(s.tile_n / unit_q, 2);
  return {unit_p, unit_q, places_p, places_q, (places_p + places_q) * 4};
}

}  // namespace tessera::device
