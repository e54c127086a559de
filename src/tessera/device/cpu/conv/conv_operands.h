// The factors of a convolution's products, packed from its tensors without gaps: A as rows of
// words, B as panels. Places outside of an image are zeros.
#pragma once

#include "tessera/device/cpu/conv/conv_epilogue.h"
#include "tessera/device/cpu/conv/conv_view.h"
#include "tessera/device/cpu/conv/conv_walk.h"
#include "tessera/device/cpu/pack.h"

namespace tessera::device {

// Everything that the driver's code is compiled for.
template <ConvDirection kOfWhat, bool kLast, class TypeX, class TypeW, class TypeY, class TypeMath>
struct PackedConvTypes {
  using X = TypeX;
  using W = TypeW;
  using Y = TypeY;
  using Math = TypeMath;
  using Acc = typename Choose<__is_same(typename TypeMath::Acc, i32v), int, float>::type;
  static constexpr ConvDirection kDirection = kOfWhat;
  static constexpr bool kChannelsLast = kLast;
};

// `count` neighbours as words; the last word is filled with zeros.
template <class T, class Math>
[[gnu::always_inline]] inline void copy_words(const T* p, i64 count, u32* out) {
  constexpr int kSpan = kLanes * Math::kPerWord;
  i64 i = 0;
  for (; i + kSpan <= count; i += kSpan, out += kLanes) store(out, load_words<T, Math>(p + i));
  if (i == count) return;
  const int rest = static_cast<int>(count - i);
  if constexpr (sizeof(T) == 4) {
    store_first(out, load_first<u32v>(p + i, rest), rest);
  } else {
    const u32v raw = load_bytes(p + i, rest * static_cast<int>(sizeof(T)));
    store_first(out, load_words<T, Math>(reinterpret_cast<const T*>(&raw)),
                (rest + Math::kPerWord - 1) / Math::kPerWord);
  }
}
inline void zero_words(i64 count, u32* out) {
  for (; count >= kLanes; count -= kLanes, out += kLanes) store(out, u32v{});
  if (count > 0) store_first(out, u32v{}, static_cast<int>(count));
}

template <class T>
struct ConvFactors {
  using Types = ConvTypes<T>;
  using Math = typename T::Math;
  using Row = typename Types::Row;
  using Column = typename Types::Column;
  using Image = typename Types::Image;
  using W = typename T::W;
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

  // ---- pixels by (taps, channels) ----

  // A run of the depth: elements [begin, end) of a line of taps, or of one tap, of which those in
  // `there` lie inside of the image, at data[element].
  struct Run {
    const Image* data;
    Range elements, there;
  };
  static void copy_run(const Run& run, u32* out) {
    const Range all = run.elements;
    const i64 begin = smaller(run.there.begin < all.begin ? all.begin : run.there.begin, all.end);
    const i64 end = run.there.end < begin ? begin : smaller(run.there.end, all.end);
    const i64 first = to_words(begin - all.begin), last = blocks_of(end - all.begin, kPer);
    const i64 words = to_words(all.end - all.begin);
    if (first > 0) zero_words(first, out);
    if (end > begin) copy_words<Image, Math>(run.data + begin, end - begin, out + first);
    if (words > last) zero_words(words - last, out + last);
  }

  // Which taps of a line lie inside for a pixel.
  static Range taps_inside(const ConvAxis& a, i64 place) {
    return inside(place, a.tap_step, a.size, a.taps);
  }
  static bool is_inside(const ConvAxis& a, i64 place) { return place >= 0 && place < a.size; }

  // Where the filter's taps of a line and their channels are neighbours in the image.
  static bool taps_are_neighbours(const ConvView& v) {
    const ConvAxis& w = v.axis[kWidth];
    return v.channels == v.padded && w.tap_step * v.image_stride[kImageW] == v.channels;
  }

