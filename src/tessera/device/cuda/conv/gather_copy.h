// How the threads of a block bring the tiles of one operand of a convolution to shared memory. A
// tile's layout and a thread's share of it are those of cpasync_tile.h; every chunk lies at a place
// of its own, and elements that do not exist become zeros.
#pragma once

#include "tessera/device/cuda/conv/gather_places.h"
#include "tessera/device/cuda/cpasync_tile.h"

namespace tessera::device {

// Chunks lie along the depth where kAlongDepth is set: a thread then has some lines of rows or
// columns, and all its chunks belong to one step of the depth. Otherwise a thread has one chunk of
// rows or columns, and its lines are steps of the depth. Entry i of a table of steps is step
// i * kUnit.
template <class T, class Shape, int kDims, bool kAlongDepth, int kUnit, int kThreads>
class GatherCopy {
 public:
  using Place = GatherPlace<kDims>;
  static_assert(kThreads % Shape::kChunks == 0, "the threads must share whole lines");
  static constexpr int kLinesAtOnce = kThreads / Shape::kChunks;
  static constexpr int kCopies = (Shape::kLines + kLinesAtOnce - 1) / kLinesAtOnce;
  static constexpr int kPerChunk = Shape::kPerChunk;

  // place_of(i) is the place of row or column i of the tile.
  template <class PlaceOf>
  __device__ __forceinline__ GatherCopy(const GatherOperand& operand, const int* limits,
                                        int product, u32 thread, const PlaceOf& place_of)
      : g(operand),
        data(reinterpret_cast<const T*>(operand.data) + product * operand.product),
        line(thread / Shape::kChunks),
        chunk(thread % Shape::kChunks) {
#pragma unroll
    for (int i = 0; i < kDims; ++i) limit[i] = limits[kSpatialDims - 1 - i];
#pragma unroll
    for (int i = 0; i < (kAlongDepth ? kCopies : 1); ++i) {
      own[i] = place_of(kAlongDepth ? line + i * kLinesAtOnce : chunk * kPerChunk);
    }
  }

  // Fetches the tile whose steps are in the table, to address `to`.
  __device__ __forceinline__ void fetch(u32 to, const Place* steps) const {
    if (g.width == kBy16) {
      fetch_pieces<16>(to, steps);
    } else if (g.width == kBy8) {
      fetch_pieces<8>(to, steps);
    } else if (Shape::kSize == 4 || g.width == kBy4) {
      fetch_pieces<4>(to, steps);
    } else if (g.width == kByVector) {
      fetch_vectors(to, steps);
    } else {
      fetch_elements(to, steps);
    }
  }

 private:
  static constexpr bool kUneven = Shape::kLines % kLinesAtOnce != 0;
  // How many chunks a thread loads to registers at a time.
  static constexpr int kAtOnce = kCopies % 4 == 0 ? 4 : kCopies % 2 == 0 ? 2 : 1;

  __device__ __forceinline__ bool has(int i) const {
    return !kUneven || line + i * kLinesAtOnce < Shape::kLines;
  }
  __device__ __forceinline__ Place place(int i, const Place* steps) const {
    if constexpr (kAlongDepth) return own[i] + steps[chunk * (kPerChunk / kUnit)];
    return own[0] + steps[(line + i * kLinesAtOnce) / kUnit];
  }
  __device__ __forceinline__ bool inside(const Place& place) const {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      all = all && static_cast<u32>(place.at[i]) < static_cast<u32>(limit[i]);
    }
    return all;
  }

