// The arguments of HIP convolutions that copy their operands first. Plain C layout; a change here
// raises the family's ABI number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/hip/conv/conv_arguments.h"

namespace tessera::device {

inline constexpr int kHipCopyLanes = 256;   // of a block
inline constexpr int kHipRepackParts = 14;  // that a launch has at most: arguments have 4 KB

// Lines of channels, of images [n][d][h][w][g] or filters [g][k][z][y][x], to lines of whole chunks
// of 16 bytes, packed in that order. A group here is `together` groups of the problem side by side;
// filters have zeros for the channels of other groups than theirs. What does not exist becomes
// zeros, too.
struct HipConvCopy {
  const void* from;
  i64 to;  // offset in the workspace, in bytes
  int sizes[5];
  i64 strides[5];        // elements
  int chunks, channels;  // of a line; channels: that exist
  int of_group;          // channels of a group of the problem
  i64 channel_stride, group_stride;
  int rows, rows_of_group;  // filters: of sizes[1], those that exist
  i64 row_group_stride;
  int is_filter;
  int across;  // not 0: neighbouring lanes have neighbours along the width
};

// Where results lie: elements from the first one of a group. backward_data with its residues has
// the places of pixels in its parts.
struct HipConvResult {
  i64 image, place[kSpatialDims];  // of pixels, or of backward_weight of taps
  int channels, of_group;          // of a pixel or a tap: that exist; of a group of the problem
  i64 channel_stride, group_stride;
  int rows, rows_of_group;  // backward_weight: channels of y
  i64 row_stride;
};

template <int kParts>
struct HipRepackArguments {
  HipConvArguments<kParts> conv;
  i64 in_workspace[2];  // of A and B: -1 where it is a copy, whose address is an offset, or 0
  HipConvCopy copies[2];
  HipConvResult result;
};

}  // namespace tessera::device
