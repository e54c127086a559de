// How the threads of a block bring tiles of a convolution's operands to shared memory. A tile's
// layout and a thread's share of it follow cpasync_tile.h; every chunk lies at a place of its
// own, and elements that do not exist become zeros.
#pragma once

#include "tessera/device/cuda/conv/gather_places.h"
#include "tessera/device/cuda/cpasync_tile.h"

namespace tessera::device {

// Copies the first `count` elements of kSize bytes, the others become zeros. Where there is none,
// the place may lie anywhere; a copy's address must be aligned nevertheless, as `start` is.
template <int kWidth, int kSize>
__device__ __forceinline__ void copy_elements(u32 to, const char* from, int count,
                                              const char* start) {
  copy_async<kWidth>(to, count > 0 ? from : start, max(0, count) * kSize);
}

// A chunk that is not copied as a whole.
struct GatherChunk {
  const char* from;
  const GatherOperand* operand;
  u32 to;       // in shared memory; kNoChunk: there is none
  int run;      // the place of its first element in the run
  bool exists;  // otherwise all of it is zeros
};
inline constexpr u32 kNoChunk = 0xffffffffU;

// Fetches chunks of kSize bytes an element. Both operands share this code, which is long.
template <int kSize, bool kApart>
struct GatherChunks {
  using Word = typename BitsOf<kSize>::Word;
  static constexpr int kPerChunk = 16 / kSize;
  static constexpr int kPerWord = larger(1, 4 / kSize);
  static constexpr bool kLoads = kSize < 4;  // elements of 4 bytes have copies

  // Loads of all chunks run at a time.
  template <int kCount>
  static __device__ __forceinline__ void fetch(const GatherChunk (&chunks)[kCount]) {
    u32 words[kCount][8];
    bool whole[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool has_vectors = kLoads && chunks[i].operand->width == kByVector;
      whole[i] = has_vectors && load_around(chunks[i], words[i]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const GatherChunk& chunk = chunks[i];
      if (chunk.to == kNoChunk) continue;
      if (!kLoads || chunk.operand->width >= kBy4) {
        copy_pieces(chunk);
        continue;
      }
      u32 found[4] = {};
      if (whole[i]) {
        shift_chunk(words[i], skipped(chunk), found);
        clear_others(part(chunk), found);
      } else {
        load_elements(chunk, found);
      }
      store_chunk(chunk.to, found);
    }
  }

 private:
  // The first elements of an aligned piece exist, or none. Pieces lie side by side, but single
  // elements of 4 bytes may lie apart.
  static __device__ __forceinline__ void copy_pieces(const GatherChunk& chunk) {
    constexpr bool kSteps = kApart && !kLoads;
    const GatherOperand& g = *chunk.operand;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const int run = chunk.run + word * kPerWord * (kSteps ? g.run_step : 1);
      const int left = chunk.exists && run >= 0 ? g.run_limit - run : 0;
      const char* const from = chunk.from + word * 4 * (kSteps ? g.step : 1);
      if (g.width != kBy8) {
        copy_elements<4, kSize>(chunk.to + word * 4, from, min(left, kPerWord), g.data);
      } else if (word % 2 == 0) {
        copy_elements<8, kSize>(chunk.to + word * 4, from, min(left, 2 * kPerWord), g.data);
      }
    }
  }

  // The elements [low, high) of a chunk exist, where the run advances by single elements.
  struct Part {
    int low, high;
  };
  static __device__ __forceinline__ Part part(const GatherChunk& chunk) {
    const int left = chunk.exists ? chunk.operand->run_limit - chunk.run : 0;
    return {max(0, -chunk.run), min(kPerChunk, left)};
  }
  // Zeros in place of the bytes that belong to no element in [low, high).
  static __device__ __forceinline__ void clear_others(const Part& part, u32 (&words)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = min(max(part.low * kSize - i * 4, 0), 4);
      const int last = min(max(part.high * kSize - i * 4, 0), 4);
      const u32 below_last = last == 4 ? 0xffffffffU : (1U << last * 8) - 1;
      const u32 below_first = first == 4 ? 0xffffffffU : (1U << first * 8) - 1;
      words[i] &= below_last & ~below_first;
    }
  }

  static __device__ __forceinline__ u32 skipped(const GatherChunk& chunk) {
    return static_cast<u32>(reinterpret_cast<u64>(chunk.from)) & 15;
  }
  // Loads the aligned vectors around a chunk that hold its elements; false where a vector reaches
  // beyond the operand.
  static __device__ __forceinline__ bool load_around(const GatherChunk& chunk, u32 (&words)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = 0;
    const Part has = part(chunk);
    if (has.high <= has.low) return true;
    const int skip = static_cast<int>(skipped(chunk));
    const char* const aligned = chunk.from - skip;
    const bool first = skip + has.low * kSize < 16;
    const bool second = skip + has.high * kSize > 16;
    const i64 left = chunk.operand->end - aligned;
    if ((first && (aligned < chunk.operand->data || left < 16)) || (second && left < 32)) {
      return false;
    }
    if (first) load_chunk(aligned, words);
    if (second) load_chunk(aligned + 16, words + 4);
    return true;
  }

