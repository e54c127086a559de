// The factors of a convolution's products, packed from its tensors without gaps: A as rows of
// words, B as panels. Places outside of an image are zeros.
#pragma once

#include "tessera/device/cpu/conv/conv_pixels.h"

namespace tessera::device {

template <class T>
struct ConvFactors {
  using Types = ConvTypes<T>;
  using Math = typename T::Math;
  using Row = typename Types::Row;
  using Column = typename Types::Column;
  using Pixels = ConvPixels<T>;
  static constexpr bool kWeights = Types::kWeights;
  static constexpr bool kForward = Types::kForward;
  static constexpr int kPer = Math::kPerWord;
  // Whether B's panels are filled from neighbours along the depth.
  static constexpr bool kBKContiguous = kForward ? T::kChannelsLast : kWeights && !T::kChannelsLast;
  // Whether words of A that are neighbours in memory belong to neighbouring rows.
  static constexpr bool kAAcross = kWeights && T::kChannelsLast;

  using PackB = void (*)(const PanelSource<Column>& s, u32* panel);

  static i64 to_words(i64 depth) { return depth / kPer; }
  static i64 round_up(i64 size, i64 to) { return blocks_of(size, to) * to; }

  // ---- views ----

  static ConvView image_view(const ConvArguments& g, i64 group, const i64 (&residue)[3]) {
    ConvView v{};
    const i64* const source = kForward ? g.x_stride : g.y_stride;
    const i64* const pixels = kForward ? g.y_stride : g.x_stride;
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      v.axis[dim] = kForward ? forward_axis(g, dim) : backward_axis(g, dim, residue[dim]);
    }
    for (int i = 0; i < kImageStrides; ++i) {
      v.image_stride[i] = source[i];
      v.pixel_stride[i] = pixels[i];
    }
    v.source_at = group * source[kImageG];
    v.pixels_at = group * pixels[kImageG];
    v.filter_at = group * g.w_stride[kFilterG];
    v.images = g.n;
    v.channels = kForward ? g.c : g.k;
    v.padded = round_up(v.channels, kPer);
    const i64 channels = kForward ? g.k : g.c;
    v.rows = T::kChannelsLast ? v.pixels() : channels;
    v.columns = T::kChannelsLast ? channels : v.pixels();
    v.depth = v.taps() * v.padded;
    return v;
  }
  // The depth consists of lines of y, each padded to whole words.
  static ConvView filter_view(const ConvArguments& g, i64 group) {
    ConvView v{};
    for (int dim = kDepth; dim <= kWidth; ++dim) v.axis[dim] = forward_axis(g, dim);
    for (int i = 0; i < kImageStrides; ++i) {
      v.image_stride[i] = g.x_stride[i];
      v.pixel_stride[i] = g.y_stride[i];
    }
    v.source_at = group * g.x_stride[kImageG];
    v.pixels_at = group * g.y_stride[kImageG];
    v.filter_at = group * g.w_stride[kFilterG];
    v.images = g.n;
    v.channels = g.c;
    v.padded = round_up(g.out_size[kWidth], kPer);
    v.rows = g.k;
    v.columns = v.taps() * g.c;
    v.depth = g.n * g.out_size[kDepth] * g.out_size[kHeight] * v.padded;
    return v;
  }

  // ---- filters by (taps, channels) ----

