// The loader of pixels as B of backward_weight (operand.h): rows are taps and channels of x, of
// which the channels are contiguous, and the depth counts pixels of y. A thread loads dwords of
// neighbouring channels at one tap for the pixels of a chunk, and transposes them. Each lane of a
// wave walks one of the pixels that the wave loads; the place of a line's pixel comes from its lane
// (v_readlane), as all lanes of a wave load the same lines. With kWhole all rows of a tile have one
// tap, channels being a multiple of it.
#pragma once

#include "tessera/device/hip/conv/taps.h"
#include "tessera/device/hip/operand_rows.h"
#include "tessera/device/hip/transposed_tile.h"

namespace tessera::device {

// What a row, a tap and a channel of x, adds to the place of a pixel and to its offset in bytes.
template <class T, int kDims>
struct TapOfRow {
  int d, h, w, offset;
  __device__ __forceinline__ TapOfRow(const HipConvPart& g, int row) {
    const u32 number = static_cast<u32>(row) / static_cast<u32>(g.channels);
    const Tap<kDims> tap(g, number);
    d = tap.z * g.tap[kDepth] + g.base[kDepth];
    h = tap.y * g.tap[kHeight] + g.base[kHeight];
    w = tap.x * g.tap[kWidth] + g.base[kWidth];
    offset = h * g.pitch[kHeight] + w * g.pitch[kWidth] +
             (row - static_cast<int>(number) * g.channels) * static_cast<int>(sizeof(T));
    if constexpr (kDims == 3) offset += d * g.pitch[kDepth];
  }
  // For a row that all lanes have.
  __device__ __forceinline__ void make_uniform() {
    d = __builtin_amdgcn_readfirstlane(d), h = __builtin_amdgcn_readfirstlane(h);
    w = __builtin_amdgcn_readfirstlane(w), offset = __builtin_amdgcn_readfirstlane(offset);
  }
};

template <class T, int kTileRows, int kTileK, int kThreads, int kAhead, bool kWhole, int kDims>
class TapLoader {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T)), kElements = 16 / kSize;
  static constexpr int kChunks = kTileK / kElements;
  static constexpr int kPerWord = 4 / kSize;
  using Tile = LdsTile<kTileRows, kChunks, kPerWord>;
  static constexpr int kUnitsALine = kTileRows / kPerWord;
  static constexpr int kAll = kUnitsALine * kChunks;
  static constexpr int kLoads = (kAll + kThreads - 1) / kThreads;
  static constexpr int kInstructions = kLoads * kElements;
  static_assert(kSize >= 2 && kAll % kThreads == 0, "threads move whole tiles");
  static_assert(kUnitsALine % 64 == 0, "lanes of a wave have one chunk");
  static_assert(kThreads % kUnitsALine == 0, "a thread has one row");
  static constexpr int kPixels = kLoads * kElements;  // of a wave
  static_assert(kPixels <= 64, "a lane has a pixel");
  struct Staged {
    u32 words[kLoads][kElements];
  };

  // `rows` are taps * channels.
  __device__ __forceinline__ TapLoader(const HipConvPart& gather, u64 image, int rows, int row,
                                       int k_first, int k_end, int thread_index)
      : g(gather),
        thread(thread_index),
        left(k_end - k_first),
        height(gather.size[kHeight]),
        width(gather.size[kWidth]),
        buffer(make_buffer(image, bytes_of(gather))),
        own_pixel(gather, k_first + own_place()),
        tap(gather, row + (kWhole ? 0 : row_of())) {
    if constexpr (kWhole) {
      offset = row_of() * kSize;
      tap.make_uniform();
    } else {
      offset = tap.offset;
      const bool exists = row + row_of() < rows;
      more = exists ? both(tap.h, tap.w) : both(kFar, kFar);
      more_deep = both(tap.d, 0);
      most = both(g.size[kHeight] - 1, g.size[kWidth] - 1);
      most_deep = both(g.size[kDepth] - 1, 0);
    }
  }

  __device__ __forceinline__ void fetch(Staged& to) {
    if constexpr (kWhole) {
      fetch_tap(to);
    } else {
      fetch_taps(to);
    }
    own_pixel.step();
    left -= kTileK;
  }
  __device__ __forceinline__ void put(Shared* tile, Staged& from) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      Chunk chunks[kPerWord];
      Transpose<kPerWord>::apply(from.words[i], chunks);
