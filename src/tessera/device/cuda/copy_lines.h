// Copies matrices to aligned rows, unchanged or transposed, with all threads of a grid.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// An operand: `lines` runs of `line` contiguous elements in each batch.
template <class T>
struct Lines {
  const void* from;
  bool in_array;  // `from` is an array of pointers to the batches
  i64 line, lines, ld;
  i64 batches, batch_stride;
  char* to;
  i64 to_ld, to_batch_stride;  // elements; to_ld is a multiple of 16 bytes

  __device__ __forceinline__ const T* batch_at(i64 batch) const {
    return matrix_of<T>(from, batch_stride, batch, in_array);
  }
};

// Copies lines unchanged. A warp moves 2 KB of a line at a time, or several short lines.
template <class T>
struct CopyLines {
  static constexpr int kPieces = 4;  // pieces of 16 bytes that a thread loads at a time
  static constexpr int kPiecesPerWarp = 32 * kPieces;
  static constexpr int kSize = static_cast<int>(sizeof(T));

  static __device__ __forceinline__ void run(const Lines<T>& x) {
    const i64 pieces = (x.line * kSize + 15) / 16;
    if (pieces <= kShort) return run_short(x, static_cast<int>(pieces));
    const i64 segments = (pieces + kPiecesPerWarp - 1) / kPiecesPerWarp;
    const i64 units = x.batches * x.lines * segments;
    const i64 step = i64{gridDim.x} * (blockDim.x / 32);
    i64 unit = i64{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
    for (; unit < units; unit += step) {
      const i64 line = unit / segments;
      copy(x, line / x.lines, line % x.lines, unit % segments * kPiecesPerWarp, pieces);
    }
  }

  static constexpr int kShort = 16;  // a line of at most so many pieces does not get a whole warp

  static __device__ __forceinline__ void run_short(const Lines<T>& x, int pieces) {
    int width = 1;  // threads for a line
    while (width < pieces) width *= 2;
    const i64 at_once = blockDim.x / width;
    const int piece = threadIdx.x % width;
    i64 line = blockIdx.x * at_once + threadIdx.x / width;
    for (; line < x.batches * x.lines; line += gridDim.x * at_once) {
      if (piece >= pieces) continue;
      const i64 batch = line / x.lines;
      const T* begin = x.batch_at(batch);
      const T* from = begin + line % x.lines * x.ld;
      const T* end = begin + (x.lines - 1) * x.ld + x.line;
      u32 words[4];
      load(reinterpret_cast<const char*>(from) + piece * 16, reinterpret_cast<const char*>(begin),
           reinterpret_cast<const char*>(end), words);
      char* to = x.to + (batch * x.to_batch_stride + line % x.lines * x.to_ld) * kSize;
      store_global(to + piece * 16, words);
    }
  }

  static __device__ __forceinline__ void copy(const Lines<T>& x, i64 batch, i64 line, i64 first,
                                              i64 pieces) {
    const char* begin = reinterpret_cast<const char*>(x.batch_at(batch));
    const char* end = begin + ((x.lines - 1) * x.ld + x.line) * kSize;
    const char* from = begin + line * x.ld * kSize;
    char* to = x.to + (batch * x.to_batch_stride + line * x.to_ld) * kSize;
    u32 words[kPieces][4];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const i64 at = (first + i * 32 + threadIdx.x % 32) * 16;
      if (at < pieces * 16) load(from + at, begin, end, words[i]);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const i64 at = (first + i * 32 + threadIdx.x % 32) * 16;
      if (at < pieces * 16) store_global(to + at, words[i]);
    }
  }

  // Loads 16 bytes at any multiple of the element's size, by loading the two aligned 16 bytes
  // around them and shifting. Bytes behind the line's end do not matter, but their memory may not
  // exist.
  static __device__ __forceinline__ void load(const char* from, const char* begin, const char* end,
                                              u32 (&words)[4]) {
    const u32 excess = static_cast<u32>(reinterpret_cast<u64>(from)) % 16;
    const char* aligned = from - excess;
    if (aligned >= begin && aligned + 32 <= end) {
      u32 w[8];
      load_global_once(aligned, w);
      load_global_once(aligned + 16, w + 4);
      shift_chunk(w, excess, words);
    } else {
      load_elements(from, end, words);
    }
  }

