// gfx950: the loader of an operand whose rows are contiguous (operand.h) that copies lines to LDS
// as they lie in memory. The reads from LDS transpose them (transposed_tile.h).
#pragma once

#include "tessera/device/hip/operand.h"
#include "tessera/device/hip/transposed_tile.h"

namespace tessera::device {

template <class T, int kTileRows, int kTileK, int kThreads>
class AnyRowLoader : public CopiedRows<kTileRows, kTileK, kThreads, static_cast<int>(sizeof(T))> {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T));
  using Base = CopiedRows<kTileRows, kTileK, kThreads, kSize>;
  using Tile = typename Base::Tile;

  __device__ __forceinline__ AnyRowLoader(const HipOperand& o, int row, int k_first,
                                          int thread_index)
      : pitch(o.ld * kSize),
        base(o.address + static_cast<u64>(k_first * pitch + i64{row} * kSize)),
        bytes((i64{o.k} - 1 - k_first) * pitch + i64{o.rows - row} * kSize),
        rows_left(o.rows - row),
        left(o.k - k_first),
        thread(thread_index),
        misaligned(misalignment(o.address, pitch, i64{o.rows} * kSize)) {
#pragma unroll
    for (int i = 0; i < Base::kLoads; ++i) {
      const int chunk = Tile::chunk_at(thread + i * kThreads);
      const int first = chunk % Base::kRowChunks * Base::kElements;
      offset[i] = first < rows_left
                      ? chunk / Base::kRowChunks * static_cast<int>(pitch) + first * kSize
                      : kNowhere;
    }
  }

  // Copies the next tile. Rows past the last one get what lies there, or zero; nobody looks at
  // their sums. Lines past the end of k lie past the end of the buffer.
  __device__ __forceinline__ void copy(Shared* tile, int wave) {
    if (__builtin_expect(misaligned != 0, 0)) {
      put_plain(tile);
      wait_for_loads<0>();  // whoever counts the copies under way knows nothing of these loads
    } else {
      const Chunk buffer = make_buffer(base, bytes);
#pragma unroll
      for (int i = 0; i < Base::kLoads; ++i) {
        copy_to_shared(buffer, Base::to(tile, wave, i), offset[i]);
      }
    }
    base += static_cast<u64>(kTileK * pitch);
    bytes -= kTileK * pitch;
    left -= kTileK;
  }

 private:
  // Loads the next tile element by element, in a loop that is not unrolled, and writes it to LDS.
  __device__ __forceinline__ void put_plain(Shared* tile) const {
#pragma unroll 1
    for (int place = thread; place < kTileK * Base::kRowChunks; place += kThreads) {
      const int chunk = Tile::chunk_at(place);
      const int line = chunk / Base::kRowChunks;
      const int row = chunk % Base::kRowChunks * Base::kElements;
      const int exist = rows_left - row;
      const int count = line >= left ? 0 : exist < Base::kElements ? exist : Base::kElements;
      const auto from = reinterpret_cast<Global<T>>(base + static_cast<u64>(line * pitch)) + row;
      store_shared(tile + place * 16, gather_chunk<T>(from, 1, count));
    }
  }

  i64 pitch;            // bytes between lines
  u64 base;             // address of the next tile
  i64 bytes;            // from there to the end of the operand
  int rows_left, left;  // rows and k from the next tile's start on
  int thread;
  u32 misaligned;            // no dwords
  int offset[Base::kLoads];  // of the thread's chunks from base
};

}  // namespace tessera::device