  // Calls visit(element of the filters, count, words before it) for the runs of a range of the
  // depth that lie in one tap, without padding.
  template <class Visit>
  static void for_each_tap(const ConvArguments& g, const ConvView& v, Range k, Visit visit) {
    const i64 inner = g.w_stride[kForward ? kFilterC : kFilterK];
    i64 channel = k.begin % v.padded;
    ConvTap tap = tap_of(v, k.begin / v.padded);
    for (i64 e = k.begin; e < k.end; next_tap(v, tap)) {
      const i64 count = smaller(v.padded - channel, k.end - e);
      visit(filter_offset(g, v, tap) + channel * inner, smaller(count, v.channels - channel),
            to_words(e - k.begin));
      e += count;
      channel = 0;
    }
  }
  // Whether (taps, channels) are one run of memory, in that order.
  static bool filters_are_dense(const ConvArguments& g, const ConvView& v) {
    if (!kForward || v.channels != v.padded) return false;
    i64 distance = v.channels;
    for (int dim = kWidth; dim >= kDepth; --dim) {
      if (v.axis[dim].taps > 1 && g.w_stride[kFilterZ + dim] != distance) return false;
      distance *= v.axis[dim].taps;
    }
    return true;
  }
  static void pack_filters(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, Range k,
                           i64 width, u32* out) {
    const i64 outer = g.w_stride[kForward ? kFilterK : kFilterC];
    const i64 inner = g.w_stride[kForward ? kFilterC : kFilterK];
    const i64 ld = kForward ? outer : inner;
    const auto* const w = static_cast<const Column*>(g.w);
    if (kForward && filters_are_dense(g, v)) {
      return pack({w + v.filter_at + j * outer + k.begin, ld, v.columns - j, k.end - k.begin}, out);
    }
    for_each_tap(g, v, k, [&](i64 at, i64 count, i64 words) {
      pack({w + at + j * outer, ld, v.columns - j, count}, out + words * width);
    });
  }
  // In nchw the channels of a tap lie apart.
  static void copy_filters(const ConvArguments& g, const ConvView& v, Range m, Range k, u32* out,
                           i64 ld) {
    constexpr int kSpan = kLanes * kPer;
    const i64 outer = g.w_stride[kForward ? kFilterK : kFilterC];
    const i64 inner = g.w_stride[kForward ? kFilterC : kFilterK];
    const auto* const w = static_cast<const Row*>(g.w);
    for (i64 i = m.begin; i < m.end; ++i, out += ld) {
      for_each_tap(g, v, k, [&](i64 at, i64 count, i64 words) {
        const Row* from = w + at + i * outer;
        if (inner == 1) return copy_words<Row, Math>(from, count, out + words);
        if constexpr (sizeof(Row) == 4) {
          for (i64 c = 0; c < count; ++c) __builtin_memcpy(out + words + c, from + c * inner, 4);
          return;
        }
        Row together[kSpan];
        for (i64 c = 0; c < count; c += kSpan) {
          const i64 some = smaller(kSpan, count - c);
          for (i64 x = 0; x < some; ++x, from += inner) together[x] = *from;
          copy_words<Row, Math>(together, some, out + words + to_words(c));
        }
      });
    }
  }

  // ---- lines of y ----

  // Calls visit(first pixel, count, words before it) for the runs of a range of the depth that lie
  // in a line.
  template <class Visit>
  static void for_each_line(const ConvView& v, Range k, Visit visit) {
    const i64 width = v.axis[kWidth].pixels;
    ConvPixel p = pixel_of(v, k.begin / v.padded * width);
    p.at[kWidth] = k.begin % v.padded;
    for (i64 e = k.begin; e < k.end; next_line(v, p)) {
      const i64 span = smaller(v.padded - p.at[kWidth], k.end - e);
      visit(p, smaller(span, width - p.at[kWidth]), to_words(e - k.begin));
      e += span;
    }
  }
  static void copy_lines(const ConvView& v, const void* y, Range m, Range k, u32* out, i64 ld) {
    for_each_line(v, k, [&](const ConvPixel& p, i64 count, i64 words) {
      const Row* const from =
          static_cast<const Row*>(y) + offset_of(v, p) + m.begin * v.pixel_stride[kImageC];
      const i64 rows = m.end - m.begin;
      if constexpr (kAAcross) {
        const PanelSource<Row> s = {from, v.pixel_stride[kImageW], rows, count};
        for (i64 w = 0; w * kPer < count; ++w) {
          u32* const to = out + (words + w) * ld;
          for (i64 r = 0; r < rows; r += kLanes) store(to + r, column_words<Row, Math>(s, r, w));
        }
      } else {
        for (i64 i = 0; i < rows; ++i) {
          copy_words<Row, Math>(from + i * v.pixel_stride[kImageC], count, out + i * ld + words);
        }
      }
    });
  }

  // ---- (taps, channels of x) as columns ----

