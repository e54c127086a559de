// Groups along k begin and end anywhere within a tile of k. What the tiles in shared memory have
// ahead of the group or behind it belongs to others. It is set to zero in both operands, because a
// NaN or an infinity times zero would reach the sum.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

inline constexpr int kPieceBytes = 16;

__device__ __forceinline__ void clear_piece(u32 piece) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(piece), "r"(0) : "memory");
}

// Clears the bytes of a piece but those from `first` up to, but not including, `last`. Both may lie
// outside of it.
__device__ __forceinline__ void clear_but(u32 piece, int first, int last) {
  if (first <= 0 && last >= kPieceBytes) return;
  if (first >= kPieceBytes || last <= 0) return clear_piece(piece);
#pragma unroll 1
  for (int i = 0; i < kPieceBytes; ++i) {
    if (i >= first && i < last) continue;
    asm volatile("st.shared.b8 [%0], %1;" ::"r"(piece + i), "r"(0) : "memory");
  }
}

// Clears the first `count` of k of a tile of bytes (cpasync_tile.h). This is one of `threads`
// threads that share the work.
template <class Shape, bool kAlongK>
__device__ __forceinline__ void clear_first(u32 tile, int count, u32 thread, u32 threads) {
  static_assert(Shape::kSize == 1, "elements are bytes");
#pragma unroll 1
  for (u32 i = thread; i < Shape::kBytes / kPieceBytes; i += threads) {
    const u32 line = i / Shape::kChunks;
    const u32 chunk = i % Shape::kChunks;
    const int left = kAlongK ? count - static_cast<int>(chunk) * kPieceBytes
                     : static_cast<int>(line) < count ? kPieceBytes
                                                      : 0;
    clear_but(tile + Shape::at(line, chunk), left, kPieceBytes);
  }
}

}  // namespace tessera::device
