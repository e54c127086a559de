// The loader of an operand whose rows are contiguous (operand.h): a thread loads dwords of one or
// more neighbouring rows, of as many k as a chunk has, and transposes them into chunks.
#pragma once

#include "tessera/device/hip/operand.h"

namespace tessera::device {

// Chunks of kRows rows from the dwords of a chunk's k.
template <int kRows>
struct Transpose;

template <>
struct Transpose<1> {
  __device__ __forceinline__ static void apply(const u32 (&in)[4], Chunk (&out)[1]) {
    out[0] = Chunk{in[0], in[1], in[2], in[3]};
  }
};
template <>
struct Transpose<2> {
  __device__ __forceinline__ static void apply(const u32 (&in)[8], Chunk (&out)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[0][i] = __builtin_amdgcn_perm(in[2 * i + 1], in[2 * i], 0x05040100U);
      out[1][i] = __builtin_amdgcn_perm(in[2 * i + 1], in[2 * i], 0x07060302U);
    }
  }
};
template <>
struct Transpose<4> {
  __device__ __forceinline__ static void apply(const u32 (&in)[16], Chunk (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 low = __builtin_amdgcn_perm(in[4 * i + 1], in[4 * i], 0x05010400U);
      const u32 high = __builtin_amdgcn_perm(in[4 * i + 1], in[4 * i], 0x07030602U);
      const u32 next_low = __builtin_amdgcn_perm(in[4 * i + 3], in[4 * i + 2], 0x05010400U);
      const u32 next_high = __builtin_amdgcn_perm(in[4 * i + 3], in[4 * i + 2], 0x07030602U);
      out[0][i] = __builtin_amdgcn_perm(next_low, low, 0x05040100U);
      out[1][i] = __builtin_amdgcn_perm(next_low, low, 0x07060302U);
      out[2][i] = __builtin_amdgcn_perm(next_high, high, 0x05040100U);
      out[3][i] = __builtin_amdgcn_perm(next_high, high, 0x07060302U);
    }
  }
};

template <class T, int kTileRows, int kTileK, int kThreads, int kAhead>
class RowLoader {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kElements = 16 / kSize;  // of a chunk
  static constexpr int kChunks = kTileK / kElements;
  static constexpr int kPerWord = 4 / kSize;  // rows of a dword
  using Tile = LdsTile<kTileRows, kChunks, kPerWord>;
  static constexpr int kUnitsALine = kTileRows / kPerWord;
  static constexpr int kAll = kUnitsALine * kChunks;
  static constexpr int kLoads = (kAll + kThreads - 1) / kThreads;
  static_assert(kTileRows % kPerWord == 0, "a tile has whole dwords of rows");
  static constexpr int kInstructions = kLoads * kElements;  // that load a tile
  struct Staged {
    u32 words[kLoads][kElements];
  };

  __device__ __forceinline__ RowLoader(const HipOperand& o, int row, int k_first, int thread_index)
      : pitch(o.ld * kSize),
        bytes((o.k - 1 - k_first) * pitch + i64{o.rows - row} * kSize),
        rows_left(o.rows - row),
        left(o.k - k_first),
        thread(thread_index),
        misaligned(misalignment(o.address, pitch, i64{o.rows} * kSize)) {
    base = o.address + static_cast<u64>(k_first * pitch + i64{row} * kSize);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      offset[i] =
          has(i) ? chunk_of(i) * kElements * static_cast<int>(pitch) + row_of(i) * kSize : kNowhere;
    }
  }

  // Rows past the last one read what lies there, or zero; nobody looks at their sums.
  __device__ __forceinline__ void fetch(Staged& to) {
    const Chunk buffer = make_buffer(base, misaligned ? 0 : bytes);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int from = not_ahead(offset[i]);  // or all addresses would stay in registers
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const int at = has(i) ? from + k * static_cast<int>(pitch) : kNowhere;
        to.words[i][k] = raw_buffer_load_4(buffer, at, 0, 0);
      }
    }
    advance();
  }

  __device__ __forceinline__ void put(Shared* tile, Staged& from) const {
    if (__builtin_expect(is_set(misaligned), 0)) return put_plain(tile, kAhead);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (!has(i)) continue;
      Chunk chunks[kPerWord];
      Transpose<kPerWord>::apply(from.words[i], chunks);
#pragma unroll
      for (int row = 0; row < kPerWord; ++row) {
        store_shared(tile + Tile::place(row_of(i) + row, chunk_of(i)) * 16, chunks[row]);
      }
    }
  }

 private:
  __device__ __forceinline__ bool has(int i) const {
    return kAll % kThreads == 0 || thread + i * kThreads < kAll;
  }
  __device__ __forceinline__ int row_of(int i) const {
    return (thread + i * kThreads) % kUnitsALine * kPerWord;
  }
  __device__ __forceinline__ int chunk_of(int i) const {
    return (thread + i * kThreads) / kUnitsALine;
  }

  __device__ __forceinline__ void advance() {
    base += static_cast<u64>(kTileK * pitch);
    bytes -= kTileK * pitch;
    left -= kTileK;
  }

  // Loads and writes the tile that lies `back` tiles before the next one.
  __device__ __forceinline__ void put_plain(Shared* tile, int back) const {
    const u64 start = base - static_cast<u64>(back * kTileK * pitch);
    const int here = left + back * kTileK;
#pragma unroll 1
    for (int index = thread; index < kTileRows * kChunks; index += kThreads) {
      const int row = index % kTileRows, k = index / kTileRows * kElements;
      const int exist = row < rows_left ? here - k : 0;
      const auto from = reinterpret_cast<Global<T>>(start + static_cast<u64>(k * pitch)) + row;
      const Chunk chunk =
          gather_chunk<T>(from, pitch / kSize, exist < kElements ? exist : kElements);
      store_shared(tile + Tile::place(row, k / kElements) * 16, chunk);
    }
  }

  i64 pitch;            // bytes between lines
  u64 base;             // address of the next tile
  i64 bytes;            // from there to the end of the operand
  int rows_left, left;  // rows and k from the next tile's start on
  int thread;
  u32 misaligned;      // no dwords
  int offset[kLoads];  // of the thread's first dwords from base
};

}  // namespace tessera::device
