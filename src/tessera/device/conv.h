// What convolutions of every backend share: their arguments, and the view of each direction as a
// matrix product.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

enum class ConvDirection { forward, backward_data, backward_weight };

// An index for each spatial dimension: depth, height, width.
enum { kDepth, kHeight, kWidth, kSpatialDims };
// Indices into the strides of images and of filters.
enum { kImageN, kImageG, kImageC, kImageD, kImageH, kImageW, kImageStrides };
enum { kFilterG, kFilterK, kFilterC, kFilterZ, kFilterY, kFilterX, kFilterStrides };

// The one argument of every convolution. Plain C layout; a change here raises the family's ABI
// number (kAbi in src/tessera/families/conv/conv.h). x is the image of c channels, y the image of k
// channels, w the filters; one of the three is the result and its pointer is `out`. Strides count
// elements.
struct ConvArguments {
  i64 n, groups;
  i64 c, k;                // channels of x and of y in one group
  i64 size[kSpatialDims];  // of x
  i64 filter[kSpatialDims];
  i64 out_size[kSpatialDims];  // of y
  i64 stride[kSpatialDims], dilation[kSpatialDims];
  i64 pad[kSpatialDims];  // before the first element
  const void* x;          // null where it is the result
  const void* w;
  const void* y;
  const void* before;  // C, which lies as the result does; null when beta is 0
  const void* d[4];    // matrices lie as the result does, vectors have groups * k elements
  void* out;
  i64 x_stride[kImageStrides], w_stride[kFilterStrides], y_stride[kImageStrides];
  float alpha, beta, clamp_lo, clamp_hi;
};

}  // namespace tessera::device
