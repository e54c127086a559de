// Where rows and columns of the product lie in the result.
#pragma once

#include "tessera/device/cpu/conv/conv_epilogue.h"
#include "tessera/device/cpu/conv/conv_view.h"

namespace tessera::device {

// A run of rows or columns of the product that lie at one distance in the result.
struct ResultLine {
  i64 at, count, distance;
};
// Which pixels lie at one distance: a line's, an image's, or all.
enum class EvenPixels { line, image, all };
inline bool last_cell_is_cut(const ConvView& v) { return v.last_cell < v.cell; }
inline EvenPixels even_pixels(const ConvView& v) {
  if (last_cell_is_cut(v)) return EvenPixels::line;
  if (pixels_are_even(v)) return EvenPixels::all;
  ConvView one = v;
  one.images = 1;
  return pixels_are_even(one) ? EvenPixels::image : EvenPixels::line;
}
inline ResultLine pixel_line(const ConvView& v, i64 number, i64 count, EvenPixels even) {
  const ConvPixel p = pixel_of(v, number);
  i64 rest = v.axis[kWidth].pixels - p.at[kWidth];
  if (last_cell_is_cut(v) && rest > 1) --rest;  // the last cell has columns of its own number
  if (even == EvenPixels::image) rest = (p.n + 1) * (v.pixels() / v.images) - number;
  return {offset_of(v, p), even == EvenPixels::all ? count : smaller(count, rest),
          pixel_distance(v)};
}
inline ResultLine filter_line(const ConvArguments& g, const ConvView& v, i64 column, i64 count) {
  const i64 channel = column % v.channels;
  const i64 at = filter_offset(g, v, tap_of(v, column / v.channels));
  return {at + channel * g.w_stride[kFilterC], smaller(count, v.channels - channel),
          g.w_stride[kFilterC]};
}
inline ResultLine channel_line(i64 channel, i64 count, i64 distance) {
  return {channel * distance, count, distance};
}

// The result of one view.
template <class T>
struct ConvResult {
  static constexpr bool kWeights = ConvTypes<T>::kWeights;

  const ConvArguments& g;
  const ConvView& v;
  i64 group;
  EvenPixels even;
  bool sources_even;  // whether the sources of all pixels lie at one distance

  ResultLine rows(i64 i, i64 count) const {
    if (kWeights) return channel_line(i, count, g.w_stride[kFilterK]);
    if (T::kChannelsLast) return pixel_line(v, i, count, even);
    return channel_line(i, count, v.pixel_stride[kImageC]);
  }
  // The columns of row i: fewer in a cut cell.
  i64 columns_of(i64 i) const {
    const bool is_cut = last_cell_is_cut(v) && (i + 1) % v.axis[kWidth].pixels == 0;
    return is_cut ? v.columns / v.cell * v.last_cell : v.columns;
  }
  // `by_channel`: columns of one pixel, whose channels are neighbours.
  ResultLine columns(i64 j, i64 count, bool by_channel) const {
    if (kWeights) return filter_line(g, v, j, count);
    if (by_channel && v.cell > 1) {
      const i64 channels = v.columns / v.cell;
      return {j, smaller(count, channels - j % channels), 1};
    }
    // Columns of several pixels or groups adjoin. A lone channel's stride is of no consequence.
    const bool adjoins = v.cell > 1 || v.merged > 1;
    if (T::kChannelsLast) return channel_line(j, count, adjoins ? 1 : v.pixel_stride[kImageC]);
    return pixel_line(v, j, count, even);
  }
  i64 channel(i64 i, i64 j) const {
    if (kWeights) return 0;
    if (v.cell > 1) return j % (v.columns / v.cell);  // there is one group
    return T::kChannelsLast ? group * v.columns + j : group * v.rows + i;
  }
};

}  // namespace tessera::device