  static __device__ __forceinline__ void load_elements(const char* from, const char* end,
                                                       u32 (&words)[4]) {
    using Bits = WordBits<T>;
    constexpr int kPerWord = 4 / kSize;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = 0;
#pragma unroll
      for (int j = 0; j < kPerWord; ++j) {
        const char* at = from + i * 4 + j * kSize;
        if (at < end) words[i] |= u32{*reinterpret_cast<const Bits*>(at)} << (j * kSize * 8);
      }
    }
  }
};

// Transposes lines: to[x][y] = from[y][x], in squares through shared memory.
template <class T>
struct TransposeLines {
  static constexpr int kSide = 64;
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kPerPiece = 16 / kSize;
  static constexpr int kPitch = kSide + 4 / kSize;  // odd number of words: few bank conflicts
  using Bits = WordBits<T>;

  static __device__ __forceinline__ void run(const Lines<T>& x) {
    __shared__ __align__(16) Bits square[kSide * kPitch];
    const i64 across = (x.line + kSide - 1) / kSide;
    const i64 down = (x.lines + kSide - 1) / kSide;
    for (i64 unit = blockIdx.x; unit < x.batches * across * down; unit += gridDim.x) {
      const i64 batch = unit / (across * down);
      const i64 column = unit % across * kSide;
      const i64 row = unit / across % down * kSide;
      if constexpr (kSize == 1) {
        read_fours(x, batch, row, column, reinterpret_cast<u32*>(square));
      } else {
        read(x, batch, row, column, square);
      }
      __syncthreads();
      write(x, batch, row, column, square);
      __syncthreads();
    }
  }

  static __device__ __forceinline__ void read(const Lines<T>& x, i64 batch, i64 row, i64 column,
                                              Bits* square) {
    const Bits* from = reinterpret_cast<const Bits*>(x.batch_at(batch));
#pragma unroll 8
    for (int i = threadIdx.x; i < kSide * kSide; i += blockDim.x) {
      const i64 at_row = row + i / kSide;
      const i64 at_column = column + i % kSide;
      const bool inside = at_row < x.lines && at_column < x.line;
      square[i % kSide * kPitch + i / kSide] = inside ? from[at_row * x.ld + at_column] : Bits{};
    }
  }

  // For elements of one byte: each of 256 threads reads 4 bytes of 4 lines and transposes them in
  // registers.
  static __device__ __forceinline__ void read_fours(const Lines<T>& x, i64 batch, i64 row,
                                                    i64 column, u32* square) {
    constexpr int kFours = kSide / 4;
    const int across = threadIdx.x % kFours * 4;
    const int down = threadIdx.x / kFours;
    const u8* from =
        reinterpret_cast<const u8*>(x.batch_at(batch)) + (row + down * 4) * x.ld + column + across;
    const i64 left = x.line - column - across;
    u32 lines[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = row + down * 4 + i < x.lines;
      lines[i] = inside ? load_four(from + i * x.ld, left) : 0;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 pick = 0x40 + i * 0x11;  // byte i of the first word, then of the second
      const u32 upper = __byte_perm(lines[0], lines[1], pick);
      const u32 lower = __byte_perm(lines[2], lines[3], pick);
      square[(across + i) * (kPitch / 4) + down] = __byte_perm(upper, lower, 0x5410);
    }
  }

  static __device__ __forceinline__ u32 load_four(const u8* from, i64 left) {
    if (left >= 4 && reinterpret_cast<u64>(from) % 4 == 0) {
      return *reinterpret_cast<const u32*>(from);
    }
    u32 four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) four |= u32{from[i]} << (8 * i);
    }
    return four;
  }

  static __device__ __forceinline__ void write(const Lines<T>& x, i64 batch, i64 row, i64 column,
                                               const Bits* square) {
    constexpr int kPieces = kSide / kPerPiece;
    for (int i = threadIdx.x; i < kSide * kPieces; i += blockDim.x) {
      const int line = i / kPieces;
      const i64 along = row + i % kPieces * kPerPiece;
      if (column + line >= x.line || along >= x.to_ld) continue;
      const Bits* piece = square + line * kPitch + i % kPieces * kPerPiece;
      u32 words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = reinterpret_cast<const u32*>(piece)[j];
      store_global(x.to + (batch * x.to_batch_stride + (column + line) * x.to_ld + along) * kSize,
                   words);
    }
  }
};

}  // namespace tessera::device
