// How operands of fp32 get to shared memory for the ordinary cores, where they lie in lines of one
// k, so that a thread reads rows of A and columns of B as vectors. The tile that may have less of k
// is the first one; all others are whole.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/tile_sizes.h"

namespace tessera::device {

// 4 bytes to shared memory.
__device__ __forceinline__ void copy_word_async(u32 to, const char* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// The value, of which the compiler cannot tell how it came about: it would work out every address
// anew instead of one from the other.
__device__ __forceinline__ u32 keep(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ const char* keep(const char* value) {
  asm volatile("" : "+l"(value));
  return value;
}

// One thread's share of the copies where k is contiguous: word by word, which transposes the tile
// on the way. 8 threads read the 32 bytes that memory hands out at once; lines are padded by a
// vector so that what a warp writes lies in different banks.
template <int kRows, int kSlotK, int kThreads>
class TransposingCopy {
 public:
  static constexpr int kLineBytes = fma_line(kRows, true) * 4;
  static constexpr int kBytes = kLineBytes * kSlotK;

  // From row `row` on, of which `rows` exist. Those that do not are left as they are: what becomes
  // of them is not stored.
  __device__ __forceinline__ TransposingCopy(const Source& source, i64 row, i64 rows, u32 thread) {
    const int line = static_cast<int>(thread) / kLanesK;
    lane = static_cast<int>(thread) % kLanesK;
    line_step = source.line_bytes * kRowsAtOnce;
    from = source.data + (row + line) * source.line_bytes + lane * 4;
    start = lane * kLineBytes + line * 4;
    const i64 left = rows - row < kRows ? rows - row : kRows;
    passes = static_cast<int>((left - line + kRowsAtOnce - 1) / kRowsAtOnce);
  }

  // Leaves out so many of k before the first tile.
  __device__ __forceinline__ void skip(i64 k) { from += k * 4; }

  // The first tile, of which `k_here` of k exist; the others are zero.
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

  // Part `part` of `parts` of the next tile, one part after the other.
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

  const char* from;    // this thread's first word of the next tile
  const char* row_at;  // ... and of its next row
  u32 place;           // of that tile's first word
  i64 line_step;
  u32 start;
  int lane;
  int passes;  // over rows that exist
};

// The same where rows are contiguous: a thread copies vectors of 4 of them, or words where lines do
// not lie at multiples of 16 bytes.
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

  // Words are all copied with the first part.
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

  // What is missing of k is zero.
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

  const char* from;  // this thread's first chunk of the next tile, or of its next line
  i64 line_step;
  u32 start;
  u32 place;  // of the next tile's first chunk
  int line;
  int bytes;  // of a chunk that exist
  int width;  // of the copies; 0: none
};

template <bool kKContiguous, int kRows, int kSlotK, int kThreads>
using FmaCopy = typename If<kKContiguous, TransposingCopy<kRows, kSlotK, kThreads>,
                            LineCopy<kRows, kSlotK, kThreads>>::Type;

}  // namespace tessera::device
