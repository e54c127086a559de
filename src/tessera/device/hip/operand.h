// What the loaders of operands share. A loader brings the tiles of one operand from memory to LDS,
// one after the other along k. Loader(operand, row, k_first, thread) starts at a tile.
// fetch(staged) requests the next one into registers. put(tile, staged) writes the oldest one that
// was requested, kAhead tiles before, to LDS. What does not exist becomes zero.
//
// Dwords that are aligned are loaded from a buffer, whose end the hardware checks. An operand whose
// dwords are not aligned is loaded by put(), element by element, in a loop that is not unrolled;
// its buffer is empty, so that the loop over tiles need not branch around the loads.
#pragma once

#include "tessera/device/hip/lds_tile.h"

namespace tessera::device {

// One operand of one batch: lines of memory that begin ld elements apart. It has `rows` rows (of A,
// columns of B) and `k` elements of each.
struct HipOperand {
  u64 address;
  i64 ld;
  int rows, k;
};

// Not 0 when lines at this address and distance, `line` bytes long, are no aligned dwords.
__device__ __forceinline__ u32 misalignment(u64 address, i64 pitch, i64 line) {
  return (static_cast<u32>(address) | static_cast<u32>(pitch) | static_cast<u32>(line)) & 3;
}

// The first `count` elements of a chunk from `from` on, `step` elements apart.
template <class T>
__device__ __forceinline__ Chunk gather_chunk(Global<T> from, i64 step, int count) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  unsigned __int128 all = 0;
#pragma unroll 1
  for (int i = count - 1; i >= 0; --i) {
    all = all << kBits | *reinterpret_cast<Global<WordBits<T>>>(from + i * step);
  }
  return bits<Chunk>(all);
}

}  // namespace tessera::device
