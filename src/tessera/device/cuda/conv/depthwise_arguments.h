// The argument of the depthwise kernels of convolutions. Plain C layout; a change here raises the
// family's ABI number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"

namespace tessera::device {

// A patch is the results that a thread has for a channel: lines x columns of one image of the
// result; backward_weight: of y.
struct DepthwiseArguments {
  ConvArguments conv;
  void* workspace;
  i64 partial_sums;  // slices: their offset in the workspace, in bytes
  // Bytes from a line or column to the next one: of the image, and of the result or y; any filter:
  // not used.
  int image_line, image_column;
  int other_line, other_column;
  int channels;  // of the result, over all groups
  int vectors;   // of a block: how many vectors of channels it has
  int channel_blocks;
  int together;            // of a block: how many patches (or taps) it has at a time
  int across, down, deep;  // patches of an image along its dimensions
  int patches;             // of all images
  int taps;                // of a filter
};

// backward_weight, the second step: so many threads add up the slices of an element.
inline constexpr int kDepthwiseLanes = 8;

}  // namespace tessera::device
