// What depthwise convolutions share: vectors of channels, and the walk of a lane from run to run.
#pragma once

#pragma clang force_cuda_host_device begin
#include "tessera/device/hip/conv/depthwise_arguments.h"
#pragma clang force_cuda_host_device end
#include "tessera/device/hip/memory.h"

namespace tessera::device {

__device__ Vec<u32, 2> raw_buffer_load_8(Chunk buffer, int offset, int scalar,
                                         int flags) __asm("llvm.amdgcn.raw.buffer.load.v2i32");

// kCount neighbouring channels of a pixel: 4, 8 or 16 bytes.
template <class T, int kCount>
struct ChannelVector {
  static constexpr int kWords = kCount * static_cast<int>(sizeof(T)) / 4;
  static_assert(kWords == 1 || kWords == 2 || kWords == 4, "a load brings whole dwords");
  u32 words[kWords];

  __device__ __forceinline__ void load(Chunk buffer, int offset) {
    if constexpr (kWords == 1) {
      words[0] = raw_buffer_load_4(buffer, offset, 0, 0);
    } else if constexpr (kWords == 2) {
      set(raw_buffer_load_8(buffer, offset, 0, 0));
    } else {
      set(raw_buffer_load_16(buffer, offset, 0, 0));
    }
  }
  __device__ __forceinline__ float operator[](int i) const {
    constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
    const u32 word = words[i / kPerWord] >> 32 / kPerWord * (i % kPerWord) % 32;
    return to_float(bits<T>(static_cast<WordBits<T>>(word)));
  }

 private:
  template <class Loaded>
  __device__ __forceinline__ void set(const Loaded& loaded) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = loaded[i];
  }
};

// The run of a lane: an image, and a place of each dimension, along the width in runs.
struct DepthwiseRun {
  int number, image, at[kSpatialDims];

  __device__ __forceinline__ DepthwiseRun(const HipDepthwisePart& p, int first) : number(first) {
    u32 rest = static_cast<u32>(first);
#pragma unroll
    for (int dim = kSpatialDims - 1; dim >= 0; --dim) {
      const u32 up = rest / static_cast<u32>(p.grid[dim]);
      at[dim] = static_cast<int>(rest - up * static_cast<u32>(p.grid[dim]));
      rest = up;
    }
    image = static_cast<int>(rest);
  }
  __device__ __forceinline__ void step(const HipDepthwisePart& p, int runs) {
    number += runs;
    int carry = 0;
#pragma unroll
    for (int dim = kSpatialDims - 1; dim >= 0; --dim) {
      at[dim] += p.next[dim] + carry;
      const bool is_past = at[dim] >= p.grid[dim];
      at[dim] -= is_past ? p.grid[dim] : 0;
      carry = is_past ? 1 : 0;
    }
    image += p.next_n + carry;
  }
};

// How a block's lanes share vectors of channels and runs, and where a weight of each channel is in
// LDS: quads of a lane's channels lie apart, so that lanes next to each other have neighbours
// there.
template <class T, int kTileN>
struct DepthwiseLanes {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));  // channels of y of a lane
  static constexpr int kAcross = kTileN / kVector;
  static constexpr int kRuns = kHipDepthwiseLanes / kAcross;  // of a block at a time
  static constexpr int kQuads = kVector / 4;
  static constexpr int kQuadBytes = kAcross * 16;
  static constexpr int kLineBytes = kTileN * 4;  // one number of each channel
  static_assert(kAcross * kVector == kTileN && kRuns * kAcross == kHipDepthwiseLanes);

  // The channel whose number is the `place`-th one of a line.
  static __device__ __forceinline__ int channel_at(int place) {
    return place / 4 % kAcross * kVector + place / (4 * kAcross) * 4 + place % 4;
  }
  static __device__ __forceinline__ void load(const Shared* line, int across,
                                              float (&to)[kVector]) {
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const auto four = load_shared<Float4>(line + quad * kQuadBytes + across * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[quad * 4 + i] = four[i];
    }
  }
  static __device__ __forceinline__ void store(Shared* line, int across,
                                               const float (&from)[kVector]) {
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      store_shared(
          line + quad * kQuadBytes + across * 16,
          Float4{from[quad * 4], from[quad * 4 + 1], from[quad * 4 + 2], from[quad * 4 + 3]});
    }
  }
};

// Where a place of a line of the image lies; past the end where it is outside.
__device__ __forceinline__ int depthwise_place(const HipDepthwiseImage& image, int line,
                                               bool is_inside, int place) {
  is_inside &= static_cast<u32>(place) < static_cast<u32>(image.size[kWidth]);
  return is_inside ? line + place * image.pitch[kWidth] : kNowhere;
}
// The line that a run's pixel meets at a tap, from the first image on; whether it is inside.
__device__ __forceinline__ bool depthwise_line(const HipDepthwiseImage& image,
                                               const HipDepthwisePart& p, const DepthwiseRun& run,
                                               int z, int y, int& line) {
  const int d = run.at[kDepth] * p.step[kDepth] + p.base[kDepth] + z * p.tap[kDepth];
  const int h = run.at[kHeight] * p.step[kHeight] + p.base[kHeight] + y * p.tap[kHeight];
  line = run.image * static_cast<int>(image.image_pitch) + d * image.pitch[kDepth] +
         h * image.pitch[kHeight];
  return (static_cast<u32>(d) < static_cast<u32>(image.size[kDepth])) &
         (static_cast<u32>(h) < static_cast<u32>(image.size[kHeight]));
}

}  // namespace tessera::device
