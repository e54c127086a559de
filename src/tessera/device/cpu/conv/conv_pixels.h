// Pixels of an image by (taps, channels of the source), packed without gaps. Places outside of the
// image are zeros.
#pragma once

#include "tessera/device/cpu/conv/conv_epilogue.h"
#include "tessera/device/cpu/conv/conv_view.h"
#include "tessera/device/cpu/conv/conv_walk.h"
#include "tessera/device/cpu/conv/few_lanes.h"
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

// The most columns of a register block.
inline constexpr int kMostConvColumns = 64;

inline bool is_inside(const ConvAxis& a, i64 place) { return place >= 0 && place < a.size; }

template <class T>
struct ConvPixels {
  using Math = typename T::Math;
  using Image = typename ConvTypes<T>::Image;
  using Pack = void (*)(const PanelSource<Image>& s, u32* panel);
  static constexpr int kPer = Math::kPerWord;
  static i64 to_words(i64 depth) { return depth / kPer; }

  // ---- rows of A in nhwgc ----

  // A run of the depth for the pixels of a line: elements [begin, end) of `taps` neighbouring taps
  // with `unit` channels each. The first tap of pixel r lies at place + r * pixel_step of the line,
  // and element 0 at data + r * step.
  struct Run {
    const Image* data;
    i64 place, taps, unit;
    Range elements;
  };
  // Which of the run's elements lie inside of the image for pixel r.
  static Range elements_inside(const ConvAxis& a, const Run& run, i64 r) {
    const Range taps = inside(run.place + r * a.pixel_step, a.tap_step, a.size, run.taps);
    return {taps.begin * run.unit, taps.end * run.unit};
  }
  // One pixel of a run, of whose elements those in `there` lie inside of the image.
  static void copy_cut(const Image* data, Range all, Range there, u32* out) {
    const i64 begin = smaller(there.begin < all.begin ? all.begin : there.begin, all.end);
    const i64 end = there.end < begin ? begin : smaller(there.end, all.end);
    const i64 first = to_words(begin - all.begin), words = to_words(all.end - all.begin);
    zero_words(words, out);
    if (end <= begin) return;
    const i64 odd = (begin - all.begin) % kPer;  // elements of the first word that are outside
    if (odd == 0) return copy_words<Image, Math>(data + begin, end - begin, out + first);
    Image together[kPer] = {};
    const i64 some = smaller(kPer - odd, end - begin);
    for (i64 i = 0; i < some; ++i) together[odd + i] = data[begin + i];
    copy_words<Image, Math>(together, kPer, out + first);
    if (begin + some < end) {
      copy_words<Image, Math>(data + begin + some, end - begin - some, out + first + 1);
    }
  }
  // `rows` pixels of a line, all of whose elements are inside.
  static void copy_whole(const Image* from, i64 step, i64 count, i64 rows, u32* out, i64 ld) {
#if defined(__AVX512BW__)
    if constexpr (sizeof(Image) * kPer == 4) {
      constexpr i64 kSpan = kVectorBytes / i64{sizeof(Image)};
      for (; count > 0; from += kSpan, count -= kSpan, out += kLanes) {
        const i64 some = smaller(count, kSpan);
        const auto words = static_cast<int>(blocks_of(some, kPer));
        const auto bytes = static_cast<int>(some * i64{sizeof(Image)});
        const Image* pixel = from;
        u32* to = out;
        for (i64 r = 0; r < rows; ++r, pixel += step, to += ld) {
          store_first(to, load_few_bytes(pixel, bytes), words);
        }
      }
      return;
    }
#endif
    for (i64 r = 0; r < rows; ++r, from += step, out += ld) {
      copy_words<Image, Math>(from, count, out);
    }
  }
  static void copy_run(const ConvAxis& a, const Run& run, i64 step, i64 rows, u32* out, i64 ld) {
    const i64 last_tap = blocks_of(run.elements.end, run.unit) - 1;
    const i64 first = run.place + run.elements.begin / run.unit * a.tap_step;
    const i64 last = run.place + smaller(last_tap, run.taps - 1) * a.tap_step;
    // Pixels from `begin` on have the first tap inside, those before `end` the last one.
    const i64 begin = smaller(inside(first, a.pixel_step, a.size, rows).begin, rows);
    const i64 end = inside(last, a.pixel_step, a.size, rows).end;
    const i64 count = smaller(run.elements.end, run.taps * run.unit) - run.elements.begin;
    for (i64 r = 0; r < rows; ++r) {
      if (r == begin && end > begin) {
        copy_whole(run.data + r * step + run.elements.begin, step, count, end - begin, out + r * ld,
                   ld);
        r = end - 1;
        continue;
      }
      copy_cut(run.data + r * step, run.elements, elements_inside(a, run, r), out + r * ld);
    }
  }