  // The elements of x that `count` pixels of y from p on meet at a tap, for a channel.
  struct Shift {
    const Column* from;
    Range there;
  };
  static Shift shift_of(const ConvArguments& g, const ConvView& v, const ConvPixel& p, i64 column,
                        i64 count) {
    const ConvTap tap = tap_of(v, column / v.channels);
    i64 place[kSpatialDims];
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      const ConvAxis& a = v.axis[dim];
      place[dim] = a.base + p.at[dim] * a.pixel_step + tap.at[dim] * a.tap_step;
    }
    const ConvAxis& w = v.axis[kWidth];
    Range there = inside(place[kWidth], w.pixel_step, w.size, count);
    if (!is_inside(v.axis[kDepth], place[kDepth]) || !is_inside(v.axis[kHeight], place[kHeight]) ||
        there.end < there.begin) {
      there = {count, count};
    }
    return {static_cast<const Column*>(g.x) + v.source_at + p.n * v.image_stride[kImageN] +
                place[kDepth] * v.image_stride[kImageD] + place[kHeight] * v.image_stride[kImageH] +
                place[kWidth] * v.image_stride[kImageW] +
                column % v.channels * v.image_stride[kImageC],
            there};
  }
  // `columns` channels by `count` pixels.
  static void copy_shift(const Shift& shift, i64 channel_step, i64 pixel_step, i64 columns,
                         i64 count, Column* out, i64 ld) {
    for (i64 i = 0; i < count; ++i) {
      const bool is_there = i >= shift.there.begin && i < shift.there.end;
      for (i64 c = 0; c < columns; ++c) {
        Column& to = kBKContiguous ? out[c * ld + i] : out[i * ld + c];
        to = is_there ? shift.from[i * pixel_step + c * channel_step] : Column{};
      }
    }
  }
  // Columns [j, j + columns) of a few pixels of a line. Columns of one tap are packed in place.
  static void pack_shift(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, i64 columns,
                         const ConvPixel& p, i64 count, i64 width, u32* out) {
    const i64 channel_step = v.image_stride[kImageC];
    const i64 step = v.axis[kWidth].pixel_step * v.image_stride[kImageW];
    if (j % v.channels + columns <= v.channels && (!kBKContiguous || step == 1)) {
      const i64 ld = kBKContiguous ? channel_step : step;
      const Shift shift = shift_of(g, v, p, j, count);
      const i64 begin = shift.there.begin, end = shift.there.end;
      if (begin == 0 && end == count) return pack({shift.from, ld, columns, count}, out);
      if (kPer == 1 && !kBKContiguous) {
        zero_words(begin * width, out);
        if (begin < end) {
          pack({shift.from + begin * ld, ld, columns, end - begin}, out + begin * width);
        }
        return zero_words((count - end) * width, out + end * width);
      }
    }
    Column together[kShiftPixels * kMostConvColumns];
    const i64 ld = kBKContiguous ? kShiftPixels : kMostConvColumns;
    for (i64 lane = 0; lane < columns;) {
      const i64 some = smaller(columns - lane, v.channels - (j + lane) % v.channels);
      copy_shift(shift_of(g, v, p, j + lane, count), channel_step, step, some, count,
                 together + lane * (kBKContiguous ? ld : 1), ld);
      lane += some;
    }
    pack({together, ld, columns, count}, out);
  }
  static constexpr i64 kShiftPixels = 32;

  // Columns that lie side by side in x: channels of a tap, or of the taps of a line.
  struct ColumnRun {
    i64 lane, count, channel;
    ConvTap tap;  // of the first column
    i64 last;     // tap of the width of the last column
  };
  struct ColumnRuns {
    int number;
    ColumnRun runs[kMostConvColumns];
  };
  static ColumnRuns runs_of(const ConvView& v, i64 j, i64 columns) {
    const ConvAxis& w = v.axis[kWidth];
    const bool by_lines = w.tap_step == 1 && v.image_stride[kImageW] == v.channels;
    const i64 span = by_lines ? w.taps * v.channels : v.channels;
    ColumnRuns all;
    all.number = 0;
    for (i64 lane = 0; lane < columns;) {
      const i64 first = j + lane, count = smaller(columns - lane, span - first % span);
      all.runs[all.number++] = {lane, count, first % v.channels, tap_of(v, first / v.channels),
                                (first + count - 1) / v.channels % w.taps};
      lane += count;
    }
    return all;
  }
  // One pixel whose taps lie outside in part; `place` is the first tap's place.
  static void copy_cut(const ConvView& v, const ColumnRun& run, i64 place, const Column* from,
                       u32* out) {
    for (i64 c = 0; c < run.count; ++c) {
      const i64 tap = (run.channel + c) / v.channels;
      out[c] = 0;
      if (is_inside(v.axis[kWidth], place + tap)) __builtin_memcpy(out + c, from + c, 4);
    }
  }
  // `count` pixels of a line from p on, whose words are elements.
  static void copy_run(const ConvArguments& g, const ConvView& v, const ColumnRun& run,
                       const ConvPixel& p, i64 count, i64 width, u32* out) {
    i64 place[kSpatialDims];
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      const ConvAxis& a = v.axis[dim];
      place[dim] = a.base + p.at[dim] * a.pixel_step + run.tap.at[dim] * a.tap_step;
    }
    const ConvAxis& w = v.axis[kWidth];
    if (!is_inside(v.axis[kDepth], place[kDepth]) || !is_inside(v.axis[kHeight], place[kHeight])) {
      for (i64 i = 0; i < count; ++i, out += width) zero_words(run.count, out);
      return;
    }
    const Column* from = static_cast<const Column*>(g.x) + v.source_at +
                         p.n * v.image_stride[kImageN] + place[kDepth] * v.image_stride[kImageD] +
                         place[kHeight] * v.image_stride[kImageH] +
                         place[kWidth] * v.image_stride[kImageW] + run.channel;
    const i64 step = w.pixel_step * v.image_stride[kImageW];
    const i64 reach = (run.last - run.tap.at[kWidth]) * w.tap_step;
    for (i64 i = 0; i < count; ++i, out += width, from += step, place[kWidth] += w.pixel_step) {
      if (place[kWidth] >= 0 && place[kWidth] + reach < w.size) {
        copy_words<Column, Math>(from, run.count, out);
      } else {
        copy_cut(v, run, place[kWidth], from, out);
      }
    }
  }
  static void pack_runs(const ConvArguments& g, const ConvView& v, i64 j, i64 columns, Range k,
                        i64 width, u32* out) {
    const ColumnRuns all = runs_of(v, j, columns);
    if (columns < width) zero_words(to_words(k.end - k.begin) * width, out);
    for_each_line(v, k, [&](const ConvPixel& p, i64 count, i64 words) {
      for (int r = 0; r < all.number; ++r) {
        const ColumnRun& run = all.runs[r];
        copy_run(g, v, run, p, count, width, out + words * width + run.lane);
      }
    });
  }

  static void pack_shifted(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, Range k,
                           i64 width, u32* out) {
    const i64 columns = smaller(width, v.columns - j);
    if constexpr (sizeof(Column) == 4 && kPer == 1 && !kBKContiguous) {
      return pack_runs(g, v, j, columns, k, width, out);
    } else {
      for_each_line(v, k, [&](ConvPixel p, i64 count, i64 words) {
        for (; count > 0; count -= kShiftPixels) {
          pack_shift(g, v, pack, j, columns, p, smaller(count, kShiftPixels), width,
                     out + words * width);
          p.at[kWidth] += kShiftPixels;
          words += to_words(kShiftPixels);
        }
      });
    }
  }

  // ---- what the driver calls ----

  static void pack_a(const ConvArguments& g, const ConvView& v, Range m, Range k, u32* out,
                     i64 ld) {
    if constexpr (kWeights) {
      copy_lines(v, g.y, m, k, out, ld);
    } else if constexpr (T::kChannelsLast) {
      Pixels::copy_pixels(v, kForward ? g.x : g.y, m, k, out, ld);
    } else {
      copy_filters(g, v, m, k, out, ld);
    }
  }
  static void pack_b(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, Range k,
                     i64 width, u32* out) {
    if constexpr (kWeights) {
      pack_shifted(g, v, pack, j, k, width, out);
    } else if constexpr (T::kChannelsLast) {
      pack_filters(g, v, pack, j, k, width, out);
    } else {
      Pixels::pack_pixels(v, kForward ? g.x : g.y, pack, j, k, width, out);
    }
  }
};

}  // namespace tessera::device