#pragma unroll
      for (int row = 0; row < kPerWord; ++row) {
        store_shared(tile + Tile::place(row_of() + row, chunk_of(i)) * 16, chunks[row]);
      }
    }
  }

 private:
  using Halves = Vec<u16, 2>;
  static constexpr int kFar = 0x4000;  // images are smaller
  static constexpr Halves kNoPlace = {2 * kFar - 1, 2 * kFar - 1};
  static __device__ __forceinline__ Halves both(int h, int w) {
    return Halves{static_cast<u16>(h), static_cast<u16>(w)};
  }
  // Whether a place, by so much more, is at most `most`.
  static __device__ __forceinline__ bool is_inside(int place, Halves more, Halves most) {
    const Halves at = bits<Halves>(place) + more;
    return bits<u32>(__builtin_elementwise_min(at, most)) == bits<u32>(at);
  }
  // With all rows of a tile at one tap, each lane decides for its pixel.
  __device__ __forceinline__ void fetch_tap(Staged& to) const {
    bool inside = (own_place() < left) & is_below(own_pixel.h + tap.h, height) &
                  is_below(own_pixel.w + tap.w, width);
    if constexpr (kDims == 3) inside = inside & is_below(own_pixel.d + tap.d, g.size[kDepth]);
    const int pixel = inside ? own_pixel.offset + tap.offset : kNowhere;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      int of_line[kElements];
      of_lanes(pixel, i * kElements, of_line);
#pragma unroll
      for (int line = 0; line < kElements; ++line) {
        to.words[i][line] = raw_buffer_load_4(buffer, further(offset, of_line[line]), 0, 0);
      }
    }
  }
  // Else each lane decides for its row; a pixel's row and column are in one word.
  __device__ __forceinline__ void fetch_taps(Staged& to) const {
    const bool exists = own_place() < left;
    const auto place = bits<int>(exists ? both(own_pixel.h, own_pixel.w) : kNoPlace);
    const auto deep = bits<int>(both(own_pixel.d, 0));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      int places[kElements], depths[kElements], pixels[kElements];
      of_lanes(place, i * kElements, places);
      of_lanes(own_pixel.offset, i * kElements, pixels);
      if constexpr (kDims == 3) of_lanes(deep, i * kElements, depths);
#pragma unroll
      for (int line = 0; line < kElements; ++line) {
        bool inside = is_inside(places[line], more, most);
        if constexpr (kDims == 3) inside = inside & is_inside(depths[line], more_deep, most_deep);
        const int at = offset + pixels[line];
        to.words[i][line] = raw_buffer_load_4(buffer, inside ? at : kNowhere, 0, 0);
      }
    }
  }
  // The numbers of the lanes from `first` on, all of them before one is used: each use of a scalar
  // register waits for the instruction that wrote it.
  static __device__ __forceinline__ void of_lanes(int x, int first, int (&all)[kElements]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) all[i] = __builtin_amdgcn_readlane(x, first + i);
    asm volatile("" : "+s"(all[0]), "+s"(all[1]), "+s"(all[2]), "+s"(all[3]));
    if constexpr (kElements == 8) {
      asm volatile("" : "+s"(all[4]), "+s"(all[5]), "+s"(all[6]), "+s"(all[7]));
    }
  }
  static __device__ __forceinline__ bool is_below(int at, int size) {
    return static_cast<u32>(at) < static_cast<u32>(size);
  }

  __device__ __forceinline__ int row_of() const { return thread % kUnitsALine * kPerWord; }
  __device__ __forceinline__ int chunk_of(int i) const {
    return (thread + i * kThreads) / kUnitsALine;
  }
  // The lane's pixel, counted in the tile.
  __device__ __forceinline__ int own_place() const {
    const int i = thread % kPixels / kElements;
    return (thread / 64 * 64 + i * kThreads) / kUnitsALine * kElements + thread % kElements;
  }
  const HipConvPart& g;
  int thread, left, height, width;  // left: of the depth, from the tile on
  Chunk buffer;
  int offset;                   // of the thread's tap and channel from a pixel's place
  Halves more, most;            // what its tap adds to a pixel's row and column; the largest ones
  Halves more_deep, most_deep;  // along the depth
  PixelWalk<kDims> own_pixel;
  TapOfRow<T, kDims> tap;  // of the thread's row, or of the whole tile
};

// gfx950: the same by copies to LDS, whose reads transpose. A thread copies 8 channels at one tap
// of pixels kLinesAtOnce apart.
template <class T, int kTileRows, int kTileK, int kThreads, int kDims>
class CopiedTapLoader : public CopiedRows<kTileRows, kTileK, kThreads> {
 public:
  using Base = CopiedRows<kTileRows, kTileK, kThreads>;
  struct Staged {};
  __device__ __forceinline__ CopiedTapLoader(const HipConvPart& gather, u64 image, int rows,
                                             int row, int k_first, int k_end, int thread)
      : g(gather),
        left(k_end - k_first - Base::first_line(thread)),
        base(image),
        pixel(gather, k_first + Base::first_line(thread)),
        tap(gather, row + Base::first_row(thread)) {
    const int own = row + Base::first_row(thread);
    if (own >= rows) left = -0x40000000;  // never there
  }
  __device__ __forceinline__ void copy(Shared* tile, int wave) {
    const Chunk buffer = make_buffer(base, bytes_of(g));
#pragma unroll
    for (int i = 0; i < Base::kLoads; ++i) {
      bool inside = is_inside(pixel.h + tap.h, g.size[kHeight]) &&
                    is_inside(pixel.w + tap.w, g.size[kWidth]) && left > 0;
      if constexpr (kDims == 3) inside = inside && is_inside(pixel.d + tap.d, g.size[kDepth]);
      const int at = pixel.offset + tap.offset;
      copy_to_shared(buffer, Base::to(tile, wave, i), inside ? at : kNowhere);
      pixel.step();
      left -= Base::kLinesAtOnce;
    }
  }
  __device__ __forceinline__ void fetch(Staged&) {}
  __device__ __forceinline__ void put(Shared*, Staged&) const {}

 private:
  static __device__ __forceinline__ bool is_inside(int at, int size) {
    return static_cast<u32>(at) < static_cast<u32>(size);
  }

  const HipConvPart& g;
  int left;  // of the depth, from the thread's line on
  u64 base;
  PixelWalk<kDims> pixel;
  TapOfRow<T, kDims> tap;
};

}  // namespace tessera::device
