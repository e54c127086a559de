// Where a chunk of the depth lies, and where a pixel. Walks add to an offset in bytes instead of
// multiplying. With kDims of 2 there are no places along the depth of an image.
#pragma once

#include "tessera/device/hip/conv/conv_arguments.h"
#include "tessera/device/hip/operand.h"

namespace tessera::device {

// Bytes from a channel, and from a tap along each dimension, to the next one.
struct TapPitch {
  int channel, z, y, x;
};

// A tap by its number.
template <int kDims>
struct Tap {
  int z, y, x;
  __device__ __forceinline__ Tap(const HipConvPart& g, u32 number) {
    const u32 line = number / static_cast<u32>(g.taps[kWidth]);
    x = static_cast<int>(number - line * static_cast<u32>(g.taps[kWidth]));
    z = 0, y = static_cast<int>(line);
    if constexpr (kDims == 3) {
      z = static_cast<int>(line / static_cast<u32>(g.taps[kHeight]));
      y = static_cast<int>(line) - z * g.taps[kHeight];
    }
  }
};

// The tap and the channel of a chunk or a line of the depth. With kWhole, a tile of the depth has
// one tap: channels are a multiple of it. The walk is then that of the tile, in scalar registers,
// and chunks lie behind it.
template <int kDims, bool kWhole>
struct TapWalk {
  int z = 0, y = 0, x = 0, channel = 0;
  int offset = 0;
  int next_step = 0, next_x = 0, next_y = 0;  // what a step adds to it, and the ends of the loops
  int next_z = 0;

  TapWalk() = default;
  // A step is so many taps and channels: less than all taps of a line, less than all channels.
  __device__ __forceinline__ TapWalk(const HipConvPart& g, const TapPitch& pitch, int k,
                                     const int (&more)[3], int more_channels) {
    const u32 number = static_cast<u32>(k) / static_cast<u32>(g.channels);
    channel = k - static_cast<int>(number) * g.channels;
    const Tap<kDims> tap(g, number);
    z = tap.z, y = tap.y, x = tap.x;
    offset = channel * pitch.channel + x * pitch.x + y * pitch.y + z * pitch.z;
    if constexpr (kWhole) {
      channel = __builtin_amdgcn_readfirstlane(channel);
      z = __builtin_amdgcn_readfirstlane(z);
      y = __builtin_amdgcn_readfirstlane(y);
      x = __builtin_amdgcn_readfirstlane(x);
      offset = __builtin_amdgcn_readfirstlane(offset);
    }
    step_z = more[kDepth], step_y = more[kHeight], step_x = more[kWidth];
    step_channels = more_channels;
    channels = g.channels, taps_x = g.taps[kWidth], taps_y = g.taps[kHeight];
    next_step = more_channels * pitch.channel + step_x * pitch.x + step_y * pitch.y;
    if constexpr (kDims == 3) next_step += step_z * pitch.z;
    next_x = pitch.x - channels * pitch.channel;
    next_y = pitch.y - taps_x * pitch.x;
    next_z = pitch.z - taps_y * pitch.y;
  }
  __device__ __forceinline__ void step() {
    channel += step_channels;
    offset += next_step;
    const bool past_channels = channel >= channels;
    channel -= past_channels ? channels : 0;
    offset += past_channels ? next_x : 0;
    x += step_x + (past_channels ? 1 : 0);
    const bool past_line = x >= taps_x;
    x -= past_line ? taps_x : 0;
    offset += past_line ? next_y : 0;
    y += step_y + (past_line ? 1 : 0);
    if constexpr (kDims == 3) {
      const bool past_plane = y >= taps_y;
      y -= past_plane ? taps_y : 0;
      offset += past_plane ? next_z : 0;
      z += step_z + (past_plane ? 1 : 0);
    }
  }

 private:
  int step_z = 0, step_y = 0, step_x = 0, step_channels = 0;
  int channels = 0, taps_x = 0, taps_y = 0;
};

// From the first byte of the gathered images to their last one.
__device__ __forceinline__ i64 bytes_of(const HipConvPart& g) {
  return i64{g.images - 1} * g.image_pitch + g.image_bytes;
}

// A pixel of the grid by its number.
template <int kDims>
struct GridPixel {
  int image, d, h, w;
  __device__ __forceinline__ GridPixel(const HipConvPart& g, u32 number) {
    const u32 line = take(number, g.grid[kWidth], w);
    const u32 plane = take(line, g.grid[kHeight], h);
    d = 0, image = static_cast<int>(plane);
    if constexpr (kDims == 3) image = static_cast<int>(take(plane, g.grid[kDepth], d));
  }

 private:
  static __device__ __forceinline__ u32 take(u32 number, int size, int& digit) {
    const u32 rest = number / static_cast<u32>(size);
    digit = static_cast<int>(number - rest * static_cast<u32>(size));
    return rest;
  }
};

// Where the pixels of the grid lie in the gathered image, the first tap and padding aside. A step
// is next_n images and so many places along each dimension.
template <int kDims>
struct PixelWalk {
  int d, h, w, offset;

  __device__ __forceinline__ PixelWalk(const HipConvPart& g, int number) {
    const GridPixel<kDims> pixel(g, static_cast<u32>(number));
    const int image = static_cast<int>(g.image_pitch);
    d = pixel.d * g.step[kDepth], h = pixel.h * g.step[kHeight], w = pixel.w * g.step[kWidth];
    offset = pixel.image * image + h * g.pitch[kHeight] + w * g.pitch[kWidth];
    if constexpr (kDims == 3) offset += d * g.pitch[kDepth];
    next_step = g.next_n * image;
#pragma unroll
    for (int i = 3 - kDims; i < 3; ++i) {
      one[i] = g.step[i], more[i] = g.next[i] * g.step[i], end[i] = g.grid[i] * g.step[i];
      next_step += more[i] * g.pitch[i];
    }
    past[kWidth] = one[kHeight] * g.pitch[kHeight] - end[kWidth] * g.pitch[kWidth];
    past[kHeight] = image - end[kHeight] * g.pitch[kHeight];
    if constexpr (kDims == 3) {
      past[kHeight] = one[kDepth] * g.pitch[kDepth] - end[kHeight] * g.pitch[kHeight];
      past[kDepth] = image - end[kDepth] * g.pitch[kDepth];
    }
  }
  __device__ __forceinline__ void step() {
    offset += next_step;
    w += more[kWidth];
    const bool past_row = carry(w, kWidth);
    h += more[kHeight] + (past_row ? one[kHeight] : 0);
    const bool past_plane = carry(h, kHeight);
    if constexpr (kDims == 3) {
      d += more[kDepth] + (past_plane ? one[kDepth] : 0);
      carry(d, kDepth);
    }
  }

 private:
  __device__ __forceinline__ bool carry(int& place, int dim) {
    const bool is_past = place >= end[dim];
    place -= is_past ? end[dim] : 0;
    offset += is_past ? past[dim] : 0;
    return is_past;
  }
  int one[3], more[3], end[3], past[3], next_step;
};

}  // namespace tessera::device
