// Where a chunk of the depth lies, and where a pixel. Walks add to an offset in bytes instead of
// multiplying.
#pragma once

#include "tessera/device/hip/conv/conv_arguments.h"
#include "tessera/device/hip/operand.h"

namespace tessera::device {

// Bytes from a channel, and from a tap along the width and the height, to the next one.
struct TapPitch {
  int channel, x, y;
};

// The tap and the channel of a chunk or a line of the depth. With kWhole, a tile of the depth has
// one tap: channels are a multiple of it. The walk is then that of the tile, in scalar registers,
// and chunks lie behind it.
template <bool kWhole>
struct TapWalk {
  int y = 0, x = 0, channel = 0;
  int offset = 0;
  int next_step = 0, next_x = 0, next_y = 0;  // what a step adds to it, and the ends of the loops

  TapWalk() = default;
  // A step is so many taps and channels: less than all taps of a line, less than all channels.
  __device__ __forceinline__ TapWalk(const HipConvPart& gather, const TapPitch& pitch, int k,
                                     int more_y, int more_x, int more_channels) {
    const u32 tap = static_cast<u32>(k) / static_cast<u32>(gather.channels);
    channel = k - static_cast<int>(tap) * gather.channels;
    y = static_cast<int>(tap / static_cast<u32>(gather.taps_w));
    x = static_cast<int>(tap) - y * gather.taps_w;
    offset = channel * pitch.channel + x * pitch.x + y * pitch.y;
    if constexpr (kWhole) {
      channel = __builtin_amdgcn_readfirstlane(channel);
      y = __builtin_amdgcn_readfirstlane(y);
      x = __builtin_amdgcn_readfirstlane(x);
      offset = __builtin_amdgcn_readfirstlane(offset);
    }
    step_y = more_y, step_x = more_x, step_channels = more_channels;
    channels = gather.channels, taps = gather.taps_w;
    next_step = more_channels * pitch.channel + more_x * pitch.x + more_y * pitch.y;
    next_x = pitch.x - channels * pitch.channel;
    next_y = pitch.y - taps * pitch.x;
  }
  __device__ __forceinline__ void step() {
    channel += step_channels;
    offset += next_step;
    const bool past_channels = channel >= channels;
    channel -= past_channels ? channels : 0;
    offset += past_channels ? next_x : 0;
    x += step_x + (past_channels ? 1 : 0);
    const bool past_line = x >= taps;
    x -= past_line ? taps : 0;
    offset += past_line ? next_y : 0;
    y += step_y + (past_line ? 1 : 0);
  }

 private:
  int step_y = 0, step_x = 0, step_channels = 0, channels = 0, taps = 0;
};

// From the first byte of the gathered images to their last one.
__device__ __forceinline__ i64 bytes_of(const HipConvPart& g) {
  return i64{g.images - 1} * g.image_pitch + g.image_bytes;
}

// A pixel of the grid by its number.
struct GridPixel {
  int image, row, column;
  __device__ __forceinline__ GridPixel(const HipConvPart& g, u32 number) {
    const u32 line = number / static_cast<u32>(g.grid_w);
    column = static_cast<int>(number - line * static_cast<u32>(g.grid_w));
    image = static_cast<int>(line / static_cast<u32>(g.grid_h));
    row = static_cast<int>(line) - image * g.grid_h;
  }
};

// Where the pixels of the grid lie in the gathered image, tap (0, 0) and padding aside. A step is
// next_n images, next_h rows and next_w pixels.
struct PixelWalk {
  int h, w, offset;

  __device__ __forceinline__ PixelWalk(const HipConvPart& g, int number)
      : step_w(g.next_w * g.step_w),
        step_h(g.next_h * g.step_h),
        row_step(g.step_h),
        end_w(g.grid_w * g.step_w),
        end_h(g.grid_h * g.step_h) {
    const GridPixel pixel(g, static_cast<u32>(number));
    h = pixel.row * g.step_h, w = pixel.column * g.step_w;
    offset = pixel.image * static_cast<int>(g.image_pitch) + h * g.row_pitch + w * g.column_pitch;
    next_step =
        g.next_n * static_cast<int>(g.image_pitch) + step_h * g.row_pitch + step_w * g.column_pitch;
    next_row = g.step_h * g.row_pitch - end_w * g.column_pitch;
    next_image = static_cast<int>(g.image_pitch) - end_h * g.row_pitch;
  }
  __device__ __forceinline__ void step() {
    w += step_w;
    offset += next_step;
    const bool past_row = w >= end_w;
    w -= past_row ? end_w : 0;
    offset += past_row ? next_row : 0;
    h += step_h + (past_row ? row_step : 0);
    const bool past_image = h >= end_h;
    h -= past_image ? end_h : 0;
    offset += past_image ? next_image : 0;
  }

 private:
  int step_w, step_h, row_step, end_w, end_h, next_step, next_row, next_image;
};

}  // namespace tessera::device
