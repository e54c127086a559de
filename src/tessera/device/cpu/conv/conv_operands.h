// The factors of a convolution's products, packed from its tensors without gaps: A as rows of
// words, B as panels. Places outside of an image are zeros.
#pragma once

#include "tessera/device/cpu/conv/conv_columns.h"

namespace tessera::device {

template <class T>
struct ConvFactors {
  using Types = ConvTypes<T>;
  using Math = typename T::Math;
  using Row = typename Types::Row;
  using Column = typename Types::Column;
  using Pixels = ConvPixels<T>;
  using Shifted = ConvColumns<T>;
  static constexpr bool kWeights = Types::kWeights;
  static constexpr bool kForward = Types::kForward;
  static constexpr int kPer = Math::kPerWord;
  // Whether B's panels are filled from neighbours along the depth.
  static constexpr bool kBKContiguous =
      kForward ? T::kChannelsLast : kWeights && Shifted::kBKContiguous;
  // Whether words of A that are neighbours in memory belong to neighbouring rows.
  static constexpr bool kAAcross = kWeights && T::kChannelsLast;

  using PackB = void (*)(const PanelSource<Column>& s, u32* panel);

  static i64 to_words(i64 depth) { return depth / kPer; }
  static i64 round_up(i64 size, i64 to) { return blocks_of(size, to) * to; }

  // ---- views ----

