// Groups along k end anywhere within a tile of k. What the tiles in shared memory have beyond the
// end belongs to the next group. It is set to zero in both operands, because a NaN or an infinity
// times zero would reach the sum.
#pragma once

#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

__device__ __forceinline__ void clear_piece(u32 piece) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(piece), "r"(0) : "memory");
}

// Clears all beyond the first `left` of k of a tile (tma_tile.h) whose lines go along rows or
// columns. This is one of `threads` threads that share the work.
template <class Tile>
__device__ __forceinline__ void clear_beyond(u32 tile, int left, int thread, int threads) {
  static_assert(!Tile::kAlongK, "groups begin anywhere along k, and lines do not");
  constexpr int kPieces = kLineBytes / 16;  // of a line
#pragma unroll 1
  for (int i = thread; i < Tile::kBytes / 16; i += threads) {
    if (i / kPieces % Tile::kLines >= left) clear_piece(tile + i * 16);
  }
}

}  // namespace tessera::device
