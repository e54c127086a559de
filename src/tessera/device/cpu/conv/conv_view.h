// A convolution as products of matrices: for each group, and for backward_data each class of pixels
// that meet the same taps.
//
// forward:         (pixels of y) x (taps, channels of x) x (channels of y)
// backward_data:   (pixels of x of a class) x (its taps, channels of y) x (channels of x)
// backward_weight: (channels of y) x (pixels of y) x (taps, channels of x)
// In nchw the first two are transposed, and taps lie inside of channels where filters are read in
// the order of memory.
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/cpu/grid.h"

namespace tessera::device {

// Pixel i and tap j of a class meet at source place base + i * pixel_step + j * tap_step.
struct ConvAxis {
  i64 pixels, taps;
  i64 base, pixel_step, tap_step;
  i64 size;                       // of the source
  i64 first_tap, tap_stride;      // in the filter
  i64 first_pixel, pixel_stride;  // in the image of pixels
};

inline i64 greatest_divisor(i64 a, i64 b) {
  while (b != 0) {
    const i64 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

inline ConvAxis forward_axis(const ConvArguments& g, int dim) {
  return {g.out_size[dim],
          g.filter[dim],
          -g.pad[dim],
          g.stride[dim],
          g.dilation[dim],
          g.size[dim],
          0,
          1,
          0,
          1};
}

// Pixels of x whose number is `residue` modulo the stride.
inline ConvAxis backward_axis(const ConvArguments& g, int dim, i64 residue) {
  const i64 stride = g.stride[dim], dilation = g.dilation[dim];
  ConvAxis a{};
  a.pixels = blocks_of(g.size[dim] - residue, stride);
  a.first_pixel = residue;
  a.pixel_stride = stride;
  a.size = g.out_size[dim];
  a.pixel_step = 1;
  a.tap_stride = stride / greatest_divisor(stride, dilation);
  const i64 place = residue + g.pad[dim];
  while (a.first_tap < g.filter[dim] && (place - a.first_tap * dilation) % stride != 0) {
    if (++a.first_tap == a.tap_stride) return a;  // no tap meets this class
  }
  if (a.first_tap >= g.filter[dim]) return a;
  // Taps are taken from the last one on, so that their places ascend.
  a.taps = blocks_of(g.filter[dim] - a.first_tap, a.tap_stride);
  a.first_tap += (a.taps - 1) * a.tap_stride;
  a.base = (place - a.first_tap * dilation) / stride;
  a.tap_step = dilation * a.tap_stride / stride;
  a.tap_stride = -a.tap_stride;
  return a;
}

// The tensors of one group, and how they meet.
struct ConvView {
  ConvAxis axis[kSpatialDims];
  i64 images;                       // n
  i64 rows, columns, depth;         // of the product; depth counts elements, padded to whole words
  i64 channels, padded;             // of a tap: of the source, and with the padding of words
  i64 line_taps;                    // taps of a line whose channels count as those of one tap
  i64 image_stride[kImageStrides];  // of the image whose pixels the source is
  i64 pixel_stride[kImageStrides];  // of the other image
  i64 source_at, pixels_at, filter_at;  // the group's first elements
  i64 taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
  i64 pixels() const { return images * axis[0].pixels * axis[1].pixels * axis[2].pixels; }
};

// A place in a nest of four counters, the last one fastest: image, depth, height, width.
struct ConvPixel {
  i64 n, at[kSpatialDims];
};
inline ConvPixel pixel_of(const ConvView& v, i64 number) {
  ConvPixel p{};
  for (int dim = kWidth; dim >= kDepth; --dim) {
    p.at[dim] = number % v.axis[dim].pixels;
    number /= v.axis[dim].pixels;
  }
  p.n = number;
  return p;
}
// The first pixel of the next line.
inline void next_line(const ConvView& v, ConvPixel& p) {
  p.at[kWidth] = 0;
  for (int dim = kHeight; dim >= kDepth; --dim) {
    if (++p.at[dim] < v.axis[dim].pixels) return;
    p.at[dim] = 0;
  }
  ++p.n;
}
// The place of a pixel in its own image, in elements.
inline i64 offset_of(const ConvView& v, const ConvPixel& p) {
  i64 at = v.pixels_at + p.n * v.pixel_stride[kImageN];
  for (int dim = kDepth; dim <= kWidth; ++dim) {
    const ConvAxis& a = v.axis[dim];
    at += (a.first_pixel + p.at[dim] * a.pixel_stride) * v.pixel_stride[kImageD + dim];
  }
  return at;
}
// The distance of neighbouring pixels.
inline i64 pixel_distance(const ConvView& v) {
  return v.pixel_stride[kImageW] * v.axis[kWidth].pixel_stride;
}
// Whether all pixels lie at one distance.
inline bool pixels_are_even(const ConvView& v) {
  i64 distance = pixel_distance(v), count = v.axis[kWidth].pixels;
  for (int dim = kHeight; dim >= kDepth; --dim) {
    const ConvAxis& a = v.axis[dim];
    if (a.pixels > 1 && v.pixel_stride[kImageD + dim] * a.pixel_stride != distance * count) {
      return false;
    }
    count *= a.pixels;
  }
  return v.images == 1 || v.pixel_stride[kImageN] == distance * count;
}

// Whether the sources of all pixels lie at one distance, which is so for some filters of one tap.
inline bool sources_are_even(const ConvView& v) {
  if (v.line_taps != 1) return false;
  const i64 distance = v.image_stride[kImageW] * v.axis[kWidth].pixel_step;
  i64 count = 1;
  for (int dim = kWidth; dim >= kDepth; --dim) {
    const ConvAxis& a = v.axis[dim];
    if (a.taps != 1 || a.base < 0 || a.base + (a.pixels - 1) * a.pixel_step >= a.size) return false;
    const i64 step = v.image_stride[kImageD + dim] * a.pixel_step;
    if (a.pixels > 1 && step != distance * count) return false;
    count *= a.pixels;
  }
  return v.images == 1 || v.image_stride[kImageN] == distance * count;
}

struct ConvTap {
  i64 at[kSpatialDims];
};
inline ConvTap tap_of(const ConvView& v, i64 number) {
  ConvTap t{};
  for (int dim = kWidth; dim >= kDepth; --dim) {
    t.at[dim] = number % v.axis[dim].taps;
    number /= v.axis[dim].taps;
  }
  return t;
}
inline void next_tap(const ConvView& v, ConvTap& t) {
  for (int dim = kWidth; dim >= kDepth; --dim) {
    if (++t.at[dim] < v.axis[dim].taps) return;
    t.at[dim] = 0;
  }
}
// The place of a tap in the filters, in elements.
inline i64 filter_offset(const ConvArguments& g, const ConvView& v, const ConvTap& t) {
  i64 at = v.filter_at;
  for (int dim = kDepth; dim <= kWidth; ++dim) {
    const ConvAxis& a = v.axis[dim];
    at += (a.first_tap + t.at[dim] * a.tap_stride) * g.w_stride[kFilterZ + dim];
  }
  return at;
}

}  // namespace tessera::device
