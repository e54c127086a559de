// One operand's tile in shared memory, and how the threads of a block bring it there with cp.async.
// A tile consists of lines of 16-byte chunks. A line is a row when k is contiguous, otherwise it is
// one k. Chunks are swizzled within their line, so that a warp reads from different banks.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// Copies kBytes to shared memory. The first `bytes` are read, the others become zero.
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
// Waits until all but the last `kPending` groups have arrived.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Arrives at the barrier when all copies that this thread has asked for are there. The thread is
// one of those that the barrier expects.
__device__ __forceinline__ void copies_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// A matrix in memory. `lines` and `line` count elements outside and along the contiguous side.
struct Source {
  const char* data;
  const char* end;
  i64 line_bytes;  // from one line to the next
  int width;       // bytes of the widest copy that the alignment allows: 16, 8, 4; 0: none
};

// One batch of an operand, of `lines` lines of `line` elements.
struct OperandSize {
  i64 lines, line;
};
template <class T>
__device__ __forceinline__ Source source_of(const T* data, i64 ld, const OperandSize& size) {
  constexpr i64 kSize = sizeof(T);
  const char* first = reinterpret_cast<const char*>(data);
  const u64 bits = reinterpret_cast<u64>(first) | static_cast<u64>(ld * kSize);
  const int width = (bits & 15) == 0 ? 16 : (bits & 7) == 0 ? 8 : (bits & 3) == 0 ? 4 : 0;
  return {first, first + ((size.lines - 1) * ld + size.line) * kSize, ld * kSize, width};
}

