// Rows of a matrix that an index names, which threads copy into a tile that wgmma reads
// (tma_tile.h). A thread copies the same 16 bytes of each line of several rows.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

template <class Tile, int kThreads>
struct GatheredRows {
  static_assert(Tile::kAlongK, "the k of a row must be contiguous");
  static constexpr int kSize = static_cast<int>(sizeof(typename Tile::Element));
  static constexpr int kPieces = kLineBytes / 16;    // of a line
  static constexpr int kApart = kThreads / kPieces;  // rows between two of a thread
  static constexpr int kEach = (Tile::kLines + kApart - 1) / kApart;

  int thread;
  int rows[kEach];  // of the matrix; -1: none, and zeros take its place

  // row_of(i) is the row of the matrix for row i of the tile, or -1.
  template <class RowOf>
  __device__ __forceinline__ GatheredRows(int this_thread, const RowOf& row_of)
      : thread(this_thread) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int line = line_of(i);
      rows[i] = Tile::kLines % kApart == 0 || line < Tile::kLines ? row_of(line) : -1;
    }
  }

  // Copies step `step` of k, of `bytes` bytes in all, to the tile. Rows are `distance` bytes apart.
  __device__ __forceinline__ void fetch(u32 tile, const char* data, i64 distance, i64 bytes,
                                        int step) const {
    const int piece = thread % kPieces;
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      const i64 at = (i64{step} * Tile::kSlabs + slab) * kLineBytes + piece * 16;
      const int left = static_cast<int>(max(i64{0}, min(i64{16}, bytes - at)));
      const u32 to = tile + slab * Tile::kSlabBytes;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int line = line_of(i);
        if (Tile::kLines % kApart != 0 && line >= Tile::kLines) break;
        const bool is = rows[i] >= 0 && left > 0;
        const char* const from = is ? data + rows[i] * distance + at : data;
        copy_async<16>(to + line * kLineBytes + (piece ^ line % 8) * 16, from, is ? left : 0);
      }
    }
  }

 private:
  __device__ __forceinline__ int line_of(int i) const { return thread / kPieces + i * kApart; }
};

}  // namespace tessera::device
