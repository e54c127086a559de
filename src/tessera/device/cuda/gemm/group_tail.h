// How tiles that the copy engine brought are cleared beyond a group's end along k.
#pragma once

#include "tessera/device/cuda/gemm/clear_k.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

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
