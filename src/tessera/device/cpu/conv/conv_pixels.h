// Pixels of an image by (taps, channels of the source), packed without gaps. Places outside of the
// image are zeros.
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
    const i64 last = place[kWidth] + (rows - 1) * w.pixel_step + (w.taps - 1) * w.tap_step;
    const bool is_line = p.at[kWidth] + rows <= w.pixels;
    const bool is_within = is_line && place[kWidth] >= 0 && last < w.size;
    bool is_cut = false;
    for (int dim = kDepth; dim <= kHeight; ++dim) {
      const ConvAxis& a = v.axis[dim];
      is_cut = is_cut || place[dim] < 0 || place[dim] + (a.taps - 1) * a.tap_step >= a.size;
    }
    if (v.channels != v.padded || !is_within) {
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
