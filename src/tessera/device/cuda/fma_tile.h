// Copies fp32 operands to shared memory for the ordinary cores. A line in shared memory holds one
// k, so that a thread reads rows of A and columns of B as vectors. Only the first tile may have
// less of k than a whole tile.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/tile_sizes.h"

namespace tessera::device {

// Copies 4 bytes to shared memory.
__device__ __forceinline__ void copy_word_async(u32 to, const char* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// Returns the value and hides its origin from the compiler, which would otherwise compute every
// address anew instead of one from the other.
__device__ __forceinline__ u32 keep(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ const char* keep(const char* value) {
  asm volatile("" : "+l"(value));
  return value;
}

// One thread's share of the copies when k is contiguous. It copies word by word, which transposes
// the tile. 8 threads read the 32 bytes of one memory sector. Lines are padded by a vector, so that
// a warp writes to different banks.
template <int kRows, int kSlotK, int kThreads>
class TransposingCopy {
 public:
  static constexpr int kLineBytes = fma_line(kRows, true) * 4;
  static constexpr int kBytes = kLineBytes * kSlotK;

  // Copies rows from `row` on, of which `rows` exist. Other rows of the tile stay unwritten,
  // because their results are not stored.
  __device__ __forceinline__ TransposingCopy(const Source& source, i64 row, i64 rows, u32 thread) {
    const int line = static_cast<int>(thread) / kLanesK;
    lane = static_cast<int>(thread) % kLanesK;
    line_step = source.line_bytes * kRowsAtOnce;
    from = source.data + (row + line) * source.line_bytes + lane * 4;
    start = lane * kLineBytes + line * 4;
    const i64 left = rows - row < kRows ? rows - row : kRows;
    passes = static_cast<int>((left - line + kRowsAtOnce - 1) / kRowsAtOnce);
  }

  // Skips this much of k before the first tile.
  __device__ __forceinline__ void skip(i64 k) { from += k * 4; }

  // Copies the first tile, of which `k_here` of k exist; the rest becomes zero.
  __device__ __forceinline__ void fetch_first(u32 to, int k_here) {
    const char* row_at = from;
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 1
      for (int k = 0; k < kSlotK; k += kLanesK) {
        const u32 place = to + start + k * kLineBytes + pass * kRowsAtOnce * 4;
        copy_async<4>(place, row_at + k * 4, lane + k < k_here ? 4 : 0);
      }
      row_at += line_step;
    }
    from += k_here * 4;
  }

  // Copies part `part` of `parts` of the next tile. Parts must come in order.
  __device__ __forceinline__ void fetch(u32 to, int part, int parts) {
    if (part == 0) {
      place = keep(to + start);
      row_at = from;
    }
#pragma unroll
    for (int i = part * kCopies / parts; i < (part + 1) * kCopies / parts; ++i) {
      const int pass = i / kSteps;
      const int k = i % kSteps * kLanesK;
      if (pass < passes) {
        copy_word_async(place + k * kLineBytes + pass * kRowsAtOnce * 4, row_at + k * 4);
      }
      if (i % kSteps == kSteps - 1) row_at = keep(row_at + line_step);
    }
    if (part == parts - 1) from += kSlotK * 4;
  }

  // Makes fetch() copy nothing.
  __device__ __forceinline__ void stop() { passes = 0; }

 private:
  static constexpr int kLanesK = 8;
  static constexpr int kSteps = kSlotK / kLanesK;
  static constexpr int kRowsAtOnce = kThreads / kLanesK;
  static constexpr int kCopies = (kRows + kRowsAtOnce - 1) / kRowsAtOnce * kSteps;
  static_assert(kSlotK % kLanesK == 0, "8 threads copy a row");

  const char* from;    // address of this thread's first word of the next tile
  const char* row_at;  // address of the next row
  u32 place;           // place in the tile of the first word
  i64 line_step;
  u32 start;
  int lane;
  int passes;  // how many rows of this thread exist
};

// The same when rows are contiguous. A thread copies vectors of 4 rows, or words when lines do not
// begin at multiples of 16 bytes.
template <int kRows, int kSlotK, int kThreads>
class LineCopy {
 public:
  static constexpr int kLineBytes = fma_line(kRows, false) * 4;
  static constexpr int kBytes = kLineBytes * kSlotK;

  __device__ __forceinline__ LineCopy(const Source& source, i64 row, i64 rows, u32 thread) {
    const int chunk = static_cast<int>(thread) % kChunks;
    line = static_cast<int>(thread) / kChunks;
    width = source.width;
    line_step = source.line_bytes * kLinesAtOnce;
    from = source.data + (row + chunk * 4) * 4 + line * source.line_bytes;
    start = line * kLineBytes + chunk * 16;
    const i64 left = rows - row - chunk * 4;
    bytes = left < 0 ? 0 : left < 4 ? static_cast<int>(left) * 4 : 16;
  }

  __device__ __forceinline__ void skip(i64 k) { from += k * (line_step / kLinesAtOnce); }

  __device__ __forceinline__ void fetch_first(u32 to, int k_here) {
    fetch_words(to + start, k_here);
    from -= line_step / kLinesAtOnce * (kSlotK - k_here);
  }

  // When words are copied, the first part copies all of them.
  __device__ __forceinline__ void fetch(u32 to, int part, int parts) {
    if (part == 0) {
      place = keep(to + start);
      if (width != 16 && width != 0) fetch_words(place, kSlotK);
    }
    if (width != 16) return;
#pragma unroll
    for (int i = part * kCopies / parts; i < (part + 1) * kCopies / parts; ++i) {
      copy_async<16>(place + i * kLinesAtOnce * kLineBytes, from, bytes);
      from = keep(from + line_step);
    }
  }

  __device__ __forceinline__ void stop() { width = 0; }

 private:
  static constexpr int kChunks = kRows / 4;
  static constexpr int kLinesAtOnce = kThreads / kChunks;
  static constexpr int kCopies = kSlotK / kLinesAtOnce;
  static_assert(kThreads % kChunks == 0 && kSlotK % kLinesAtOnce == 0, "threads copy whole lines");

  // Missing k become zero.
  __device__ __forceinline__ void fetch_words(u32 to, int k_here) {
#pragma unroll 1
    for (int k = line; k < kSlotK; k += kLinesAtOnce) {
      const int count = k < k_here ? bytes : 0;
#pragma unroll
      for (int at = 0; at < 16; at += 4) {
        copy_async<4>(to + at, from + at, max(0, min(count - at, 4)));
      }
      to += kLinesAtOnce * kLineBytes;
      from += line_step;
    }
  }

  const char* from;  // address of this thread's first chunk of the next tile, or of the next line
  i64 line_step;
  u32 start;
  u32 place;  // place of the first chunk in the next tile
  int line;
  int bytes;  // bytes of a chunk that exist
  int width;  // bytes of a copy; 0: no copies
};

template <bool kKContiguous, int kRows, int kSlotK, int kThreads>
using FmaCopy = typename If<kKContiguous, TransposingCopy<kRows, kSlotK, kThreads>,
                            LineCopy<kRows, kSlotK, kThreads>>::Type;

}  // namespace tessera::device
