// The loader of filters as B of backward_data (operand.h): rows are channels of x, which are
// contiguous, and the depth counts taps and channels of y. A thread loads dwords of neighbouring
// rows of a chunk's channels of y, which all have one tap, and transposes them.
#pragma once

#include "tessera/device/hip/conv/taps.h"
#include "tessera/device/hip/operand_rows.h"
#include "tessera/device/hip/transposed_tile.h"

namespace tessera::device {

__device__ __forceinline__ TapPitch filter_pitch(const HipConvPart& g) {
  return {g.filter_line, g.filter[kDepth], g.filter[kHeight], g.filter[kWidth]};
}

template <class T, int kTileRows, int kTileK, int kThreads, int kAhead, bool kWhole, int kDims>
class FilterLoader {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T)), kElements = 16 / kSize;
  static constexpr int kChunks = kTileK / kElements;
  static constexpr int kPerWord = 4 / kSize;
  using Tile = LdsTile<kTileRows, kChunks, kPerWord>;
  static constexpr int kUnitsALine = kTileRows / kPerWord;
  static constexpr int kAll = kUnitsALine * kChunks;
  static constexpr int kLoads = (kAll + kThreads - 1) / kThreads;
  static constexpr int kWalks = kWhole ? 1 : kLoads;
  static constexpr int kInstructions = kLoads * kElements;
  static_assert(kSize >= 2 && kAll % kThreads == 0, "threads move whole tiles");
  static_assert(kThreads % kUnitsALine == 0 || kUnitsALine % kThreads == 0);
  struct Staged {
    u32 words[kLoads][kElements];
  };

  __device__ __forceinline__ FilterLoader(const HipConvPart& gather, u64 filters, int rows, int row,
                                          int k_first, int k_end, int thread_index)
      : g(gather),
        thread(thread_index),
        k(k_first),
        end(k_end),
        base(filters + static_cast<u64>(g.filter_first)) {
    const int exist = rows - row;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (i < kWalks) {
        walk[i] = TapWalk<kDims, kWhole>(
            g, filter_pitch(g), k_first + (kWhole ? 0 : chunk_of(i) * kElements),
            kWhole ? kNone : g.turn, kWhole ? kTileK : g.turn_channels);
      }
      const int from =
          (row + row_of(i)) * kSize + (kWhole ? chunk_of(i) * kElements * g.filter_line : 0);
      offset[i] = row_of(i) < exist ? from : kNowhere;
    }
  }
  // The host sees to it that filters of a group have less than 2^30 bytes, so that what is past
  // kNowhere stays past the end.
  __device__ __forceinline__ void fetch(Staged& to) {
    // Every line that is asked for exists, and the dwords of it that are.
    const Chunk buffer = make_buffer(base, kWhole && k >= end ? 0 : i64{1} << 30);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int more = walk[i % kWalks].offset;
      const bool exists = kWhole || k + chunk_of(i) * kElements < end;
      int from = exists ? further(offset[i], more) : kNowhere;
#pragma unroll
      for (int line = 0; line < kElements; ++line) {
        to.words[i][line] = raw_buffer_load_4(buffer, from, 0, 0);
        from = further(from, g.filter_line);
      }
    }
#pragma unroll
    for (int i = 0; i < kWalks; ++i) walk[i].step();
    k += kTileK;
  }
  __device__ __forceinline__ void put(Shared* tile, Staged& from) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      Chunk chunks[kPerWord];
      Transpose<kPerWord>::apply(from.words[i], chunks);
#pragma unroll
      for (int row = 0; row < kPerWord; ++row) {
        store_shared(tile + Tile::place(row_of(i) + row, chunk_of(i)) * 16, chunks[row]);
      }
    }
  }

 private:
  __device__ __forceinline__ int row_of(int i) const {
    return (thread + i * kThreads) % kUnitsALine * kPerWord;
  }
  __device__ __forceinline__ int chunk_of(int i) const {
    return (thread + i * kThreads) / kUnitsALine;
  }

  const HipConvPart& g;
  int thread, k, end;
  u64 base;
  static constexpr int kNone[3] = {};
  TapWalk<kDims, kWhole> walk[kWalks];
  int offset[kLoads];
};

// gfx950: the same by copies to LDS, whose reads transpose. A thread's lines lie kLinesAtOnce
// channels apart, so that its walk goes on from line to line and from tile to tile.
template <class T, int kTileRows, int kTileK, int kThreads, int kDims>
class CopiedFilterLoader : public CopiedRows<kTileRows, kTileK, kThreads> {
 public:
  using Base = CopiedRows<kTileRows, kTileK, kThreads>;
  struct Staged {};
  __device__ __forceinline__ CopiedFilterLoader(const HipConvPart& gather, u64 filters, int rows,
                                                int row, int k_first, int k_end, int thread)
      : g(gather),
        left(k_end - k_first - Base::first_line(thread)),
        walk(gather, filter_pitch(gather), k_first + Base::first_line(thread), gather.line,
             gather.line_channels),
        base(filters + static_cast<u64>(g.filter_first)) {
    const int own = row + Base::first_row(thread);
    offset = own * 2;
    if (own >= rows) left = -0x40000000;  // never there
  }
  __device__ __forceinline__ void copy(Shared* tile, int wave) {
    const Chunk buffer = make_buffer(base, kMostRecords);
#pragma unroll
    for (int i = 0; i < Base::kLoads; ++i) {
      copy_to_shared(buffer, Base::to(tile, wave, i), left > 0 ? offset + walk.offset : kNowhere);
      walk.step();
      left -= Base::kLinesAtOnce;
    }
  }
  __device__ __forceinline__ void fetch(Staged&) {}
  __device__ __forceinline__ void put(Shared*, Staged&) const {}

 private:
  const HipConvPart& g;
  int left;  // of the depth, from the thread's line on
  TapWalk<kDims, false> walk;
  u64 base;
  int offset;
};

}  // namespace tessera::device
