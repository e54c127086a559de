// The arguments of tmaws kernels that copy operands first, and where each element of a copy comes
// from. Plain C layout; a change here raises the family's ABI number (kAbi in
// src/tessera/families/conv/conv.h).
//
// An image is copied to cells of channels. Mostly a cell is a pixel and its channels are those of
// all groups, rounded up to a multiple of 8. For few channels (a stem) a cell holds the pixels
// between two results, in every dimension, so that one line of cells holds all that a line of the
// filter needs; pixels outside of the image are zeros in the copy.
//
// Where a pixel has few results, a row of the product is a cell of neighbouring pixels, all their
// results side by side. The filters are copied once for each of a cell's pixels, moved as it is.
#pragma once

#include "tessera/device/cuda/conv/conv_arguments.h"

namespace tessera::device {

inline constexpr int kOctet = 8;  // elements of 16 bits in 16 bytes

struct ImageCopy {
  const void* from;
  i64 to;                 // offset in the workspace, in bytes; 0: the image is read where it lies
  i64 image, group;       // strides of the image that is given, in elements
  i64 channel, pixel[3];  // depth, height, width
  int size[3];            // of that image
  int step[3], pad[3];    // pixels of a cell, pixels before the first one
  int cells[3];
  int octets;                    // in the whole copy
  int channels, group_channels;  // one group where the channels of all adjoin
  int cell_channels;             // of a pixel in its cell, a multiple of 4
};

// The filters of a problem, and their copy: [k][tap][channel]. In the copy a group of `together`
// groups has the channels of all of them, and zeros where the channel is another group's. 0: the
// filter of a stem, whose taps are lines of cells. Its groups are neighbouring results of a line,
// which all have the same filters.
struct FilterCopy {
  const void* from;
  i64 to;
  i64 stride[kFilterStrides];
  int groups, k, c;  // k and c of one group
  int together;
  int taps[3], dilation[3];
};

struct CudaRepackArguments : CudaConvArguments {
  // backward_weight: x and y. Otherwise the one that is read, and where results have cells, the
  // result: its strides, `size`, `step` and `channels`, in `cells` the copied filter's taps, and in
  // `pad` the place that the first pixel of a cell has in the filter at the first of these.
  ImageCopy images[2];
  FilterCopy filter;   // backward_weight: the result
  i64 channel_stride;  // of the result, where it is not filters
  int by_copy;         // backward_data: the copy engine stores the result
  int transposed;      // a bit for each of `images`: planes that are transposed
};
static_assert(sizeof(CudaRepackArguments) <= 4088, "a launch has 4096 bytes of arguments");

struct CellPlace {
  int at[3];  // the cell
  int image, octet;
};
inline CellPlace cell_place(const ImageCopy& x, int index) {
  const int octets = x.step[0] * x.step[1] * x.step[2] * x.cell_channels / kOctet;
  CellPlace place;
  int rest = index / octets;
  place.octet = index - rest * octets;
  for (int dim = 2; dim >= 0; --dim) {
    const int next = rest / x.cells[dim];
    place.at[dim] = rest - next * x.cells[dim];
    rest = next;
  }
  place.image = rest;
  return place;
}

// The offset in the image of a cell's pixel; -1: it is outside.
inline i64 pixel_source(const ImageCopy& x, const CellPlace& place, int within) {
  i64 offset = place.image * x.image;
  bool is_inside = true;
  for (int dim = 2; dim >= 0; --dim) {
    const int next = within == 0 ? 0 : within / x.step[dim];
    const int at = place.at[dim] * x.step[dim] + within - next * x.step[dim] - x.pad[dim];
    within = next;
    is_inside = is_inside && at >= 0 && at < x.size[dim];
    offset += at * x.pixel[dim];
  }
  return is_inside ? offset : -1;
}

// Four neighbours of an octet, which belong to one pixel of its cell.
struct CellQuarter {
  i64 pixel;    // its offset in the image, or -1
  int channel;  // of the first neighbour
  int group, group_channel;
};
inline CellQuarter cell_quarter(const ImageCopy& x, const CellPlace& place, int first) {
  CellQuarter quarter;
  const int element = place.octet * kOctet + first;
  const int within = element / x.cell_channels;
  quarter.channel = element - within * x.cell_channels;
  quarter.group = quarter.channel / x.group_channels;
  quarter.group_channel = quarter.channel - quarter.group * x.group_channels;
  quarter.pixel = pixel_source(x, place, within);
  return quarter;
}
// The offset in the image of the neighbour at hand, or -1.
inline i64 source_of(const ImageCopy& x, const CellQuarter& at) {
  if (at.pixel < 0 || at.channel >= x.channels) return -1;
  return at.pixel + at.group * x.group + at.group_channel * x.channel;
}
inline void go_on(const ImageCopy& x, CellQuarter& at) {
  ++at.channel;
  if (++at.group_channel < x.group_channels) return;
  at.group_channel = 0;
  ++at.group;
}

// How many cells of the image a filter touches along a dimension.
inline int cells_of(const FilterCopy& w, const ImageCopy& x, int dim) {
  const int moved = dim == 2 ? (w.groups - 1) * (x.step[2] / w.groups) : 0;
  return ((w.taps[dim] - 1) * w.dilation[dim] + moved + x.step[dim]) / x.step[dim];
}

// The copy's sizes: filters, taps of a filter and channels of a tap.
struct FilterShape {
  int rows, taps, channels;
};
inline FilterShape filter_shape(const FilterCopy& w, const ImageCopy& x) {
  const int rows = w.groups * w.k;
  if (w.together > 0) return {rows, w.taps[0] * w.taps[1] * w.taps[2], w.together * w.c};
  const int cell = x.step[0] * x.step[1] * x.step[2] * x.cell_channels;
  return {rows, cells_of(w, x, 0) * cells_of(w, x, 1), cells_of(w, x, 2) * cell};
}

// An element of the filters.
struct FilterElement {
  int group, k, c;
  int tap[3];
};
inline i64 filter_offset(const FilterCopy& w, const FilterElement& at) {
  return at.group * w.stride[kFilterG] + at.k * w.stride[kFilterK] + at.c * w.stride[kFilterC] +
         at.tap[0] * w.stride[kFilterZ] + at.tap[1] * w.stride[kFilterY] +
         at.tap[2] * w.stride[kFilterX];
}

// Where the copy has an element: its row among the rows of the groups that lie together.
struct FilterPlace {
  int group, row, tap, channel;
};
inline FilterPlace filter_place(const FilterCopy& w, const ImageCopy& x, const FilterElement& at) {
  if (w.together > 0) {
    const int group = at.group / w.together;
    const int within = at.group - group * w.together;
    return {group, within * w.k + at.k, (at.tap[0] * w.taps[1] + at.tap[1]) * w.taps[2] + at.tap[2],
            within * w.c + at.c};
  }
  int cell[3];
  int within = 0;
  for (int dim = 0; dim < 3; ++dim) {
    const int place = at.tap[dim] * w.dilation[dim];
    cell[dim] = place / x.step[dim];
    within = within * x.step[dim] + place % x.step[dim];
  }
  const int pixels = x.step[0] * x.step[1] * x.step[2];
  return {0, at.k, cell[0] * cells_of(w, x, 1) + cell[1],
          (cell[2] * pixels + within) * x.cell_channels + at.c};
}

// The offset in the filters of an element of the copy; -1: there is none. `row` counts the k of all
// groups.
inline i64 filter_source(const FilterCopy& w, const ImageCopy& x, int row, int tap, int channel) {
  FilterElement at;
  at.group = row / w.k;
  at.k = row - at.group * w.k;
  if (w.together > 0) {
    const int group = channel / w.c;
    if (group != at.group % w.together) return -1;
    at.c = channel - group * w.c;
    at.tap[2] = tap % w.taps[2];
    at.tap[1] = tap / w.taps[2] % w.taps[1];
    at.tap[0] = tap / w.taps[2] / w.taps[1];
    return filter_offset(w, at);
  }
  const int cell = x.step[0] * x.step[1] * x.step[2] * x.cell_channels;
  const int lines = cells_of(w, x, 1);
  const int cells[3] = {tap / lines, tap % lines, channel / cell};
  int within = channel % cell / x.cell_channels;
  at.c = channel % x.cell_channels;
  if (at.c >= w.c) return -1;
  for (int dim = 2; dim >= 0; --dim) {
    const int moved = dim == 2 ? at.group * (x.step[2] / w.groups) : 0;
    const int place = cells[dim] * x.step[dim] + within % x.step[dim] - moved;
    within /= x.step[dim];
    at.tap[dim] = place / w.dilation[dim];
    if (place < 0 || place % w.dilation[dim] != 0 || at.tap[dim] >= w.taps[dim]) return -1;
  }
  return filter_offset(w, at);
}

// ---- cells of results ----

inline bool has_result_cells(const CudaRepackArguments& g) { return g.images[1].cells[0] > 0; }

// A column of a cell of results: the pixel within the cell, and its channel.
struct CellColumn {
  int at[3];
  int channel;
};
inline CellColumn cell_column(const ImageCopy& x, int column) {
  CellColumn place;
  int rest = column / x.channels;
  place.channel = column - rest * x.channels;
  for (int dim = 2; dim >= 0; --dim) {
    const int next = rest / x.step[dim];
    place.at[dim] = rest - next * x.step[dim];
    rest = next;
  }
  return place;
}

// The copy of the filters is [column][tap][channel] forward, [channel][tap][column] otherwise.
inline FilterShape result_filter_shape(const CudaRepackArguments& g, bool forward) {
  const ImageCopy& x = g.images[1];
  const int columns = x.step[0] * x.step[1] * x.step[2] * x.channels;
  return {forward ? columns : g.filter.k, x.cells[0] * x.cells[1] * x.cells[2],
          forward ? g.filter.c : columns};
}

// The offset in the filters of an element of their copy; -1: there is none. `column` is one of a
// cell, `channel` one of the image that is read.
inline i64 result_filter_source(const CudaRepackArguments& g, bool forward, int column, int tap,
                                int channel) {
  const ImageCopy& x = g.images[1];
  const FilterCopy& w = g.filter;
  const CellColumn place = cell_column(x, column);
  FilterElement at = {0, channel, place.channel, {}};
  if (forward) at.k = place.channel, at.c = channel;
  for (int dim = 2; dim >= 0; --dim) {
    const int rest = tap / x.cells[dim];
    const int at_tap = tap - rest * x.cells[dim];
    tap = rest;
    const int apart = g.pixel_step[2 - dim];
    const int distance = x.pad[dim] + (forward ? at_tap - apart / x.step[dim] * place.at[dim]
                                               : at_tap * (x.step[dim] / apart) + place.at[dim]);
    at.tap[dim] = distance / w.dilation[dim];
    const bool exists = distance >= 0 && distance % w.dilation[dim] == 0;
    if (!exists || at.tap[dim] >= w.taps[dim]) return -1;
  }
  return filter_offset(w, at);
}

// Elements count in the order [group][k][tap][c].
inline FilterElement filter_element(const FilterCopy& w, int index) {
  FilterElement at;
  const auto next = [&index](int size) {
    const int rest = index / size;
    const int digit = index - rest * size;
    index = rest;
    return digit;
  };
  at.c = next(w.c);
  for (int dim = 2; dim >= 0; --dim) at.tap[dim] = next(w.taps[dim]);
  at.k = next(w.k);
  at.group = index;
  return at;
}

// The place of an element among the sums of one slice, see ConvSums.
inline i64 filter_sum(const CudaRepackArguments& g, const FilterElement& at) {
  const FilterPlace place = filter_place(g.filter, g.images[0], at);
  const bool by_tap = g.batch_is_tap != 0;
  const int batch = by_tap ? place.tap : place.group;
  const int column = by_tap ? place.channel : place.tap * g.slabs * kSlabChannels + place.channel;
  return (batch * g.result.rows + place.row) * g.pitch + column;
}

}  // namespace tessera::device
