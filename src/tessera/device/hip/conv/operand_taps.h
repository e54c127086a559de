// The loader of pixels as B of backward_weight (operand.h): rows are taps and channels of x, of
// which the channels are contiguous, and the depth counts pixels of y. A thread loads dwords of
// neighbouring channels at one tap for the pixels of a chunk, and transposes them. Each lane of a
// wave walks one pixel of the tiles; the place of a line's pixel comes from its lane (v_readlane),
// as all lanes of a wave load the same lines.
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
};

template <class T, int kTileRows, int kTileK, int kThreads, int kAhead, int kDims>
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
  static_assert(kTileK <= 64, "a lane has a pixel");
  struct Staged {
    u32 words[kLoads][kElements];
  };

  // `rows` are taps * channels.
  __device__ __forceinline__ TapLoader(const HipConvPart& gather, u64 image, int rows, int row,
                                       int k_first, int k_end, int thread_index)
      : g(gather),
        thread(thread_index),
        k(k_first),
        end(k_end),
        base(image),
        own_pixel(gather, k_first + lane()) {
    const int own = row + row_of();
    const TapOfRow<T, kDims> tap(g, own);
    offset = tap.offset;
    more = own < rows ? both(tap.h, tap.w) : both(kFar, kFar);
    more_deep = both(tap.d, 0);
    most = both(g.size[kHeight] - 1, g.size[kWidth] - 1);
    most_deep = both(g.size[kDepth] - 1, 0);
  }

  __device__ __forceinline__ void fetch(Staged& to) {
    const Chunk buffer = make_buffer(base, bytes_of(g));
    // The lane's pixel: its place, and its row and column in one word.
    const int h = own_pixel.h, w = own_pixel.w, pixel = own_pixel.offset;
    const u32 place = bits<u32>(k + lane() < end ? both(h, w) : both(2 * kFar - 1, 2 * kFar - 1));
    const u32 deep = bits<u32>(both(own_pixel.d, 0));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int line = 0; line < kElements; ++line) {
        const int from = chunk_of(i) * kElements + line;
        bool inside = is_inside(place, from, more, most);
        if constexpr (kDims == 3) inside = inside && is_inside(deep, from, more_deep, most_deep);
        to.words[i][line] = raw_buffer_load_4(
            buffer, inside ? offset + __builtin_amdgcn_readlane(pixel, from) : kNowhere, 0, 0);
      }
    }
    own_pixel.step();
    k += kTileK;
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
  static __device__ __forceinline__ Halves both(int h, int w) {
    return Halves{static_cast<u16>(h), static_cast<u16>(w)};
  }
  // Whether a lane's place, by so much more, is at most `most`.
  static __device__ __forceinline__ bool is_inside(u32 place, int lane, Halves more, Halves most) {
    const int of_lane = __builtin_amdgcn_readlane(static_cast<int>(place), lane);
    const Halves at = bits<Halves>(static_cast<u32>(of_lane)) + more;
    return bits<u32>(__builtin_elementwise_min(at, most)) == bits<u32>(at);
  }
  __device__ __forceinline__ int lane() const { return thread % 64; }
  __device__ __forceinline__ int row_of() const { return thread % kUnitsALine * kPerWord; }
  __device__ __forceinline__ int chunk_of(int i) const {
    return __builtin_amdgcn_readfirstlane((thread + i * kThreads) / kUnitsALine);
  }
  const HipConvPart& g;
  int thread, k, end;
  u64 base;
  int offset;                   // of the thread's tap and channel from a pixel's place
  Halves more, most;            // what its tap adds to a pixel's row and column; the largest ones
  Halves more_deep, most_deep;  // along the depth
  PixelWalk<kDims> own_pixel;
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