  struct Depth {
    Range k;
    ConvTap first;  // the tap of k.begin
    i64 channel;
    bool by_lines;
  };
  static void copy_pixel(const ConvView& v, const Depth& depth, const Image* image,
                         const i64 (&place)[kSpatialDims], u32* out) {
    const ConvAxis& w = v.axis[kWidth];
    const Range across = taps_inside(w, place[kWidth]);
    ConvTap tap = depth.first;
    i64 channel = depth.channel;
    for (i64 e = depth.k.begin; e < depth.k.end;) {
      const i64 d = place[kDepth] + tap.at[kDepth] * v.axis[kDepth].tap_step;
      const i64 h = place[kHeight] + tap.at[kHeight] * v.axis[kHeight].tap_step;
      const bool is_there = is_inside(v.axis[kDepth], d) && is_inside(v.axis[kHeight], h);
      const Image* line = image + d * v.image_stride[kImageD] + h * v.image_stride[kImageH] +
                          place[kWidth] * v.image_stride[kImageW];
      Run run{};
      if (depth.by_lines) {
        const i64 begin = tap.at[kWidth] * v.padded + channel;
        const i64 end = smaller(w.taps * v.padded, begin + depth.k.end - e);
        run = {line, {begin, end}, {across.begin * v.padded, across.end * v.padded}};
        tap.at[kWidth] = w.taps - 1;
      } else {
        const i64 end = smaller(v.padded, channel + depth.k.end - e);
        const bool tap_there = tap.at[kWidth] >= across.begin && tap.at[kWidth] < across.end;
        run = {line + tap.at[kWidth] * w.tap_step * v.image_stride[kImageW],
               {channel, end},
               {0, tap_there ? v.channels : 0}};
      }
      if (!is_there) run.there = {0, 0};
      copy_run(run, out);
      e += run.elements.end - run.elements.begin;
      out += to_words(run.elements.end - run.elements.begin);
      next_tap(v, tap);
      channel = 0;
    }
  }
  static void copy_pixels(const ConvView& v, const void* image, Range m, Range k, u32* out,
                          i64 ld) {
    const Depth depth = {k, tap_of(v, k.begin / v.padded), k.begin % v.padded,
                         taps_are_neighbours(v)};
    ConvPixel p = pixel_of(v, m.begin);
    for (i64 i = m.begin; i < m.end; ++i, out += ld) {
      i64 place[kSpatialDims];
      for (int dim = kDepth; dim <= kWidth; ++dim) {
        place[dim] = v.axis[dim].base + p.at[dim] * v.axis[dim].pixel_step;
      }
      const Image* const from =
          static_cast<const Image*>(image) + v.source_at + p.n * v.image_stride[kImageN];
      copy_pixel(v, depth, from, place, out);
      if (++p.at[kWidth] == v.axis[kWidth].pixels) next_line(v, p);
    }
  }

  // Whether pixels can be multiplied where they lie.
  static constexpr bool kMayBeInPlace =
      !kWeights && T::kChannelsLast && sizeof(Image) * kPer == 4 && !Math::kBiased;

