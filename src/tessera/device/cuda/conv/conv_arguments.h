// The arguments of the tmaws kernels of convolutions. Plain C layout; a change here raises the
// family's ABI number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/cuda/abi.h"

namespace tessera::device {

// The results as a matrix for each batch, which epilogue.h reads. A batch is a group, or for
// filters whose taps are stored one by one, a tap. backward_data: a row is a pair of elements, and
// rows lie anywhere.
struct ConvMatrix {
  i64 rows, columns, batch;
  const void* c;
  const void* d[4];
  void* out;
  i64 ld_c, ld_d[4], ld_out;
  i64 batch_stride_c, batch_stride_d[4], batch_stride_out;
  float alpha, beta, clamp_lo, clamp_hi;
  static constexpr int pointer_arrays = 0;
};
inline i64 rows_of(const ConvMatrix& g) { return g.rows; }
inline i64 columns_of(const ConvMatrix& g) { return g.columns; }

// Pixels that see the same taps: all of them, or in backward_data with strides one residue's.
// Lists of dimensions have the innermost one first.
struct alignas(64) ConvClass {
  CudaTensorMap image;  // the pixels that are read, as columns of pixels
  CudaTensorMap out;    // the results
  int first_tile, tiles_p;
  int rows;       // pixels of all images
  int steps;      // tiles of the depth
  int pixels[3];  // of one image
  int start[3];   // the place that the first tap of the first pixel has in the image
  int taps[3];
  int filter;  // the place of the first tap in the filter
};

// Channels of a slab. In backward_weight, columns of sums count whole slabs of each tap.
inline constexpr int kSlabChannels = 64;

// How many classes the arguments hold: strides of 3 by 3.
inline constexpr int kMostClasses = 9;

// The one parameter of every tmaws kernel (const __grid_constant__).
struct CudaConvArguments {
  CudaTensorMap other;      // the filters, or in backward_weight y
  CudaTensorMap d_maps[2];  // of the D tensors that lie as the result does
  ConvMatrix result;
  void* workspace;
  i64 partial_sums;  // slices: their offset in the workspace, in bytes
  int pitch;         // slices: columns between two rows of partial sums
  int lanes;         // repack: how many threads add up the slices of an element
  int num_classes, tiles, tiles_q, raster_group;
  // One group's channels of the image, of the other operand, and of the results.
  int image_channels, other_channels, result_channels;
  int slabs;  // how many tiles of depth, or of columns, a tap has
  int batch_is_tap;
  int pixel_step[3];   // from a pixel to the next one, in the image
  int tap_step[3];     // from a tap to the next one, in the image
  int filter_step[3];  // ... and in the filter
  // backward_data: what lies between the pixels of a class in x, in elements: between neighbours
  // along a dimension, between images, and from x to the first pixel.
  i64 pixel_stride[3];
  i64 image_stride;
  i64 class_offset[kMostClasses];
  ConvClass classes[kMostClasses];
};

}  // namespace tessera::device
