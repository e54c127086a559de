// The arguments of HIP convolutions: those of the product that a convolution is, and where its
// pixels and taps lie. Plain C layout; a change here raises the family's ABI number (kAbi in
// src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"

namespace tessera::device {

// A launch makes one product or, of backward_data with strides, one for each residue of a pixel's
// place: the second number of a workgroup says which. Rows of A, or steps of the depth of
// backward_weight, are pixels (an image and a place) of a grid. A pixel and a tap name a place of
// the image that is gathered: along each dimension (depth, height, width)
//   place * step + base + tap number * tap
// The depth of A counts channels, then taps along the width, along the height and along the depth.
struct HipConvPart {
  int m, n, k, batch;
  int images, channels;          // channels: in whole chunks of 16 bytes
  int grid[3], size[3];          // size: of the gathered image
  int step[3], base[3], tap[3];  // places
  int taps[3];                   // at most 15 each, of three dimensions 10; any of backward_weight
  int pitch[3];                  // bytes from a place to the next one
  i64 image_pitch;               // bytes
  i64 image_bytes;               // of one image, from its first byte to its last one
  // A tile of the depth is so many taps, the numbers of each dimension, and turn_channels channels.
  int turn[3], turn_channels;
  // backward_data on gfx950: the same for the lines that a thread copies at once.
  int line[3], line_channels;
  // backward_weight: a tile of the depth (gfx950: the lines that a thread copies at once) is next_n
  // images and so many places.
  int next[3], next_n;
  // backward_data: filters as B, whose lines are channels of the depth; bytes from a channel, and
  // from a tap to the next one.
  int filter_line, filter[3];
  i64 filter_first;  // bytes to the first tap
  // backward_data: where pixels of the grid are in the result, counted in rows of ld_out elements.
  i64 result_first, result_image;
  int result[3];
};

// The sizes of the output, as of GemmArguments.
constexpr i64 rows_of(const HipConvPart& p) { return p.m; }
constexpr i64 columns_of(const HipConvPart& p) { return p.n; }

inline constexpr int kHipConvParts = 16;  // that a launch has at most

template <int kParts>
struct HipConvArguments {
  HipGemmArguments product;  // a and b: of group 0; batches are groups
  HipConvPart parts[kParts];
};

}  // namespace tessera::device
