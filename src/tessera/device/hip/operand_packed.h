// The loader of an operand that was packed ahead (operand.h), and how it is packed: tile after
// tile, each as it lies in LDS, [batch][tile of rows][tile of k]. What does not exist is zero.
#pragma once

#include "tessera/device/hip/operand.h"

namespace tessera::device {

// Its operand's ld counts tiles: the tiles of k in a row of tiles.
template <class T, int kTileRows, int kTileK, int kThreads, int kAhead>
class PackedLoader {
 public:
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));  // of a chunk
  static constexpr int kChunks = kTileK / kElements;
  using Tile = LdsTile<kTileRows, kChunks, 1>;
  static constexpr int kAll = kTileRows * kChunks;
  static constexpr int kLoads = (kAll + kThreads - 1) / kThreads;
  static constexpr int kInstructions = kLoads;  // that load a tile
  struct Staged {
    Chunk chunks[kLoads];
  };

  __device__ __forceinline__ PackedLoader(const HipOperand& o, int row, int k_first, int index)
      : base(o.address +
             static_cast<u64>((row / kTileRows * o.ld + k_first / kTileK) * Tile::kBytes)),
        left(o.k - k_first),
        thread(index) {}

  __device__ __forceinline__ void fetch(Staged& to) {
    const Chunk buffer = next_buffer();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      to.chunks[i] = raw_buffer_load_16(buffer, (thread + i * kThreads) * 16, 0, 0);
    }
  }

  __device__ __forceinline__ void put(Shared* tile, Staged& from) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (kAll % kThreads == 0 || thread + i * kThreads < kAll) {
        store_shared(tile + (thread + i * kThreads) * 16, from.chunks[i]);
      }
    }
  }

  // Copies the next tile straight to LDS.
  __device__ __forceinline__ void copy(Shared* tile, int wave) {
    const Chunk buffer = next_buffer();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      copy_to_shared(buffer, tile + (wave * 64 + i * kThreads) * 16, (thread + i * kThreads) * 16);
    }
  }

 private:
  __device__ __forceinline__ Chunk next_buffer() {
    const Chunk buffer = make_buffer(base, left > 0 ? Tile::kBytes : 0);
    base += Tile::kBytes;
    left -= kTileK;
    return buffer;
  }

  u64 base;  // address of the next tile
  int left;  // elements of k from there on
  int thread;
};

// Writes packed operands. A thread writes a chunk at a time.
template <class T, int kTileRows, int kTileK, bool kKContiguous>
struct OperandPacking {
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  static constexpr int kChunks = kTileK / kElements;
  using Tile = LdsTile<kTileRows, kChunks, 1>;
  static constexpr int kAll = kTileRows * kChunks;

  struct Matrices {
    const T* data;
    i64 ld, batch_stride, rows, k, batches;
  };
  static __device__ __forceinline__ i64 row_tiles(i64 rows) {
    return (rows + kTileRows - 1) / kTileRows;
  }
  static __device__ __forceinline__ i64 k_tiles(i64 k) { return (k + kTileK - 1) / kTileK; }

  // Writes the chunks first, first + step, ... of all matrices.
  static __device__ __forceinline__ void pack(const Matrices& m, void* packed, i64 first,
                                              i64 step) {
    const i64 across = k_tiles(m.k), down = row_tiles(m.rows);
#pragma unroll 1
    for (i64 i = first; i < m.batches * down * across * kAll; i += step) {
      const i64 tile = i / kAll;
      const u32 at = static_cast<u32>(Tile::chunk_at(static_cast<int>(static_cast<u64>(i) % kAll)));
      const i64 row = tile / across % down * kTileRows + at / kChunks;
      const i64 k = tile % across * kTileK + at % kChunks * kElements;
      const T* from = m.data + tile / across / down * m.batch_stride +
                      (kKContiguous ? row * m.ld + k : k * m.ld + row);
      const i64 left = row < m.rows ? m.k - k : 0;
      const int count = static_cast<int>(left < 0 ? 0 : left < kElements ? left : kElements);
      static_cast<Chunk*>(packed)[i] =
          gather_chunk<T>((Global<T>)from, kKContiguous ? 1 : m.ld, count);
    }
  }
};

}  // namespace tessera::device
