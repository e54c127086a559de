// Brings the tiles of an operand whose k is contiguous from memory to LDS, one after the other
// along k, through registers. Rows begin at any address. Chunks of 16 bytes are loaded from a
// buffer where all dwords are aligned, which the hardware asks for; otherwise from plain memory.
#pragma once

#include "tessera/device/hip/lds_tile.h"

namespace tessera::device {

// One operand of one batch: `rows` lines of `k` elements, ld apart.
struct HipOperand {
  const void* data;
  i64 ld;
  int rows, k;
};

template <class T, int kTileRows, int kTileK, int kThreads>
class LineLoader {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kElements = 16 / kSize;  // of a chunk
  static constexpr int kChunks = kTileK / kElements;
  using Tile = LdsTile<kTileRows, kChunks, 1>;
  static constexpr int kAll = kTileRows * kChunks;
  static constexpr int kLoads = (kAll + kThreads - 1) / kThreads;
  static constexpr bool kWhole = kAll % kThreads == 0;
  struct Staged {
    Chunk chunks[kLoads];
    int left;  // elements of k from the tile's start on
  };

  // Starts at the tile of `row` and `k_first`.
  __device__ __forceinline__ LineLoader(const HipOperand& o, int row, int k_first, int thread)
      : thread_(thread), rows_left(o.rows - row), left(o.k - k_first), pitch(o.ld * kSize) {
    base = bits<u64>(o.data) + static_cast<u64>(row * pitch + i64{k_first} * kSize);
    bytes = (o.rows - 1 - row) * pitch + i64{left} * kSize;
    in_dwords =
        ((bits<u64>(o.data) | static_cast<u64>(pitch) | static_cast<u64>(o.k) * kSize) & 3) == 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      offset[i] = row_of(i) * static_cast<int>(pitch) + k_of(i) * kSize;
  }

  // Requests the next tile. What does not exist is zero, also when the tile is past the end.
  __device__ __forceinline__ void fetch(Staged& to) {
    to.left = left;
    if (in_dwords) {
      const Chunk buffer = make_buffer(base, bytes);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const bool exists = k_of(i) < left && has(i);
        to.chunks[i] = raw_buffer_load_16(buffer, exists ? offset[i] : kNowhere, 0, 0);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int count = has(i) && row_of(i) < rows_left ? left - k_of(i) : 0;
        to.chunks[i] =
            load_plain(reinterpret_cast<const T*>(base + static_cast<u32>(offset[i])), count);
      }
    }
    base += kTileK * kSize;
    bytes -= kTileK * kSize;
    left -= kTileK;
  }

  __device__ __forceinline__ void put(Shared* tile, Staged& from) const {
    if (from.left < kTileK && from.left % kElements != 0) cut(from);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int index = thread_ + i * kThreads;
      if (has(i)) Tile::store(tile, index / kChunks, index % kChunks, from.chunks[i]);
    }
  }

 private:
  __device__ __forceinline__ bool has(int i) const {
    return kWhole || thread_ + i * kThreads < kAll;
  }
  __device__ __forceinline__ int row_of(int i) const { return (thread_ + i * kThreads) / kChunks; }
  __device__ __forceinline__ int k_of(int i) const {
    return (thread_ + i * kThreads) % kChunks * kElements;
  }

  // Makes the dwords zero that lie past the end of k.
  __device__ __forceinline__ void cut(Staged& staged) const {
    constexpr int kPerWord = 4 / kSize;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        if (k_of(i) + word * kPerWord >= staged.left) staged.chunks[i][word] = 0;
      }
    }
  }

  // The first `count` elements from `from` on, which may have the alignment of one element only.
  __device__ __forceinline__ static Chunk load_plain(const T* from, int count) {
    Chunk chunk = 0;
    if (count >= kElements) {
      __builtin_memcpy(&chunk, from, 16);
    } else {
      unsigned __int128 all = 0;
#pragma unroll 1
      for (int i = count - 1; i >= 0; --i) {
        all = all << (kSize * 8) | bits<WordBits<T>>(from[i]);
      }
      chunk = bits<Chunk>(all);
    }
    return chunk;
  }

  int thread_;
  int rows_left;  // rows from the tile's first one on
  int left;       // elements of k from the next tile on
  i64 pitch;
  u64 base;   // address of the next tile
  i64 bytes;  // from there to the end of the operand
  bool in_dwords;
  int offset[kLoads];  // of the thread's chunks from base
};

}  // namespace tessera::device
