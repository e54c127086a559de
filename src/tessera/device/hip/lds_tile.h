// Where the chunks of an operand's tile lie in LDS. A row of the tile is k in chunks of 16 bytes, a
// line is 8 chunks: a row, several rows or a part of one. The chunks of a line are exchanged by an
// exclusive or with a number of the line's, so that lanes that are served together use different
// banks, whether they read one chunk of several rows or write.
//
// Served together are, of a read of 16 bytes, lanes 0-3 and 20-23 and so on, by 32 banks (gfx950:
// 0-3, 12-15, 20-23 and 24-27, by 64), of a write 8 neighbours. A lane that transposes
// (kRowsALane > 1) writes rows kRowsALane apart from its neighbour's rows. The numbers below were
// found by trying; they are good for all targets.
#pragma once

#include "tessera/device/hip/memory.h"

namespace tessera::device {

template <int kRows, int kChunks, int kRowsALane>
struct LdsTile {
  static_assert((kChunks & (kChunks - 1)) == 0, "a row has a power of two of chunks");
  static constexpr int kBytes = kRows * kChunks * 16;
  static constexpr int kRowsALine = kChunks < 8 ? 8 / kChunks : 1;
  static constexpr int kExchanged = kChunks < 16 ? 8 : 16;  // chunks among which one changes place
  static constexpr bool kFar = kRowsALane == 4 && kChunks >= 8;
  // After so many rows the exchange repeats.
  static constexpr int kPeriod = kRowsALine * kExchanged * (kFar ? 16 : 2);

  __device__ __forceinline__ static int exchange(int line) {
    const int number = line ^ line >> 1 ^ (kFar ? line >> 4 : 0);
    return number & (kExchanged - 1);
  }

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