__device__ __forceinline__ void load_chunk(const char* from, u32* words) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(from)
               : "memory");
}
__device__ __forceinline__ void store_chunk(u32 to, const u32 (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int larger(int a, int b) { return a > b ? a : b; }

// The layout of a tile of kRows rows (of A) or columns (of B) by kTileK.
template <class T, int kRows, int kTileK, bool kKContiguous>
struct TileShape {
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kPerChunk = 16 / kSize;
  static constexpr int kLines = kKContiguous ? kRows : kTileK;
  static constexpr int kChunks = (kKContiguous ? kTileK : kRows) / kPerChunk;  // of a line
  static constexpr int kBytes = kRows * kTileK * kSize;
  static_assert(kChunks > 0 && (kChunks & (kChunks - 1)) == 0,
                "a line of a tile must be 16 bytes times a power of two");

  // Warps read a tile in 16-byte rows of 8 lines (ldmatrix), or else in words of 8 rows by 4 k.
  static constexpr bool kInWords = !kKContiguous && kSize != 2;
  static constexpr int kWays = smaller(kChunks, 8);
  static constexpr int kLinesPerWay = larger(1, 8 / kChunks);
  static constexpr int kLineBytes = kChunks * 16;

  // The swizzle repeats after this many lines.
  static constexpr int kPeriod = larger(8, (kInWords && kSize == 1 ? kWays * 2 : 0));

  // The swizzle of a line: the number of each chunk is combined with this value by exclusive or.
  // For two line numbers without common bits, the value of their sum is the exclusive or of their
  // values.
  static __device__ __forceinline__ constexpr u32 way(u32 line) {
    if (!kInWords) return line / kLinesPerWay % kWays;
    const u32 fours = kSize == 1 ? line / 4 : line / kLinesPerWay;
    return fours % larger(kWays / 2, 1) * 2 % kWays;
  }

  // The offset of chunk `chunk` of line `line`, in bytes.
  static __device__ __forceinline__ u32 at(u32 line, u32 chunk) {
    return line * kLineBytes + (chunk ^ way(line)) * 16;
  }
};

// One thread's share of the copies of an operand's tiles, one tile of k after the other.
template <class T, class Shape, int kRows, int kTileK, bool kKContiguous, int kThreads>
class TileCopy {
 public:
  static_assert(kThreads % Shape::kChunks == 0, "the threads must share whole lines");
  static constexpr int kLinesAtOnce = kThreads / Shape::kChunks;
  static constexpr int kCopies = (Shape::kLines + kLinesAtOnce - 1) / kLinesAtOnce;

  // Copies rows from `row` on, of which `rows` exist.
  __device__ __forceinline__ TileCopy(const Source& source, i64 row, i64 rows, u32 thread)
      : source_first(source.data),
        source_end(source.end),
        width(source.width),
        line(thread / Shape::kChunks),
        chunk(thread % Shape::kChunks),
        start(Shape::at(line, chunk)) {
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
    } else if (Shape::kSize == 4 || width != 0) {
      fetch_pieces(to, k_here);
    } else {
      fetch_unaligned(to, k_here);
    }
    from += tile_step;
  }

 private:
  static constexpr int kUnalignedAtOnce = kCopies == 2 || kCopies == 4 ? 2 : 1;
  static constexpr bool kUneven = Shape::kLines % kLinesAtOnce != 0;

  // The offset in a tile to which copy `i` goes.
  __device__ __forceinline__ u32 place_of(int i) const {
    if constexpr (kLinesAtOnce % Shape::kPeriod == 0) {
      return start + i * kLinesAtOnce * Shape::kLineBytes;
    } else {
      return Shape::at(line + i * kLinesAtOnce, chunk);
    }
  }

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
      const u32 place = to + place_of(i);
      copy_async<16>(place, from + i * line_step, present(i, k_here) * Shape::kSize);
    }
  }

  // Lines that start at multiples of 8 or 4 bytes.
  __device__ __forceinline__ void fetch_pieces(u32 to, int k_here) {
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      if (kUneven && line + i * kLinesAtOnce >= Shape::kLines) break;
      const u32 place = to + place_of(i);
      const char* piece = from + i * line_step;
      const int bytes = present(i, k_here) * Shape::kSize;
#pragma unroll
      for (int at = 0; at < 16; at += 8) {
        if (width == 8) {
          copy_async<8>(place + at, piece + at, max(0, min(bytes - at, 8)));
        } else {
          copy_async<4>(place + at, piece + at, max(0, min(bytes - at, 4)));
          copy_async<4>(place + at + 4, piece + at + 4, max(0, min(bytes - at - 4, 4)));
        }
      }
    }
  }

  // For lines that start anywhere: loads the aligned 32 bytes around a chunk when they belong to
  // the operand, otherwise element by element. The loads of two chunks run at a time.
  __device__ __forceinline__ void fetch_unaligned(u32 to, int k_here) {
#pragma unroll 1
    for (int i = 0; i < kCopies; i += kUnalignedAtOnce) {
      u32 words[kUnalignedAtOnce][8];
      bool whole[kUnalignedAtOnce];
#pragma unroll
      for (int j = 0; j < kUnalignedAtOnce; ++j) {
        const char* chunk_at = from + (i + j) * line_step;
        const char* aligned = chunk_at - skipped(chunk_at);
        whole[j] = present(i + j, k_here) == Shape::kPerChunk && aligned >= source_first &&
                   source_end - aligned >= 32;
        if (!whole[j]) continue;
        load_chunk(aligned, words[j]);
        load_chunk(aligned + 16, words[j] + 4);
      }
#pragma unroll
      for (int j = 0; j < kUnalignedAtOnce; ++j) {
        if (kUneven && line + (i + j) * kLinesAtOnce >= Shape::kLines) break;
        const char* chunk_at = from + (i + j) * line_step;
        const u32 place = to + place_of(i + j);
        u32 chunk_words[4] = {};
        if (whole[j]) shift_chunk(words[j], skipped(chunk_at), chunk_words);
        store_chunk(place, chunk_words);
        if (!whole[j]) copy_elements(place, chunk_at, present(i + j, k_here));
      }
    }
  }

  static __device__ __forceinline__ u32 skipped(const char* p) {
    return static_cast<u32>(reinterpret_cast<u64>(p)) & 15;
  }

  static __device__ __forceinline__ void copy_elements(u32 to, const char* from, int count) {
#pragma unroll 1
    for (int offset = 0; offset < count * Shape::kSize; offset += Shape::kSize) {
      if constexpr (Shape::kSize == 1) {
        const u32 element = *reinterpret_cast<const u8*>(from + offset);
        asm volatile("st.shared.b8 [%0], %1;" ::"r"(to + offset), "r"(element) : "memory");
      } else {
        const u16 element = *reinterpret_cast<const u16*>(from + offset);
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(to + offset), "h"(element) : "memory");
      }
    }
  }

  const char* from;  // this thread's first chunk of the next tile
  const char* source_first;
  const char* source_end;
  i64 line_step, tile_step;
  int width;
  int line, chunk;
  u32 start;
  int rows_left;  // rows that exist from this thread's first row on
};

}  // namespace tessera::device
