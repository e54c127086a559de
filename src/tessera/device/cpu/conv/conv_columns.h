// Gradients by w: the pixels of x that pixels of y meet, as panels of (taps, channels of x) by
// pixels of y. Places outside of an image are zeros.
#pragma once

#include "tessera/device/cpu/conv/conv_pixels.h"

namespace tessera::device {

template <class T>
struct ConvColumns {
  using Math = typename T::Math;
  using Column = typename ConvTypes<T>::Column;
  static constexpr int kPer = Math::kPerWord;
  // Whether panels are filled from neighbours along the depth.
  static constexpr bool kBKContiguous = !T::kChannelsLast;

  using PackB = void (*)(const PanelSource<Column>& s, u32* panel);

  static i64 to_words(i64 depth) { return depth / kPer; }

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

  // Types whose columns are copied as runs.
#if defined(__AVX512BW__)
  static constexpr bool kPacksRuns =
      !kBKContiguous && ((sizeof(Column) == 4 && kPer == 1) || sizeof(Column) == 2);
#else
  static constexpr bool kPacksRuns = !kBKContiguous && sizeof(Column) == 4 && kPer == 1;
#endif
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
  // One pixel whose taps lie outside in part, as elements; `place` is the first tap's place.
  static void copy_cut(const ConvView& v, const ColumnRun& run, i64 place, const Column* from,
                       Column* out) {
    const Range taps = inside(place, 1, v.axis[kWidth].size, run.count + 1);
    const i64 begin = smaller(taps.begin * v.channels - run.channel, run.count);
    const i64 end = smaller(taps.end * v.channels - run.channel, run.count);
    for (i64 c = 0; c < run.count; ++c) out[c] = c >= begin && c < end ? from[c] : Column{};
  }
  // kPer pixels, of which `count` are there, whose columns lie outside in part.
  static void copy_word(const ConvView& v, const ColumnRun& run, i64 place, const Column* from,
                        i64 step, i64 count, u32* out) {
    Column together[kPer * kMostConvColumns] = {};
    for (i64 i = 0; i < smaller(count, kPer); ++i) {
      copy_cut(v, run, place + i * v.axis[kWidth].pixel_step, from + i * step,
               together + i * kMostConvColumns);
    }
    copy_whole(together, kMostConvColumns, run.count, kPer, 0, out);
  }
  // A multiple of kPer pixels whose columns are all there.
  static void copy_whole(const Column* from, i64 step, i64 columns, i64 pixels, i64 width,
                         u32* out) {
    for (i64 c = 0; c < columns; c += kLanes, from += kLanes, out += kLanes) {
      const auto some = static_cast<int>(smaller(columns - c, kLanes));
      const Column* pixel = from;
      u32* to = out;
      for (i64 i = 0; i < pixels; i += kPer, pixel += kPer * step, to += width) {
        store_first(to, word_of(pixel, step, some), some);
      }
    }
  }
  // A word of each of `count` neighbours, of kPer pixels.
  template <class E>
  [[gnu::always_inline]] static u32v word_of(const E* from, i64 step, int count) {
    if constexpr (sizeof(E) == 4) {
      return load_first<u32v>(from, count);
    } else {
      u32v word{};
#if defined(__AVX512BW__)
#pragma GCC unroll 2
      for (int i = 0; i < kPer; ++i) {
        const u32v raw = load_few_bytes(from + i * step, count * 2);
        u16v halves;
        __builtin_memcpy(&halves, &raw, sizeof(halves));
        word |= encode<E, Math>(widen(halves)) << (i * (32 / kPer) % 32);
      }
#endif
      return word;
    }
  }
  // `count` pixels of a line from p on.
  static void copy_run(const ConvArguments& g, const ConvView& v, const ColumnRun& run,
                       const ConvPixel& p, i64 count, i64 width, u32* out) {
    i64 place[kSpatialDims];
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      const ConvAxis& a = v.axis[dim];
      place[dim] = a.base + p.at[dim] * a.pixel_step + run.tap.at[dim] * a.tap_step;
    }
    const ConvAxis& w = v.axis[kWidth];
    if (!is_inside(v.axis[kDepth], place[kDepth]) || !is_inside(v.axis[kHeight], place[kHeight])) {
      for (i64 i = 0; i < count; i += kPer, out += width) zero_words(run.count, out);
      return;
    }
    const Column* from = static_cast<const Column*>(g.x) + v.source_at +
                         p.n * v.image_stride[kImageN] + place[kDepth] * v.image_stride[kImageD] +
                         place[kHeight] * v.image_stride[kImageH] +
                         place[kWidth] * v.image_stride[kImageW] + run.channel;
    const i64 step = w.pixel_step * v.image_stride[kImageW];
    const i64 reach = (run.last - run.tap.at[kWidth]) * w.tap_step;
    // Pixels in front of `begin` and from `end` on have columns outside.
    const i64 first = inside(place[kWidth], w.pixel_step, w.size, count).begin;
    const i64 begin = blocks_of(first, kPer) * kPer;
    const i64 last = inside(place[kWidth] + reach, w.pixel_step, w.size, count).end;
    const i64 end = last / kPer * kPer;
    for (i64 i = 0; i < count; i += kPer) {
      if (i == begin && begin < end) {
        copy_whole(from + i * step, step, run.count, end - begin, width, out + i / kPer * width);
        i = end - kPer;
        continue;
      }
      copy_word(v, run, place[kWidth] + i * w.pixel_step, from + i * step, step, count - i,
                out + i / kPer * width);
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
    if constexpr (kPacksRuns) {
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
};

}  // namespace tessera::device
