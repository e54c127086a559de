// The loader of an operand whose k is contiguous (operand.h): a thread moves chunks of 16 bytes.
// With kDirect the hardware copies them to LDS in the order of the threads, so a thread chooses the
// chunk that belongs to its place.
#pragma once

#include "tessera/device/hip/operand.h"

namespace tessera::device {

template <class T, int kTileRows, int kTileK, int kThreads, int kAhead, bool kDirect>
class LineLoader {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kElements = 16 / kSize;  // of a chunk
  static constexpr int kChunks = kTileK / kElements;
  using Tile = LdsTile<kTileRows, kChunks, 1>;
  static constexpr int kAll = kTileRows * kChunks;
  static constexpr int kLoads = (kAll + kThreads - 1) / kThreads;
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0, "threads move whole rows");
  static constexpr int kInstructions = kLoads;  // that load a tile
  struct Staged {
    Chunk chunks[kLoads];
  };

  __device__ __forceinline__ LineLoader(const HipOperand& o, int row, int k_first, int thread_index)
      : pitch(o.ld * kSize),
        bytes((o.rows - 1 - row) * pitch + i64{o.k - k_first} * kSize),
        rows_left(o.rows - row),
        left(o.k - k_first),
        thread(thread_index),
        misaligned(misalignment(o.address, pitch, i64{o.k} * kSize)) {
    base = o.address + static_cast<u64>(row * pitch + i64{k_first} * kSize);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      offset[i] = row_of(i) * static_cast<int>(pitch) + k_of(i) * kSize;
    }
  }

  __device__ __forceinline__ void fetch(Staged& to) {
    const Chunk buffer = make_buffer(base, misaligned ? 0 : bytes);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      to.chunks[i] = raw_buffer_load_16(buffer, k_of(i) < left ? offset[i] : kNowhere, 0, 0);
    }
    advance();
  }

  __device__ __forceinline__ void put(Shared* tile, Staged& from) const {
    if (__builtin_expect(is_set(misaligned), 0)) return put_plain(tile, kAhead);
    const int here = left + kAhead * kTileK;
    if (__builtin_expect(is_cut(here), 0)) cut(from, here);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = Tile::offset(row_of(0), k_of(0) / kElements, i * kRowsAtOnce, 0);
      if (has(i)) store_shared(tile + at, from.chunks[i]);
    }
  }

  // Copies the next tile straight to LDS, where that is possible.
  __device__ __forceinline__ void copy(Shared* tile, int wave) {
    static_assert(!kDirect || kAll % kThreads == 0, "threads copy whole tiles");
    if (__builtin_expect(misaligned != 0 || is_cut(left), 0)) {
      put_plain(tile, 0);
      wait_for_loads<0>();  // whoever counts the copies under way knows nothing of these loads
    } else {
      const Chunk buffer = make_buffer(base, bytes);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        copy_to_shared(buffer, tile + (wave * 64 + i * kThreads) * 16,
                       k_of(i) < left ? offset[i] : kNowhere);
      }
    }
    advance();
  }

 private:
  // Whether a chunk of a tile with this much of k exists in part.
  static __device__ __forceinline__ bool is_cut(int here) {
    return here < kTileK && here % kElements != 0;
  }
  __device__ __forceinline__ bool has(int i) const {
    return kAll % kThreads == 0 || thread + i * kThreads < kAll;
  }
  __device__ __forceinline__ int index_of(int i) const {
    return kDirect ? Tile::chunk_at(thread + i * kThreads) : thread + i * kThreads;
  }
  __device__ __forceinline__ int row_of(int i) const { return index_of(i) / kChunks; }
  __device__ __forceinline__ int k_of(int i) const { return index_of(i) % kChunks * kElements; }

  __device__ __forceinline__ void advance() {
    base += kTileK * kSize;
    bytes -= kTileK * kSize;
    left -= kTileK;
  }

  // Makes the dwords zero that lie past the end of k.
  __device__ __forceinline__ void cut(Staged& staged, int here) const {
    constexpr int kPerWord = 4 / kSize;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const bool exists = k_of(0) + word * kPerWord < here;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        staged.chunks[i][word] = exists ? staged.chunks[i][word] : 0;
      }
    }
  }

  struct __attribute__((packed, may_alias)) Unaligned {
    Chunk chunk;
  };

  // Loads and writes the tile that lies `back` tiles before the next one.
  __device__ __forceinline__ void put_plain(Shared* tile, int back) const {
    const u64 start = base - static_cast<u64>(back * kTileK * kSize);
    const int here = left + back * kTileK;
#pragma unroll 1
    for (int index = thread; index < kAll; index += kThreads) {
      const int row = index / kChunks, k = index % kChunks * kElements;
      const int count = row < rows_left ? here - k : 0;
      const auto from = reinterpret_cast<Global<T>>(start + static_cast<u64>(row * pitch)) + k;
      Chunk chunk;
      if (count >= kElements) {
        chunk = reinterpret_cast<Global<Unaligned>>(from)->chunk;
      } else {
        chunk = gather_chunk<T>(from, 1, count);
      }
      store_shared(tile + Tile::place(row, k / kElements) * 16, chunk);
    }
  }

  i64 pitch;            // bytes between lines
  u64 base;             // address of the next tile
  i64 bytes;            // from there to the end of the operand
  int rows_left, left;  // rows and k from the next tile's start on
  int thread;
  u32 misaligned;      // no dwords
  int offset[kLoads];  // of the thread's chunks from base
};

}  // namespace tessera::device
