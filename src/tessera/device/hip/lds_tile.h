// Where the chunks of an operand's tile lie in LDS. A row of the tile is k in chunks of 16 bytes. A
// line of LDS is all banks: 8 chunks, and 16 on gfx950 (of which a write serves 8). The chunks of a
// line are exchanged by an exclusive or with a number of the line's, so that lanes that are served
// together, whether they read one chunk of several rows or write, use different banks.
//
// Served together are, of a read of 16 bytes, lanes 0-3 and 20-23 and so on (gfx950: 0-3, 12-15,
// 20-23, 24-27), of a write 8 neighbours. A lane that transposes (kRowsALane > 1) writes rows
// kRowsALane apart from those of its neighbour.
#pragma once

#include "tessera/device/hip/memory.h"

namespace tessera::device {

#if defined(__gfx950__)
inline constexpr int kChunksALine = 16;
#else
inline constexpr int kChunksALine = 8;
#endif

// kALine may be less than a whole line where writes matter more than reads.
template <int kRows, int kChunks, int kRowsALane, int kALine = kChunksALine>
struct LdsTile {
  static_assert((kChunks & (kChunks - 1)) == 0, "a row has a power of two of chunks");
  static constexpr int kBytes = kRows * kChunks * 16;
  static constexpr int kRowsALine = kChunks < kALine ? kALine / kChunks : 1;
  static constexpr int kMask = kALine - 1;

  __device__ __forceinline__ static int exchange(int line) {
    if constexpr (kRowsALine == 4) return -line & kMask;
    if constexpr (kALine == 8) {
      if constexpr (kRowsALane == 2 && kRowsALine == 1) return (line >> 1) + (line & 1) * 4 & kMask;
      if constexpr (kRowsALane == 4 && kRowsALine == 1) return (line >> 2) + (line & 3) * 2 & kMask;
      if constexpr (kRowsALane == 4) return (line >> 1) + (line & 1) * 2 & kMask;
    } else {
      if constexpr (kRowsALane == 2 && kRowsALine == 1) return (line >> 1) + (line & 1) * 8 & kMask;
      if constexpr (kRowsALane == 4 && kRowsALine == 1) {
        return -((line >> 2) + (line & 3) * 4) & kMask;
      }
      if constexpr (kRowsALane == 4) return -((line >> 1) + (line & 1) * 4) & kMask;
    }
    return line & kMask;
  }

  // After so many rows the exchange repeats.
  static constexpr int kPeriod = kRowsALine * kALine * (kRowsALine == 4 ? 1 : kRowsALane);

  // The place of a chunk, counted in chunks from the start of the tile.
  __device__ __forceinline__ static int place(int row, int chunk) {
    return (row * kChunks + chunk) ^ exchange(row / kRowsALine);
  }
  // The chunk of the tile that lies at a place, counted as row * kChunks + chunk.
  __device__ __forceinline__ static int chunk_at(int place) {
    return place ^ exchange(place / (kRowsALine * kChunks));
  }

  // The chunk `more_chunks` after `chunk`, `more_rows` rows below `row`, where both numbers are
  // known to the compiler and no bit of `more_chunks` is set in any `chunk`. Places then differ by
  // constants, of which one address is enough.
  __device__ __forceinline__ static int offset(int row, int chunk, int more_rows, int more_chunks) {
    const int from = place(row + more_rows % kPeriod, chunk) ^ more_chunks;
    return (from + more_rows / kPeriod * kPeriod * kChunks) * 16;
  }
};

}  // namespace tessera::device
