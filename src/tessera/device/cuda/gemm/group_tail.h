// Groups along k end anywhere within a tile of k. What the tiles in shared memory have beyond the
// end belongs to the next group. It is set to zero in both operands, because a NaN or an infinity
// times zero would reach the sum.
#pragma once

#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

__device__ __forceinline__ void load_piece(u32 from, u32 (&words)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_piece(u32 to, const u32 (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

// Keeps the first `bytes` of a piece of 16.
__device__ __forceinline__ void keep_bytes(u32 piece, int bytes) {
  u32 words[4] = {};
  if (bytes > 0) {
    load_piece(piece, words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int here = bytes - i * 4;
      if (here < 4) words[i] &= here <= 0 ? 0 : (1U << here * 8) - 1;
    }
  }
  store_piece(piece, words);
}

// Clears all beyond the first `left` of k of a tile (tma_tile.h). This is one of `threads` threads
// that share the work.
template <class Tile>
__device__ __forceinline__ void clear_beyond(u32 tile, int left, int thread, int threads) {
  constexpr int kSize = static_cast<int>(sizeof(typename Tile::Element));
  constexpr int kPieces = kLineBytes / 16;  // of a line
#pragma unroll 1
  for (int i = thread; i < Tile::kBytes / 16; i += threads) {
    const int line = i / kPieces % Tile::kLines;
    if constexpr (Tile::kAlongK) {
      const int slab = i / kPieces / Tile::kLines;
      const int piece = (i ^ line) % kPieces;  // as the swizzle has it
      const int keep = left * kSize - slab * kLineBytes - piece * 16;
      if (keep < 16) keep_bytes(tile + i * 16, keep);
    } else {
      if (line >= left) keep_bytes(tile + i * 16, 0);
    }
  }
}

}  // namespace tessera::device