  // Whether the taps of a line can count as one tap, so that words are filled up once for a line.
  static bool lines_are_dense(const ConvArguments& g, const ConvView& v) {
    const ConvAxis& w = v.axis[kWidth];
    if (!T::kChannelsLast || w.taps < 2 || w.tap_step != 1) return false;
    if (v.image_stride[kImageW] != v.channels) return false;
    return !kForward || v.cell > 1 ||
           (g.w_stride[kFilterC] == 1 && g.w_stride[kFilterX] == v.channels);
  }
  // Cells have at most `most` columns.
  static i64 cell_of(const ConvArguments& g, i64 most) {
    if constexpr (kWeights || !T::kChannelsLast) {
      return 1;
    } else {
      return device::cell_of<kForward>(g, most);
    }
  }
  // How many neighbouring groups of few channels can be one product, whose filters are blocks on a
  // diagonal with zeros around.
  static i64 merged_groups(const ConvArguments& g) {
    if (kWeights || !T::kChannelsLast) return 1;
    if (g.x_stride[kImageG] != g.c || g.y_stride[kImageG] != g.k) return 1;
    const i64 most = kLanes / (g.c > g.k ? g.c : g.k);
    for (i64 merged = smaller(most, g.groups); merged > 1; --merged) {
      if (g.groups % merged == 0) return merged;
    }
    return 1;
  }
  // `merged` groups are one, of which `group` is the number.
  static ConvView image_view(const ConvArguments& g, i64 group, const i64 (&residue)[3], i64 cell,
                             i64 merged) {
    ConvView v{};
    const i64* const source = kForward ? g.x_stride : g.y_stride;
    const i64* const pixels = kForward ? g.y_stride : g.x_stride;
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      v.axis[dim] = kForward ? forward_axis(g, dim) : backward_axis(g, dim, residue[dim]);
    }
    v.cell = cell;
    v.last_cell = 1;
    if (cell > 1) {
      v.axis[kWidth] = cell_axis<kForward>(g, cell);
      v.last_cell = (kForward ? g.out_size : g.size)[kWidth] - (v.axis[kWidth].pixels - 1) * cell;
    }
    for (int i = 0; i < kImageStrides; ++i) {
      v.image_stride[i] = source[i];
      v.pixel_stride[i] = pixels[i];
    }
    v.source_at = group * merged * source[kImageG];
    v.pixels_at = group * merged * pixels[kImageG];
    v.filter_at = group * merged * g.w_stride[kFilterG];
    v.images = g.n;
    v.channels = merged * (kForward ? g.c : g.k);
    v.line_taps = 1;
    v.merged = merged;
    if (merged == 1 && v.channels % kPer != 0 && lines_are_dense(g, v)) {
      v.line_taps = v.axis[kWidth].taps;
      v.channels *= v.line_taps;
      v.axis[kWidth].taps = 1;
    }
    v.filter_channels = v.channels;
    v.padded = round_up(v.channels, kPer);
    const i64 channels = merged * (kForward ? g.k : g.c);
    v.rows = T::kChannelsLast ? v.pixels() : channels;
    v.columns = T::kChannelsLast ? channels * cell : v.pixels();
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
    v.line_taps = v.cell = v.last_cell = v.merged = 1;
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
      visit(filter_offset(g, v, tap) + channel * inner, smaller(count, v.filter_channels - channel),
            to_words(e - k.begin));
      e += count;
      channel = 0;
    }
  }
  // Whether (taps, channels) are one run of memory, in that order.
  static bool filters_are_dense(const ConvArguments& g, const ConvView& v) {
    if (!kForward || v.filter_channels != v.padded) return false;
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
    if (v.merged > 1) return pack_groups(g, v, pack, j, k, width, out);
    if (v.cell > 1) return pack_cells(g, v, pack, j, k, width, out);
    if (kForward && filters_are_dense(g, v)) {
      return pack({w + v.filter_at + j * outer + k.begin, ld, v.columns - j, k.end - k.begin}, out);
    }
    if (!kForward && v.line_taps > 1) return pack_lines(g, v, pack, j, k, width, out);
    for_each_tap(g, v, k, [&](i64 at, i64 count, i64 words) {
      pack({w + at + j * outer, ld, v.columns - j, count}, out + words * width);
    });
  }
  // Rows of the depth and columns of a panel, which are zeros until they are written.
  struct Together {
    static constexpr i64 kRows = 16;
    Column elements[kRows * kMostConvColumns] = {};

    Column& at(i64 row, i64 column) {
      return elements[kForward ? row + column * kRows : row * kMostConvColumns + column];
    }
  };
  // Packs filters that lie otherwise than the panel: fill(tap, first, count, to) writes the `count`
  // rows of a tap from `first` on.
  template <class Fill>
  static void pack_filled(const ConvView& v, i64 columns, PackB pack, Range k, i64 width, u32* out,
                          const Fill& fill) {
    for (i64 e = k.begin; e < k.end;) {
      const i64 first = e % v.padded;
      const i64 end = smaller(smaller(first + Together::kRows, v.padded), first + k.end - e);
      const i64 count = smaller(end, v.filter_channels) - first;
      Together to;
      fill(tap_of(v, e / v.padded), first, count, to);
      pack({to.elements, kForward ? Together::kRows : kMostConvColumns, columns, count},
           out + to_words(e - k.begin) * width);
      e += end - first;
    }
  }
  // Gradients by x whose taps of a line count as one: they lie in another order in the filters.
  static void pack_lines(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, Range k,
                         i64 width, u32* out) {
    const i64 columns = smaller(width, v.columns - j), unit = v.channels / v.line_taps;
    const i64 tap_stride = v.axis[kWidth].tap_stride * g.w_stride[kFilterX];
    const auto* const w = static_cast<const Column*>(g.w) + j * g.w_stride[kFilterC];
    const auto fill = [&](const ConvTap& tap, i64 first, i64 count, Together& to) {
      const Column* const at_tap = w + filter_offset(g, v, tap);
      for (i64 i = 0; i < count; ++i) {
        const Column* const from =
            at_tap + (first + i) / unit * tap_stride + (first + i) % unit * g.w_stride[kFilterK];
        for (i64 c = 0; c < columns; ++c) to.at(i, c) = from[c];
      }
    };
    pack_filled(v, columns, pack, k, width, out, fill);
  }
  // Cells: zeros where a pixel does not meet a tap.
  static void pack_cells(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, Range k,
                         i64 width, u32* out) {
    const i64 of_pixel = v.columns / v.cell, unit = v.channels / v.line_taps;
    const i64 columns = smaller(width, v.columns - j);
    const i64 outer = g.w_stride[kForward ? kFilterK : kFilterC];
    const i64 inner = g.w_stride[kForward ? kFilterC : kFilterK];
    const auto fill = [&](ConvTap tap, i64 first, i64 count, Together& to) {
      const i64 tap_of_width = tap.at[kWidth];
      tap.at[kWidth] = 0;
      const Column* const w = static_cast<const Column*>(g.w) + filter_offset(g, v, tap);
      for (i64 i = 0; i < count; ++i) {
        const i64 number = v.line_taps > 1 ? (first + i) / unit : tap_of_width;
        for (i64 c = 0; c < columns; ++c) {
          const i64 pixel = (j + c) / of_pixel;
          const i64 f = filter_of_cell<kForward>(g, v.axis[kWidth].base, number, pixel);
          if (f < 0) continue;
          to.at(i, c) = w[f * g.w_stride[kFilterX] + (first + i) % unit * inner +
                          (j + c - pixel * of_pixel) * outer];
        }
      }
    };
    pack_filled(v, columns, pack, k, width, out, fill);
  }
  // Merged groups: zeros where a channel is of another group.
  static void pack_groups(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, Range k,
                          i64 width, u32* out) {
    const i64 of_group = v.columns / v.merged, unit = v.filter_channels / v.merged;
    const i64 columns = smaller(width, v.columns - j);
    const i64 outer = g.w_stride[kForward ? kFilterK : kFilterC];
    const i64 inner = g.w_stride[kForward ? kFilterC : kFilterK];
    const auto fill = [&](ConvTap tap, i64 first, i64 count, Together& to) {
      const Column* const w = static_cast<const Column*>(g.w) + filter_offset(g, v, tap);
      for (i64 i = 0; i < count; ++i) {
        const i64 group = (first + i) / unit;
        const Column* const from = w + group * g.w_stride[kFilterG] + (first + i) % unit * inner;
        for (i64 c = 0; c < of_group; ++c) {
          const i64 column = group * of_group + c - j;
          if (column < 0 || column >= width) continue;
          to.at(i, column) = from[c * outer];
        }
      }
    };
    pack_filled(v, columns, pack, k, width, out, fill);
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

  static void copy_lines(const ConvView& v, const void* y, Range m, Range k, u32* out, i64 ld) {
    Shifted::for_each_line(v, k, [&](const ConvPixel& p, i64 count, i64 words) {
      const Row* const from =
          static_cast<const Row*>(y) + offset_of(v, p) + m.begin * v.pixel_stride[kImageC];
      const i64 rows = m.end - m.begin;
      if constexpr (kAAcross) {
        const PanelSource<Row> s = {from, v.pixel_stride[kImageW], rows, count};
        const i64 most = rows / kLanes * kLanes;
        for (i64 w = 0; w * kPer < count; ++w) {
          u32* const to = out + (words + w) * ld;
          constexpr bool kMayBeFew = Shifted::kPacksRuns && sizeof(Row) == sizeof(Column);
          const bool is_whole = kMayBeFew && (w + 1) * kPer <= count;
          for (i64 r = 0; r < (is_whole ? most : rows); r += kLanes) {
            store(to + r, column_words<Row, Math>(s, r, w));
          }
          if (!is_whole || most == rows) continue;
          store(to + most, Shifted::word_of(from + w * kPer * s.ld + most, s.ld,
                                            static_cast<int>(rows - most)));
        }
      } else {
        for (i64 i = 0; i < rows; ++i) {
          copy_words<Row, Math>(from + i * v.pixel_stride[kImageC], count, out + i * ld + words);
        }
      }
    });
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
      Shifted::pack_shifted(g, v, pack, j, k, width, out);
    } else if constexpr (T::kChannelsLast) {
      pack_filters(g, v, pack, j, k, width, out);
    } else {
      Pixels::pack_pixels(v, kForward ? g.x : g.y, pack, j, k, width, out);
    }
  }
};

}  // namespace tessera::device