  // Where the filter's taps of a line and their channels are neighbours in the image.
  static bool taps_are_neighbours(const ConvView& v) {
    const ConvAxis& w = v.axis[kWidth];
    return v.line_taps == 1 && v.channels == v.padded &&
           w.tap_step * v.image_stride[kImageW] == v.channels;
  }

  // The depth [k.begin, k.end) of `rows` pixels of a line from p on.
  static void copy_line(const ConvView& v, const Image* image, const ConvPixel& p, i64 rows,
                        Range k, u32* out, i64 ld) {
    const ConvAxis& w = v.axis[kWidth];
    const i64 width = v.image_stride[kImageW];
    const bool by_lines = taps_are_neighbours(v);
    const i64 place = w.base + p.at[kWidth] * w.pixel_step;
    const Image* const line = image + v.source_at + p.n * v.image_stride[kImageN] + place * width;
    ConvTap tap = tap_of(v, k.begin / v.padded);
    i64 channel = k.begin % v.padded;
    for (i64 e = k.begin; e < k.end;) {
      const i64 d = v.axis[kDepth].base + p.at[kDepth] * v.axis[kDepth].pixel_step +
                    tap.at[kDepth] * v.axis[kDepth].tap_step;
      const i64 h = v.axis[kHeight].base + p.at[kHeight] * v.axis[kHeight].pixel_step +
                    tap.at[kHeight] * v.axis[kHeight].tap_step;
      Run run{line + d * v.image_stride[kImageD] + h * v.image_stride[kImageH],
              place,
              v.line_taps,
              v.channels / v.line_taps,
              {channel, smaller(v.padded, channel + k.end - e)}};
      if (by_lines) {
        const i64 first = tap.at[kWidth] * v.padded + channel;
        run.taps = w.taps;
        run.elements = {first, smaller(w.taps * v.padded, first + k.end - e)};
        tap.at[kWidth] = w.taps - 1;
      } else {
        run.data += tap.at[kWidth] * w.tap_step * width;
        run.place += tap.at[kWidth] * w.tap_step;
      }
      const i64 words = to_words(run.elements.end - run.elements.begin);
      if (is_inside(v.axis[kDepth], d) && is_inside(v.axis[kHeight], h)) {
        copy_run(w, run, w.pixel_step * width, rows, out, ld);
      } else {
        for (i64 r = 0; r < rows; ++r) zero_words(words, out + r * ld);
      }
      e += run.elements.end - run.elements.begin;
      out += words;
      next_tap(v, tap);
      channel = 0;
    }
  }
  static void copy_pixels(const ConvView& v, const void* image, Range m, Range k, u32* out,
                          i64 ld) {
    ConvPixel p = pixel_of(v, m.begin);
    for (i64 i = m.begin; i < m.end; next_line(v, p)) {
      const i64 rows = smaller(m.end - i, v.axis[kWidth].pixels - p.at[kWidth]);
      copy_line(v, static_cast<const Image*>(image), p, rows, k, out, ld);
      i += rows;
      out += rows * ld;
    }
  }

  // Whether pixels can be multiplied where they lie.
  static constexpr bool kMayBeInPlace = T::kDirection != ConvDirection::backward_weight &&
                                        T::kChannelsLast && sizeof(Image) * kPer == 4 &&
                                        !Math::kBiased;

