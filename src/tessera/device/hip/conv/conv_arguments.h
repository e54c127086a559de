// The arguments of HIP convolutions: those of the product that a convolution is, and where its
// pixels and taps lie. Plain C layout; a change here raises the family's ABI number (kAbi in
// src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/hip/gemm/gemm_arguments.h"

namespace tessera::device {

// A launch makes one product or, of backward_data with strides, one for each residue of a pixel's
// place: the second number of a workgroup says which. Rows of A, or steps of the depth of
// backward_weight, are pixels (image, row, column) of a grid. A pixel and a tap (y, x) name a place
// of the image that is gathered:
//   (row * step_h + base_h + y * tap_h, column * step_w + base_w + x * tap_w)
// The depth of A counts channels, then taps along the width, then along the height.
struct HipConvPart {
  i64 m, n, k, batch;
  int images, grid_h, grid_w;
  int height, width;  // of the gathered image
  int step_h, step_w, base_h, base_w, tap_h, tap_w;
  int taps_h, taps_w;           // at most 15 each
  int channels;                 // a multiple of 8
  i64 image_pitch;              // bytes
  i64 image_bytes;              // of one image, from its first byte to its last one
  int row_pitch, column_pitch;  // bytes
  // A tile of the depth is turn_h * taps_w + turn_w taps and turn_channels channels.
  int turn_h, turn_w, turn_channels;
  // backward_data on gfx950: the same for the lines that a thread copies at once.
  int line_h, line_w, line_channels;
  // backward_weight: a tile of the depth (gfx950: the lines that a thread copies at once) is next_n
  // images, next_h rows and next_w pixels.
  int next_n, next_h, next_w;
  // backward_data: filters as B, whose lines are channels of the depth.
  int filter_line, filter_h, filter_w;  // bytes from a channel, a tap to the next one
  i64 filter_first;                     // bytes to the first tap
  // backward_data: where pixels of the grid are in the result, counted in rows of ld_out elements.
  i64 result_first, result_image;
  int result_row, result_column;
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
