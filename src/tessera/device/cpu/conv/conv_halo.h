// Groups: the part of an image that some lines of a result meet, copied for one group, with zeros
// around it. Its channels lie side by side, so that all taps of a line are one run, and no tap lies
// outside. All groups of a band of lines follow each other, because they share its cache lines.
#pragma once

#include "tessera/device/cpu/conv/conv_pixels.h"

namespace tessera::device {

// Pixels one after another, each with `channels` elements and zeros up to `padded`. Whole vectors
// are stored, each over the beginning of what follows: the copy has room for one more.
template <class E>
inline void copy_side_by_side(const E* from, i64 step, i64 channels, i64 padded, i64 pixels,
                              E* to) {
  for (i64 i = 0; i < pixels; ++i, from += step, to += padded) {
#if defined(__AVX512BW__)
    constexpr i64 kSpan = kVectorBytes / i64{sizeof(E)};
    for (i64 c = 0; c < channels; c += kSpan) {
      const i64 bytes = smaller(kSpan, channels - c) * i64{sizeof(E)};
      store(to + c, load_few_bytes(from + c, static_cast<int>(bytes)));
    }
#else
    for (i64 c = 0; c < padded; ++c) to[c] = c < channels ? from[c] : E{};
#endif
  }
}

template <class T>
struct ConvHalo {
  using Types = ConvTypes<T>;
  using Image = typename Types::Image;
  static constexpr bool kMayCopy = T::kChannelsLast && !Types::kWeights;
  static constexpr i64 kBytes = 98304;  // of a copy: a part of L2, also of small ones
  // All groups of a band, which L2 keeps for the next one.
  static constexpr i64 kSource = 524288;
  // A band has so many, because neighbouring bands copy the lines between them.
  static constexpr i64 kLeastLines = 4;

  i64 lines;  // of the result in a band; 0: the image is read where it lies

  // Places of the source that pixels of an axis meet, gaps included.
  static i64 reach(const ConvAxis& a, i64 pixels) {
    return (pixels - 1) * a.pixel_step + (a.taps - 1) * a.tap_step + 1;
  }
  static bool copies(const ConvArguments& g) { return kMayCopy && g.groups > 1; }
  // Words of a thread's workspace.
  static i64 words(const ConvArguments& g) { return copies(g) ? kBytes / 4 + kLanes : 0; }

  static ConvHalo of(const ConvArguments& g, const ConvView& v) {
    if (!copies(g) || v.depth == 0 || v.line_taps != 1) return {0};
    const ConvAxis &d = v.axis[kDepth], &h = v.axis[kHeight], &w = v.axis[kWidth];
    if (reach(d, 1) > kBytes || reach(w, w.pixels) > kBytes / v.padded) return {0};
    const i64 line = reach(d, 1) * reach(w, w.pixels) * v.padded * i64{sizeof(Image)};
    const i64 rest = kBytes / line - reach(h, 1);
    if (rest < 0) return {0};
    const i64 source = reach(d, 1) * w.size * v.image_stride[kImageW] * i64{sizeof(Image)};
    i64 kept = source == 0 ? h.pixels : (kSource / source - reach(h, 1)) / h.pixel_step + 1;
    if (kept < kLeastLines) kept = kLeastLines;
    const i64 bands = blocks_of(h.pixels, smaller(rest / h.pixel_step + 1, kept));
    return {blocks_of(h.pixels, bands)};
  }
  i64 bands(const ConvView& v) const {
    return v.images * v.axis[kDepth].pixels * blocks_of(v.axis[kHeight].pixels, lines);
  }
  ConvPixel first_pixel(const ConvView& v, i64 band) const {
    const i64 of_plane = blocks_of(v.axis[kHeight].pixels, lines), depth = v.axis[kDepth].pixels;
    return {band / of_plane / depth, {band / of_plane % depth, band % of_plane * lines, 0}};
  }

  // The view of a band of one group, whose source is the copy.
  ConvView view(const ConvView& v, i64 band) const {
    const ConvPixel first = first_pixel(v, band);
    ConvView b = v;
    b.images = 1;
    b.pixels_at = offset_of(v, first);
    b.source_at = 0;
    b.channels = v.padded;
    b.axis[kDepth].pixels = 1;
    b.axis[kHeight].pixels = smaller(lines, v.axis[kHeight].pixels - first.at[kHeight]);
    i64 distance = v.padded;
    for (int dim = kWidth; dim >= kDepth; --dim) {
      ConvAxis& a = b.axis[dim];
      a.base = a.first_pixel = 0;
      a.size = reach(a, a.pixels);
      b.image_stride[kImageD + dim] = distance;
      distance *= a.size;
    }
    b.image_stride[kImageC] = 1;
    b.rows = b.pixels();
    return b;
  }