  // Rows of a register block: where they lie, or copied where data is null.
  struct InPlace {
    const Image* data;  // of the first tap
    i64 place[2];       // its depth and height
    i64 distance;       // of rows
    bool is_cut;        // the rows are a part of a line, of which some taps lie outside
    bool is_even;       // all pixels lie at one distance, their one tap is inside
  };
  static InPlace in_place(const ConvView& v, const void* image, i64 first, i64 rows, bool even) {
    const ConvAxis& w = v.axis[kWidth];
    const i64 distance = w.pixel_step * v.image_stride[kImageW];
    if (even && v.channels == v.padded) {  // one tap, which is inside for all pixels
      const i64 at = v.source_at + base_of(v) + first * distance;
      return {static_cast<const Image*>(image) + at, {0, 0}, distance, false, true};
    }
    const ConvPixel p = pixel_of(v, first);
    i64 place[kSpatialDims], at = v.source_at + p.n * v.image_stride[kImageN];
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      place[dim] = v.axis[dim].base + p.at[dim] * v.axis[dim].pixel_step;
      at += place[dim] * v.image_stride[kImageD + dim];
    }
    const i64 taps = w.taps * v.line_taps;
    const i64 last = place[kWidth] + (rows - 1) * w.pixel_step + (taps - 1) * w.tap_step;
    const bool is_line = p.at[kWidth] + rows <= w.pixels;
    // The last word of a line of taps may hold an element of the next pixel, which meets a zero.
    const bool is_odd = v.channels != v.padded;
    const bool is_within = is_line && place[kWidth] >= 0 && last + (is_odd ? 1 : 0) < w.size;
    bool is_cut = false;
    for (int dim = kDepth; dim <= kHeight; ++dim) {
      const ConvAxis& a = v.axis[dim];
      is_cut = is_cut || place[dim] < 0 || place[dim] + (a.taps - 1) * a.tap_step >= a.size;
    }
    if ((is_odd && v.line_taps == 1) || !is_within) {
      return {nullptr, {place[kDepth], place[kHeight]}, 0, is_line && is_cut, false};
    }
    return {static_cast<const Image*>(image) + at,
            {place[kDepth], place[kHeight]},
            distance,
            false,
            false};
  }

  // ---- panels of B in nchw ----

  // Lanes [lane, lane + count) of a panel; outside of the image where data is null.
  struct Piece {
    const Image* data;
    int lane, count;
  };

  // Whether the sources of an image's pixels lie at one distance, see sources_are_even().
  static bool lines_are_even(const ConvView& v) {
    ConvView one = v;
    one.images = 1;
    return sources_are_even(one);
  }
  static i64 base_of(const ConvView& v) {
    i64 at = 0;
    for (int dim = kDepth; dim <= kWidth; ++dim) {
      at += v.axis[dim].base * v.image_stride[kImageD + dim];
    }
    return at;
  }

  // The pieces of a panel for a tap; in whole vectors.
  static int pieces_of(const ConvView& v, const Image* image, i64 j, const ConvTap& tap,
                       int columns, Piece (&pieces)[kMostConvColumns * 2]) {
    int number = 0;
    const auto add = [&](const Image* data, i64 step, i64 lane, i64 count) {
      for (i64 i = 0; i < count; i += kLanes) {
        pieces[number++] = {data == nullptr ? nullptr : data + i * step, static_cast<int>(lane + i),
                            static_cast<int>(smaller(kLanes, count - i))};
      }
    };
    const ConvAxis& w = v.axis[kWidth];
    const i64 step = w.pixel_step * v.image_stride[kImageW];
    if (lines_are_even(v)) {
      const i64 of_image = v.pixels() / v.images;
      for (i64 lane = 0; lane < columns;) {
        const i64 n = (j + lane) / of_image, first = (j + lane) % of_image;
        const i64 count = smaller(of_image - first, columns - lane);
        add(image + v.source_at + n * v.image_stride[kImageN] + base_of(v) + first * step, step,
            lane, count);
        lane += count;
      }
      return number;
    }
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
  // A piece of `channels` neighbouring channels, as rows of elements at a distance of ld.
  template <class Element>
  static void copy_piece(const Piece& piece, i64 channels, i64 distance, i64 step, Element* out,
                         i64 ld) {
    const Image* from = piece.data;
    Element* to = out + piece.lane;
    for (i64 c = 0; c < channels; ++c, to += ld) {
      if (piece.data == nullptr) {
        for (int i = 0; i < piece.count; ++i) to[i] = Element{};
      } else if (sizeof(Image) == 4 && step == 1) {
        store_first(to, load_first<u32v>(from + c * distance, piece.count), piece.count);
      } else {
        const Image* element = from + c * distance;
        for (int i = 0; i < piece.count; ++i, element += step) {
          __builtin_memcpy(to + i, element, sizeof(Image));
        }
      }
    }
  }
  static void pack_pixels(const ConvView& v, const void* data, Pack pack, i64 j, Range k, i64 width,
                          u32* out) {
    Piece pieces[kMostConvColumns * 2];
    const int columns = static_cast<int>(smaller(width, v.columns - j));
    const i64 step = v.axis[kWidth].pixel_step * v.image_stride[kImageW];
    i64 channel = k.begin % v.padded;
    ConvTap tap = tap_of(v, k.begin / v.padded);
    for (i64 e = k.begin; e < k.end; next_tap(v, tap)) {
      const i64 span = smaller(v.padded - channel, k.end - e);
      const i64 count = smaller(span, v.channels - channel);
      const int number = pieces_of(v, static_cast<const Image*>(data), j, tap, columns, pieces);
      const i64 distance = v.image_stride[kImageC];
      const i64 first = channel * distance;
      for (int i = 0; i < number; ++i) {
        if (pieces[i].data != nullptr) pieces[i].data += first;
      }
      if constexpr (sizeof(Image) == 4) {
        for (int i = 0; i < number; ++i) copy_piece(pieces[i], count, distance, step, out, width);
        out += count * width;
      } else {
        Image together[16 * kMostConvColumns];
        for (i64 c = 0; c < count; c += 16) {
          const i64 some = smaller(16, count - c);
          for (int i = 0; i < number; ++i) {
            copy_piece(pieces[i], some, distance, step, together, kMostConvColumns);
            if (pieces[i].data != nullptr) pieces[i].data += 16 * distance;
          }
          pack({together, kMostConvColumns, width, some}, out);
          out += blocks_of(some, kPer) * width;
        }
      }
      e += span;
      channel = 0;
    }
  }
};

}  // namespace tessera::device