  // Pieces of 4-byte elements may have a distance. Other pieces lie side by side, and a piece's
  // elements exist from its first one on or not at all.
  template <int kWidth>
  __device__ __forceinline__ void fetch_pieces(u32 to, const Place* steps) const {
    constexpr int kElements = kWidth / Shape::kSize;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (!has(i)) break;
      const Place at = place(i, steps);
      const bool exists = inside(at);
      const u32 chunk_to = to + Shape::at(line + i * kLinesAtOnce, chunk);
      const T* const from = data + at.offset;
#pragma unroll
      for (int piece = 0; piece < 16 / kWidth; ++piece) {
        const int run = at.run + piece * kElements * (kWidth == Shape::kSize ? g.run_step : 1);
        const bool begins = exists && run >= 0;
        const int count = begins ? max(0, min(g.run_limit - run, kElements)) : 0;
        const i64 distance = piece * kElements * (kWidth == Shape::kSize ? g.step : 1);
        copy_async<kWidth>(chunk_to + piece * kWidth, from + distance, count * Shape::kSize);
      }
    }
  }

  // The elements [low, high) of a chunk exist. Its run advances by single elements.
  struct Part {
    int low, high;
  };
  __device__ __forceinline__ Part part(const Place& at) const {
    const int high = inside(at) ? min(kPerChunk, g.run_limit - at.run) : 0;
    return {max(0, -at.run), high};
  }
  // Zeros in place of the bytes of `words` that belong to no element in [low, high).
  static __device__ __forceinline__ void clear_others(const Part& part, u32 (&words)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = min(max(part.low * Shape::kSize - i * 4, 0), 4);
      const int last = min(max(part.high * Shape::kSize - i * 4, 0), 4);
      const u32 below_last = last == 4 ? 0xffffffffU : (1U << last * 8) - 1;
      const u32 below_first = first == 4 ? 0xffffffffU : (1U << first * 8) - 1;
      words[i] &= below_last & ~below_first;
    }
  }

  // A chunk whose elements lie side by side anywhere: the aligned vectors around it, where these
  // belong to the operand, otherwise single elements. The loads of some chunks run at a time.
  __device__ __forceinline__ void fetch_vectors(u32 to, const Place* steps) const {
    if constexpr (Shape::kSize < 4) {
#pragma unroll 1
      for (int first = 0; first < kCopies; first += kAtOnce) {
        u32 words[kAtOnce][8];
        Part parts[kAtOnce];
        i64 offsets[kAtOnce];
        bool whole[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const Place at = place_at(first + j, steps);
          parts[j] = part(at);
          offsets[j] = at.offset;
          whole[j] = load_around(at.offset, parts[j], words[j]);
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (!has(first + j)) break;
          u32 found[4] = {};
          if (whole[j]) {
            shift_chunk(words[j], skipped(data + offsets[j]), found);
            clear_others(parts[j], found);
          } else {
#pragma unroll
            for (int e = 0; e < kPerChunk; ++e) {
              if (e >= parts[j].low && e < parts[j].high) put(e, data[offsets[j] + e], found);
            }
          }
          store_chunk(to + Shape::at(line + (first + j) * kLinesAtOnce, chunk), found);
        }
      }
    }
  }

  // Elements at any distance.
  __device__ __forceinline__ void fetch_elements(u32 to, const Place* steps) const {
    if constexpr (Shape::kSize < 4) {
#pragma unroll 1
      for (int i = 0; i < kCopies; ++i) {
        if (!has(i)) break;
        const Place at = place_at(i, steps);
        const bool exists = inside(at);
        T elements[kPerChunk];
#pragma unroll
        for (int e = 0; e < kPerChunk; ++e) {
          const u32 run = static_cast<u32>(at.run + e * g.run_step);
          elements[e] = {};
          if (exists && run < static_cast<u32>(g.run_limit)) {
            elements[e] = data[at.offset + e * g.step];
          }
        }
        u32 found[4] = {};
#pragma unroll
        for (int e = 0; e < kPerChunk; ++e) put(e, elements[e], found);
        store_chunk(to + Shape::at(line + i * kLinesAtOnce, chunk), found);
      }
    }
  }

  // place(), in loops that are not unrolled: the thread's places stay in registers.
  __device__ __forceinline__ Place place_at(int i, const Place* steps) const {
    if constexpr (!kAlongDepth) {
      return own[0] + steps[min(line + i * kLinesAtOnce, Shape::kLines - 1) / kUnit];
    } else {
      Place mine = own[0];
#pragma unroll
      for (int j = 1; j < kCopies; ++j) {
        if (j == i) mine = own[j];
      }
      return mine + steps[chunk * (kPerChunk / kUnit)];
    }
  }

  static __device__ __forceinline__ u32 skipped(const T* p) {
    return static_cast<u32>(reinterpret_cast<u64>(p)) & 15;
  }
  // Loads the vectors around a chunk that hold its elements; false where a vector reaches beyond
  // the operand.
  __device__ __forceinline__ bool load_around(i64 offset, const Part& part, u32 (&words)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = 0;
    if (part.high <= part.low) return true;
    const char* const chunk_at = reinterpret_cast<const char*>(data + offset);
    const char* const aligned = chunk_at - skipped(data + offset);
    const int skip = static_cast<int>(skipped(data + offset));
    const bool first = skip + part.low * Shape::kSize < 16;
    const bool second = skip + part.high * Shape::kSize > 16;
    if ((first && aligned < g.data) || (first && g.end - aligned < 16) ||
        (second && g.end - aligned < 32)) {
      return false;
    }
    if (first) load_chunk(aligned, words);
    if (second) load_chunk(aligned + 16, words + 4);
    return true;
  }
  static __device__ __forceinline__ void put(int index, const T& element, u32 (&words)[4]) {
    constexpr int kPerWord = larger(1, 4 / Shape::kSize);
    words[index / kPerWord] |= bits_of(element) << index % kPerWord * Shape::kSize * 8;
  }
  static __device__ __forceinline__ u32 bits_of(const T& element) {
    if constexpr (kSame<T, int8>) {
      return static_cast<u8>(element.value);
    } else if constexpr (kSame<T, float> || kSame<T, int>) {
      return 0;  // never asked: 4 bytes have copies
    } else {
      return element.bits;
    }
  }

  const GatherOperand& g;
  const T* data;
  int line, chunk;
  int limit[kDims > 0 ? kDims : 1];
  Place own[kAlongDepth ? kCopies : 1];
};

}  // namespace tessera::device
