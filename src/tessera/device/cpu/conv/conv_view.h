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
  i64 filter_channels;              // of a tap in the filters; a copy of the source may have more
  i64 merged;                       // groups that are one product
  i64 line_taps;                    // taps of a line whose channels count as those of one tap
  i64 cell, last_cell;              // pixels of a line that make up a row of the product, see below
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
// ---- cells ----
//
// Where a result has few channels, some neighbouring pixels of a line make up one row of the
// product, a cell, and their channels are its columns. The taps of a cell are all those places that
// any of its pixels meets. A pixel that does not meet one of them has zeros there instead of a
// filter. For three channels and 3x3 taps, cells of five pixels need 7 columns of taps for 15
// lanes, where single pixels need 15 for 3 lanes each.

// The taps of a line that a cell meets, and the place of the first one for the first cell.
struct CellTaps {
  i64 first, count;
};
template <bool kForward>
inline CellTaps cell_taps(const ConvArguments& g, i64 cell) {
  const i64 reach = (g.filter[kWidth] - 1) * g.dilation[kWidth], pad = g.pad[kWidth];
  const i64 stride = g.stride[kWidth];
  if (kForward) return {-pad, (cell - 1) * stride + reach + 1};
  const i64 least = pad - reach;
  const i64 first = least < 0 ? -(-least / stride) : blocks_of(least, stride);
  return {first, (cell - 1 + pad) / stride + 1 - first};
}
// The number of a filter's tap that pixel `pixel` of a cell has at the cell's tap, or -1.
template <bool kForward>
inline i64 filter_of_cell(const ConvArguments& g, i64 first, i64 tap, i64 pixel) {
  const i64 stride = g.stride[kWidth], dilation = g.dilation[kWidth];
  const i64 distance =
      kForward ? tap - pixel * stride : pixel + g.pad[kWidth] - stride * (first + tap);
  if (distance < 0 || distance % dilation != 0) return -1;
  return distance / dilation < g.filter[kWidth] ? distance / dilation : -1;
}
// How many pixels make up a cell of at most `most` columns: 1 where cells save too little.
template <bool kForward>
inline i64 cell_of(const ConvArguments& g, i64 most) {
  const i64 channels = kForward ? g.k : g.c, width = (kForward ? g.out_size : g.size)[kWidth];
  const i64 step = kForward ? 1 : g.stride[kWidth];
  if (g.groups != 1 || (kForward ? g.y_stride : g.x_stride)[kImageW] != channels) return 1;
  // Vectors of products for each pixel of a line.
  const double alone = static_cast<double>(g.filter[kWidth] * blocks_of(channels, kLanes)) /
                       static_cast<double>(step);
  constexpr double kWorthIt = 0.8;
  double least = kWorthIt * alone;
  i64 best = 1;
  for (i64 cell = step; cell * channels <= most && cell <= width; cell += step) {
    const i64 taps = cell_taps<kForward>(g, cell).count;
    const double cost =
        static_cast<double>(taps * blocks_of(cell * channels, kLanes)) / static_cast<double>(cell);
    if (cell == 1 || taps < 1 || cost >= least) continue;
    least = cost;
    best = cell;
  }
  return best;
}
// The axis of the width for cells.
template <bool kForward>
inline ConvAxis cell_axis(const ConvArguments& g, i64 cell) {
  const CellTaps taps = cell_taps<kForward>(g, cell);
  const i64 width = (kForward ? g.out_size : g.size)[kWidth];
  ConvAxis a{};
  a.pixels = blocks_of(width, cell);
  a.taps = taps.count;
  a.base = taps.first;
  a.pixel_step = kForward ? cell * g.stride[kWidth] : cell / g.stride[kWidth];
  a.tap_step = 1;
  a.size = (kForward ? g.size : g.out_size)[kWidth];
  a.tap_stride = 1;
  a.pixel_stride = cell;
  return a;
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