  // Element by element. Where elements lie apart, all loads run at a time.
  static __device__ __forceinline__ void load_elements(const GatherChunk& chunk, u32 (&found)[4]) {
    const GatherOperand& g = *chunk.operand;
#pragma unroll kApart ? kPerChunk : 1
    for (int e = kPerChunk - 1; e >= 0; --e) {
      const u32 run = static_cast<u32>(chunk.run + e * g.run_step);
      u32 bits = 0;
      if (chunk.exists && run < static_cast<u32>(g.run_limit)) {
        bits = *reinterpret_cast<const Word*>(chunk.from + e * g.step * kSize);
      }
#pragma unroll
      for (int i = 3; i > 0; --i) {
        found[i] = __funnelshift_r(found[i - 1], found[i], 32 - kSize * 8);
      }
      found[0] = found[0] << kSize * 8 % 32 | bits;
    }
  }
};

// One operand. Chunks lie along the depth where kAlongDepth is set: a thread then has some lines of
// rows or columns, and all its chunks belong to one step of the depth. Otherwise a thread has one
// chunk of rows or columns, and its lines are steps of the depth. Entry i of a table of steps is
// step i * kUnit.
template <class T, class Shape, int kDims, bool kAlongDepth, int kUnit, int kThreads>
class GatherCopy {
 public:
  using Place = GatherPlace<kDims>;
  static_assert(kThreads % Shape::kChunks == 0, "the threads must share whole lines");
  static constexpr int kLinesAtOnce = kThreads / Shape::kChunks;
  static constexpr int kCopies = (Shape::kLines + kLinesAtOnce - 1) / kLinesAtOnce;
  static constexpr int kPerChunk = Shape::kPerChunk;

  // of_lines[i] is the place of row or column i of the tile.
  __device__ __forceinline__ GatherCopy(const GatherOperand& operand, const int* limits,
                                        int product, const Place* of_lines)
      : g(operand),
        data(reinterpret_cast<const T*>(operand.data) + product * operand.product),
        lines(of_lines),
        line(threadIdx.x / Shape::kChunks),
        chunk(threadIdx.x % Shape::kChunks) {
#pragma unroll
    for (int i = 0; i < kDims; ++i) limit[i] = limits[kSpatialDims - 1 - i];
  }

  __device__ __forceinline__ bool copies_chunks() const { return g.width == kBy16; }

  // Fetches aligned chunks of which the first elements exist, or none: the tile whose steps are in
  // the table, to address `to`.
  __device__ __forceinline__ void copy_chunks(u32 to, const Place* steps) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (!has(i)) break;
      const Place at = place(i, steps);
      const int left = inside(at) && at.run >= 0 ? g.run_limit - at.run : 0;
      const auto* const from = reinterpret_cast<const char*>(data + at.offset);
      copy_elements<16, Shape::kSize>(to + place_in_tile(i), from, min(left, kPerChunk), g.data);
    }
  }
  // Chunk `i` of such a tile.
  __device__ __forceinline__ GatherChunk chunk_of(int i, u32 to, const Place* steps) const {
    const Place at = place(i, steps);
    return {reinterpret_cast<const char*>(data + at.offset), &g,
            has(i) ? to + place_in_tile(i) : kNoChunk, at.run, inside(at)};
  }

 private:
  static constexpr bool kUneven = Shape::kLines % kLinesAtOnce != 0;

  __device__ __forceinline__ bool has(int i) const {
    return !kUneven || line + i * kLinesAtOnce < Shape::kLines;
  }
  __device__ __forceinline__ u32 place_in_tile(int i) const {
    return Shape::at(line + i * kLinesAtOnce, chunk);
  }
  __device__ __forceinline__ Place place(int i, const Place* steps) const {
    const int at_line =
        kUneven ? min(line + i * kLinesAtOnce, Shape::kLines - 1) : line + i * kLinesAtOnce;
    const int at_chunk = chunk * kPerChunk;
    if constexpr (kAlongDepth) return lines[at_line] + steps[at_chunk / kUnit];
    return lines[at_chunk] + steps[at_line / kUnit];
  }
  __device__ __forceinline__ bool inside(const Place& place) const {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      all = all && static_cast<u32>(place.at[i]) < static_cast<u32>(limit[i]);
    }
    return all;
  }

  const GatherOperand& g;
  const T* data;
  const Place* lines;
  int line, chunk;
  int limit[kDims > 0 ? kDims : 1];
};

}  // namespace tessera::device