  static void zero(Image* to, i64 elements) {
    constexpr i64 kSpan = kVectorBytes / i64{sizeof(Image)};
    for (i64 i = 0; i < elements; i += kSpan) store(to + i, u32v{});
  }
  // `v` is the view of the whole image, `b` that of the band.
  void copy(const ConvView& v, const ConvView& b, i64 band, const void* image, Image* to) const {
    const ConvPixel first = first_pixel(v, band);
    const ConvAxis &ad = v.axis[kDepth], &ah = v.axis[kHeight], &aw = v.axis[kWidth];
    const i64 width = b.axis[kWidth].size, of_line = width * v.padded;
    const i64 left = smaller(aw.base < 0 ? -aw.base : 0, width);
    const i64 there = aw.size - aw.base;
    const i64 end = there < left ? left : smaller(there, width);
    const auto* const from = static_cast<const Image*>(image) + v.source_at +
                             first.n * v.image_stride[kImageN] +
                             (aw.base + left) * v.image_stride[kImageW];
    for (i64 z = 0; z < b.axis[kDepth].size; ++z) {
      const i64 d = ad.base + first.at[kDepth] * ad.pixel_step + z;
      for (i64 y = 0; y < b.axis[kHeight].size; ++y, to += of_line) {
        const i64 h = ah.base + first.at[kHeight] * ah.pixel_step + y;
        if (!is_inside(ad, d) || !is_inside(ah, h)) {
          zero(to, of_line);
          continue;
        }
        zero(to, left * v.padded);
        copy_side_by_side(from + d * v.image_stride[kImageD] + h * v.image_stride[kImageH],
                          v.image_stride[kImageW], v.channels, v.padded, end - left,
                          to + left * v.padded);
        zero(to + end * v.padded, (width - end) * v.padded);
      }
    }
  }
};

// Gradients by w: both images of one group, copied with their channels side by side.
template <class T>
struct ConvGroupCopy {
  static constexpr bool kMayCopy = T::kChannelsLast && ConvTypes<T>::kWeights;
  static constexpr i64 kBytes = 393216;  // of both: a part of L2

  static i64 bytes_of(i64 n, i64 channels, const i64 (&size)[kSpatialDims], i64 element) {
    return blocks_of(n * channels * product_of(size) * element, kVectorBytes) * kVectorBytes +
           kVectorBytes;
  }
  static i64 bytes_of_x(const ConvArguments& g) {
    return bytes_of(g.n, g.c, g.size, sizeof(typename T::X));
  }
  static i64 bytes(const ConvArguments& g) {
    return bytes_of_x(g) + bytes_of(g.n, g.k, g.out_size, sizeof(typename T::Y));
  }
  static bool copies(const ConvArguments& g) {
    return kMayCopy && g.groups > 1 && bytes(g) <= kBytes;
  }
  static i64 words(const ConvArguments& g) { return copies(g) ? bytes(g) / 4 : 0; }

  template <class E>
  static void copy(const void* image, i64 n, i64 channels, const i64 (&size)[kSpatialDims],
                   i64 group, i64 (&stride)[kImageStrides], E* to) {
    const auto* const from = static_cast<const E*>(image) + group * stride[kImageG];
    const i64 lines[3] = {n, size[kDepth], size[kHeight]};
    for (i64 i = 0; i < product_of(lines); ++i, to += size[kWidth] * channels) {
      i64 at[3];
      digits_of(i, lines, at);
      copy_side_by_side(
          from + at[0] * stride[kImageN] + at[1] * stride[kImageD] + at[2] * stride[kImageH],
          stride[kImageW], channels, channels, size[kWidth], to);
    }
    stride[kImageG] = 0;
    stride[kImageC] = 1;
    i64 distance = channels;
    for (int dim = kWidth; dim >= kDepth; --dim) {
      stride[kImageD + dim] = distance;
      distance *= size[dim];
    }
    stride[kImageN] = distance;
  }
  // What the copy of a group is read by.
  static ConvArguments copied(const ConvArguments& g, i64 group, u8* to) {
    ConvArguments own = g;
    auto* const x = reinterpret_cast<typename T::X*>(to);
    auto* const y = reinterpret_cast<typename T::Y*>(to + bytes_of_x(g));
    copy(g.x, g.n, g.c, g.size, group, own.x_stride, x);
    copy(g.y, g.n, g.k, g.out_size, group, own.y_stride, y);
    own.x = x;
    own.y = y;
    return own;
  }
};

}  // namespace tessera::device