  // Rows of a register block: where they lie, or copied where data is null.
  struct InPlace {
    const Image* data;  // of the first tap
    i64 place[2];       // its depth and height
    i64 distance;       // of rows
  };
  static InPlace in_place(const ConvView& v, const void* image, i64 first, i64 rows, bool even) {
    const ConvAxis& w = v.axis[kWidth];
    const ConvPixel p = pixel_of(v, first);
    i64 place[kSpatialDims], at = v.source_at + p.n * v.image_stride[kImageN];
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      place[dim] = v.axis[dim].base + p.at[dim] * v.axis[dim].pixel_step;
      at += place[dim] * v.image_stride[kImageD + dim];
    }
    const i64 last = place[kWidth] + (rows - 1) * w.pixel_step + (w.taps - 1) * w.tap_step;
    const bool is_line = p.at[kWidth] + rows <= w.pixels && place[kWidth] >= 0 && last < w.size;
    if (v.channels != v.padded || (!even && !is_line)) return {};
    return {static_cast<const Image*>(image) + at,
            {place[kDepth], place[kHeight]},
            w.pixel_step * v.image_stride[kImageW]};
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
        Row together[kSpan];
        for (i64 c = 0; c < count; c += kSpan) {
          const i64 some = smaller(kSpan, count - c);
          for (i64 x = 0; x < some; ++x, from += inner) together[x] = *from;
          copy_words<Row, Math>(together, some, out + words + to_words(c));
        }
      });
    }
  }

  // ---- (taps, channels) by pixels: panels of B in nchw ----

  // Lanes [lane, lane + count) of a panel; outside of the image where data is null.
  struct Piece {
    const Image* data;
    int lane, count;
  };
  static constexpr int kMostColumns = 64;

  // The pieces of a panel for a tap; in whole vectors.
  static int pieces_of(const ConvView& v, const Image* image, i64 j, const ConvTap& tap,
                       int columns, Piece (&pieces)[kMostColumns * 2]) {
    int number = 0;
    const auto add = [&](const Image* data, i64 step, i64 lane, i64 count) {
      for (i64 i = 0; i < count; i += kLanes) {
        pieces[number++] = {data == nullptr ? nullptr : data + i * step, static_cast<int>(lane + i),
                            static_cast<int>(smaller(kLanes, count - i))};
      }
    };
    const ConvAxis& w = v.axis[kWidth];
    const i64 step = w.pixel_step * v.image_stride[kImageW];
    ConvPixel p = pixel_of(v, j);
    for (i64 lane = 0; lane < columns;) {
      const i64 count = smaller(w.pixels - p.at[kWidth], columns - lane);
      i64 place[kSpatialDims];
      for (int dim = kDepth; dim <= kWidth; ++dim) {
        const ConvAxis& a = v.axis[dim];
        place[dim] = a.base + p.at[dim] * a.pixel_step + tap.at[dim] * a.tap_step;
      }
      Range in = inside(place[kWidth], w.pixel_step, w.size, count);
      if (!is_inside(v.axis[kDepth], place[kDepth]) ||
          !is_inside(v.axis[kHeight], place[kHeight]) || in.end <= in.begin) {
        in = {count, count};
      }
      const i64 at =
          v.source_at + p.n * v.image_stride[kImageN] + place[kDepth] * v.image_stride[kImageD] +
          place[kHeight] * v.image_stride[kImageH] + place[kWidth] * v.image_stride[kImageW];
      add(nullptr, 0, lane, in.begin);
      add(image + at + in.begin * step, step, lane + in.begin, in.end - in.begin);
      add(nullptr, 0, lane + in.end, count - in.end);
      lane += count;
      next_line(v, p);
    }
    return number;
  }
  template <class Element>
  [[gnu::always_inline]] static void copy_piece(const Piece& piece, i64 channel, i64 step,
                                                Element* out) {
    Element* const to = out + piece.lane;
    if (piece.data == nullptr) {
      for (int i = 0; i < piece.count; ++i) to[i] = Element{};
      return;
    }
    const Image* const from = piece.data + channel;
    if constexpr (sizeof(Image) == 4) {
      if (step == 1) return store_first(to, load_first<u32v>(from, piece.count), piece.count);
    }
    for (int i = 0; i < piece.count; ++i) __builtin_memcpy(to + i, from + i * step, sizeof(Image));
  }
  static void pack_pixels(const ConvView& v, const void* data, PackB pack, i64 j, Range k,
                          i64 width, u32* out) {
    Piece pieces[kMostColumns * 2];
    const int columns = static_cast<int>(smaller(width, v.columns - j));
    const i64 step = v.axis[kWidth].pixel_step * v.image_stride[kImageW];
    i64 channel = k.begin % v.padded;
    ConvTap tap = tap_of(v, k.begin / v.padded);
    for (i64 e = k.begin; e < k.end; next_tap(v, tap)) {
      const i64 span = smaller(v.padded - channel, k.end - e);
      const i64 count = smaller(span, v.channels - channel);
      const int number = pieces_of(v, static_cast<const Image*>(data), j, tap, columns, pieces);
      if constexpr (sizeof(Image) == 4) {
        for (i64 c = 0; c < count; ++c, out += width) {
          for (int i = 0; i < number; ++i) {
            copy_piece(pieces[i], (channel + c) * v.image_stride[kImageC], step, out);
          }
        }
      } else {
        Column together[16 * kMostColumns];
        for (i64 c = 0; c < count; c += 16) {
          const i64 some = smaller(16, count - c);
          for (i64 x = 0; x < some; ++x) {
            for (int i = 0; i < number; ++i) {
              copy_piece(pieces[i], (channel + c + x) * v.image_stride[kImageC], step,
                         together + x * kMostColumns);
            }
          }
          pack({together, kMostColumns, width, some}, out);
          out += blocks_of(some, kPer) * width;
        }
      }
      e += span;
      channel = 0;
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
    Column together[kShiftPixels * kMostColumns];
    const i64 ld = kBKContiguous ? kShiftPixels : kMostColumns;
    for (i64 lane = 0; lane < columns;) {
      const i64 some = smaller(columns - lane, v.channels - (j + lane) % v.channels);
      copy_shift(shift_of(g, v, p, j + lane, count), channel_step, step, some, count,
                 together + lane * (kBKContiguous ? ld : 1), ld);
      lane += some;
    }
    pack({together, ld, columns, count}, out);
  }
  static constexpr i64 kShiftPixels = 32;
  static void pack_shifted(const ConvArguments& g, const ConvView& v, PackB pack, i64 j, Range k,
                           i64 width, u32* out) {
    const i64 columns = smaller(width, v.columns - j);
    for_each_line(v, k, [&](ConvPixel p, i64 count, i64 words) {
      for (; count > 0; count -= kShiftPixels) {
        pack_shift(g, v, pack, j, columns, p, smaller(count, kShiftPixels), width,
                   out + words * width);
        p.at[kWidth] += kShiftPixels;
        words += to_words(kShiftPixels);
      }
    });
  }

  // ---- what the driver calls ----

  static void pack_a(const ConvArguments& g, const ConvView& v, Range m, Range k, u32* out,
                     i64 ld) {
    if constexpr (kWeights) {
      copy_lines(v, g.y, m, k, out, ld);
    } else if constexpr (T::kChannelsLast) {
      copy_pixels(v, kForward ? g.x : g.y, m, k, out, ld);
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
      pack_pixels(v, kForward ? g.x : g.y, pack, j, k, width, out);
    }
  }
};

}  // namespace tessera::device
