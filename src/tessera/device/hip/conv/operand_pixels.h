// The loader of pixels as the rows of A (operand.h): a chunk is 16 bytes of channels of the place
// that the row's pixel and the chunk's tap name, or zeros outside of the image. A thread's chunks
// are all of one column of the tile, so that it walks one way through taps and channels; a row has
// an offset and a mask with a bit for each tap along each dimension that is inside of the image: 16
// bits a dimension, or 10 where there are three.
#pragma once

#include "tessera/device/hip/conv/taps.h"

namespace tessera::device {

template <class T, int kTileRows, int kTileK, int kThreads, int kAhead, bool kDirect, bool kWhole,
          int kDims>
class PixelLoader {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T)), kElements = 16 / kSize;
  static constexpr int kChunks = kTileK / kElements;
  using Tile = LdsTile<kTileRows, kChunks, 1>;
  static constexpr int kAll = kTileRows * kChunks;
  static constexpr int kLoads = (kAll + kThreads - 1) / kThreads;
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kInstructions = kLoads;
  static_assert(kThreads % kChunks == 0 && kAll % kThreads == 0, "threads move whole tiles");
  static_assert(!kDirect || kRowsAtOnce % Tile::kPeriod == 0 || kLoads == 1,
                "chunks of a thread are of one column");
  struct Staged {
    Chunk chunks[kLoads];
  };

  __device__ __forceinline__ PixelLoader(const HipConvPart& gather, u64 image, i64 rows, int row,
                                         int k_first, int k_end, int thread_index)
      : g(gather),
        thread(thread_index),
        left(k_end - k_first - (kWhole ? 0 : column_of() * kElements)),
        walk(gather, pitch_of(gather), k_first + (kWhole ? 0 : column_of() * kElements),
             kWhole ? kNone : gather.turn, kWhole ? kTileK : gather.turn_channels) {
    const GridPixel<kDims> first(g, static_cast<u32>(row));
    base = uniform(image + static_cast<u64>(first.image * g.image_pitch));
    const int behind = __builtin_amdgcn_readfirstlane(g.images - first.image);
    bytes = (behind - 1) * g.image_pitch + g.image_bytes;
    int at[kLoads][3];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const GridPixel<kDims> pixel(g, static_cast<u32>(row + row_of(i)));
      const int place[3] = {pixel.d, pixel.h, pixel.w};
      offset[i] = (pixel.image - first.image) * static_cast<int>(g.image_pitch) +
                  (kWhole ? column_of() * 16 : 0);
#pragma unroll
      for (int dim = 3 - kDims; dim < 3; ++dim) {
        at[i][dim] = place[dim] * g.step[dim] + g.base[dim];
        offset[i] += at[i][dim] * g.pitch[dim];
      }
      mask[i] = 0;
    }
#pragma unroll
    for (int dim = 3 - kDims; dim < 3; ++dim) {
#pragma unroll 1
      for (int tap = 0; tap < g.taps[dim]; ++tap) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          mask[i] |= is_inside(at[i][dim] + tap * g.tap[dim], g.size[dim]) << (bit_of(dim) + tap);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) mask[i] = row + row_of(i) < rows ? mask[i] : 0;
  }

  __device__ __forceinline__ void fetch(Staged& to) {
    const Chunk buffer = make_buffer(base, bytes);
    const u32 tap = tap_bits();
    const int more = walk.offset;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      to.chunks[i] = raw_buffer_load_16(buffer, place(i, tap, more), 0, 0);
    }
    advance();
  }
  __device__ __forceinline__ void put(Shared* tile, Staged& from) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      store_shared(tile + Tile::offset(row_of(0), thread % kChunks, i * kRowsAtOnce, 0),
                   from.chunks[i]);
    }
  }
  __device__ __forceinline__ void copy(Shared* tile, int wave) {
    const Chunk buffer = make_buffer(base, bytes);
    const u32 tap = tap_bits();
    const int more = walk.offset;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      copy_to_shared(buffer, tile + (wave * 64 + i * kThreads) * 16, place(i, tap, more));
    }
    advance();
  }

 private:
  static constexpr int kNone[3] = {};
  // The first bit of the mask that is of a dimension's taps.
  static constexpr int bit_of(int dim) { return kDims == 3 ? 10 * (2 - dim) : 16 * (2 - dim); }
  static __device__ __forceinline__ TapPitch pitch_of(const HipConvPart& g) {
    return {kSize, kDims == 3 ? g.tap[kDepth] * g.pitch[kDepth] : 0,
            g.tap[kHeight] * g.pitch[kHeight], g.tap[kWidth] * g.pitch[kWidth]};
  }
  static __device__ __forceinline__ u32 is_inside(int at, int size) {
    return static_cast<u32>(at) < static_cast<u32>(size) ? 1 : 0;
  }
  __device__ __forceinline__ int index_of(int i) const {
    return kDirect ? Tile::chunk_at(thread + i * kThreads) : thread + i * kThreads;
  }
  __device__ __forceinline__ int row_of(int i) const { return index_of(i) / kChunks; }
  __device__ __forceinline__ int column_of() const { return index_of(0) % kChunks; }

  // The bits that a row must have; past the end of the depth, some that none has.
  __device__ __forceinline__ u32 tap_bits() const {
    u32 tap = 1U << (bit_of(kHeight) + walk.y) | 1U << walk.x;
    if constexpr (kDims == 3) tap |= 1U << (bit_of(kDepth) + walk.z);
    return left > 0 ? tap : ~0U;
  }
  __device__ __forceinline__ int place(int i, u32 tap, int more) const {
    return (mask[i] & tap) == tap ? offset[i] + more : kNowhere;
  }
  __device__ __forceinline__ void advance() {
    walk.step();
    left -= kTileK;
  }

  const HipConvPart& g;
  int thread;
  int left;  // of the depth, from the thread's chunk on
  TapWalk<kDims, kWhole> walk;
  u64 base;
  i64 bytes;
  int offset[kLoads];
  u32 mask[kLoads];
};

}  // namespace tessera::device
