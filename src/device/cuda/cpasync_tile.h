// One operand's tile in shared memory, and how the threads of a block bring it there with cp.async.
// A tile is lines of 16-byte chunks: a line is a row where k is contiguous, else one k. Chunks are
// swizzled within their line so that what a warp reads at once lies in different banks.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

__device__ __forceinline__ u32 address_in_shared(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

// kBytes to shared memory, of which the first `bytes` are read and the others zero.
template <int kBytes>
__device__ __forceinline__ void copy_async(u32 to, const void* from, int bytes) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(bytes)
                 : "memory");
  }
}
__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but the last `kPending` groups have arrived.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// A matrix in memory. `lines` and `line` count elements outside and along the contiguous side.
struct Source {
  const char* data;
  i64 line_bytes;  // from one line to the next
  int width;       // the widest copies that its alignment allows: 16, 8 or 4 bytes, 0: elements
};

template <class T>
__device__ __forceinline__ Source source_of(const void* data, i64 ld, i64 batch_stride, i64 batch) {
  constexpr i64 kSize = sizeof(T);
  const u64 bits = reinterpret_cast<u64>(data) | static_cast<u64>(ld * kSize) |
                   static_cast<u64>(batch_stride * kSize);
  const int width = (bits & 15) == 0 ? 16 : (bits & 7) == 0 ? 8 : (bits & 3) == 0 ? 4 : 0;
  return {static_cast<const char*>(data) + batch * batch_stride * kSize, ld * kSize, width};
}

constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int larger(int a, int b) { return a > b ? a : b; }

// Where things are in a tile of kRows rows (of A) or columns (of B) by kTileK.
template <class T, int kRows, int kTileK, bool kKContiguous>
struct TileShape {
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kPerChunk = 16 / kSize;
  static constexpr int kLines = kKContiguous ? kRows : kTileK;
  static constexpr int kChunks = (kKContiguous ? kTileK : kRows) / kPerChunk;  // of a line
  static constexpr int kBytes = kRows * kTileK * kSize;
  static_assert(kChunks > 0 && (kChunks & (kChunks - 1)) == 0,
                "a line of a tile must be 16 bytes times a power of two");

  // Read in 16-byte rows of 8 lines (ldmatrix), or in words of 8 rows by 4 k.
  static constexpr bool kInWords = !kKContiguous && kSize != 2;
  static constexpr int kWays = smaller(kChunks, 8);
  static constexpr int kLinesPerWay = larger(1, 8 / kChunks);

  // The byte at which chunk `chunk` of line `line` lies.
  static __device__ __forceinline__ u32 at(int line, int chunk) {
    int way = line / kLinesPerWay % kWays;
    if constexpr (kInWords) {
      const int fours = kSize == 1 ? line / 4 : line / kLinesPerWay;
      way = fours % larger(kWays / 2, 1) * 2 % kWays;
    }
    return static_cast<u32>((line * kChunks + (chunk ^ way)) * 16);
  }
};

// One thread's share of the copies of an operand's tiles, one tile of k after the other.
template <class T, class Shape, int kRows, int kTileK, bool kKContiguous, int kThreads>
class TileCopy {
 public:
  static_assert(kThreads % Shape::kChunks == 0, "the threads must share whole lines");

  // From row `row` on, of which `rows` exist.
  __device__ __forceinline__ TileCopy(const Source& source, i64 row, i64 rows, int thread)
      : width(source.width), line(thread / Shape::kChunks), chunk(thread % Shape::kChunks) {
    line_step = source.line_bytes * kLinesAtOnce;
    const i64 first = kKContiguous ? (row + line) * source.line_bytes
                                   : row * Shape::kSize + line * source.line_bytes;
    from = source.data + first + chunk * 16;
    tile_step = kKContiguous ? i64{kTileK} * Shape::kSize : source.line_bytes * kTileK;
    const i64 left = rows - row - (kKContiguous ? line : chunk * Shape::kPerChunk);
    rows_left = static_cast<int>(left < 0 ? 0 : left < kRows ? left : kRows);
  }

  // Fetches the next tile, in which `k_left` of k exist, to address `to`.
  __device__ __forceinline__ void fetch(u32 to, i64 k_left) {
    const int k_here = static_cast<int>(k_left < kTileK ? k_left : kTileK);
    if (width == 16) {
      fetch_chunks(to, k_here);
    } else {
      fetch_pieces(to, k_here);
    }
    from += tile_step;
  }

 private:
  static constexpr int kLinesAtOnce = kThreads / Shape::kChunks;
  static constexpr int kCopies = (Shape::kLines + kLinesAtOnce - 1) / kLinesAtOnce;
  static constexpr bool kUneven = Shape::kLines % kLinesAtOnce != 0;

  // How many elements of the chunk of copy `i` exist.
  __device__ __forceinline__ int present(int i, int k_here) const {
    const int along = kKContiguous ? k_here - chunk * Shape::kPerChunk : rows_left;
    const int across = kKContiguous ? rows_left : k_here - line;
    return across > i * kLinesAtOnce ? max(0, min(along, Shape::kPerChunk)) : 0;
  }
  __device__ __forceinline__ void fetch_chunks(u32 to, int k_here) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (kUneven && line + i * kLinesAtOnce >= Shape::kLines) break;
      const u32 place = to + Shape::at(line + i * kLinesAtOnce, chunk);
      copy_async<16>(place, from + i * line_step, present(i, k_here) * Shape::kSize);
    }
  }

  // Lines that start anywhere: by 8 or 4 bytes, or element by element.
  __device__ __forceinline__ void fetch_pieces(u32 to, int k_here) {
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      if (kUneven && line + i * kLinesAtOnce >= Shape::kLines) break;
      const u32 place = to + Shape::at(line + i * kLinesAtOnce, chunk);
      const char* piece = from + i * line_step;
      const int count = present(i, k_here);
      if (width == 0) {
        copy_elements(place, piece, count);
        continue;
      }
#pragma unroll
      for (int at = 0; at < 16; at += 8) {
        const int bytes = count * Shape::kSize - at;
        if (width == 8) {
          copy_async<8>(place + at, piece + at, max(0, min(bytes, 8)));
        } else {
          copy_async<4>(place + at, piece + at, max(0, min(bytes, 4)));
          copy_async<4>(place + at + 4, piece + at + 4, max(0, min(bytes - 4, 4)));
        }
      }
    }
  }

  static __device__ __forceinline__ void copy_elements(u32 to, const char* from, int count) {
    using Word = WordBits<T>;
    const Word* elements = reinterpret_cast<const Word*>(from);
    u32 words[4] = {};
#pragma unroll
    for (int e = 0; e < Shape::kPerChunk; ++e) {
      const u32 element = e < count ? u32{elements[e]} : 0;
      words[e * Shape::kSize / 4] |= element << (e * Shape::kSize % 4 * 8);
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  const char* from;  // this thread's first chunk of the next tile
  i64 line_step, tile_step;
  int width, line, chunk;
  int rows_left;  // that exist from this thread's first one
};

}  // namespace tessera::device
