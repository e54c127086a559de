// Depthwise convolutions of images in which pixels of a line are neighbours: lanes are pixels. Some
// lines at a time are copied as floats, with zeros around the image, so that every tap reads whole
// vectors. A factor that is no number would make those zeros NaN; sums with such a factor are
// formed one by one instead.
#pragma once

#include "tessera/device/cpu/conv/depthwise_shape.h"

namespace tessera::device {

// Lines as floats: of each, `phases` parts of `pitch` places. Part p has every phases-th place from
// base + p on, so that a stride of the width becomes none.
struct DepthwiseLines {
  float* data;
  i64 base, phases, pitch;
  i64 line_pitch() const { return phases * pitch; }
  // Where the place base + at lies in a line.
  i64 place(i64 at) const { return at % phases * pitch + at / phases; }
};

// Places base, base + step, ... of a line of `size` elements; those outside are zeros.
template <class T>
void copy_places(const T* line, i64 size, i64 base, i64 step, float* out, i64 count) {
  Range in = inside(base, step, size, count);
  if (in.end < in.begin) in = {0, 0};
  for (i64 i = 0; i < in.begin; ++i) out[i] = 0;
  for (i64 i = in.end; i < count; ++i) out[i] = 0;
  const T* from = line + base + in.begin * step;
  for (i64 i = in.begin; i < in.end; i += kLanes, from += kLanes * step) {
    const int lanes = static_cast<int>(smaller(kLanes, in.end - i));
    if (step == 1) {
      store_float(out + i, load_float(from, lanes), lanes);
    } else {
      store_float(out + i, lanes_apart(from, step, lanes), lanes);
    }
  }
}
// The same for steps of two, both parts at once.
template <int... I>
[[gnu::always_inline]] inline void part_pairs(f32v a, f32v b, f32v& even, f32v& odd, Lanes<I...>) {
  even = __builtin_shufflevector(a, b, (2 * I)...);
  odd = __builtin_shufflevector(a, b, (2 * I + 1)...);
}
template <class T>
void copy_pairs(const T* line, i64 size, i64 base, float* out, i64 pitch) {
  const i64 first = base < 0 ? blocks_of(-base, 2) : 0;
  i64 i = first;
  for (; base + 2 * (i + kLanes) <= size && i + kLanes <= pitch; i += kLanes) {
    f32v even, odd;
    const T* const from = line + base + 2 * i;
    part_pairs(load_float(from, kLanes), load_float(from + kLanes, kLanes), even, odd, AllLanes{});
    store(out + i, even);
    store(out + pitch + i, odd);
  }
  const auto place = [&](i64 at) {
    const i64 p = base + at;
    return p < 0 || p >= size ? 0.0F : load_float(line + p, 1)[0];
  };
  const auto rest = [&](i64 begin, i64 end) {
    for (i64 q = begin; q < end; ++q) {
      out[q] = place(2 * q);
      out[pitch + q] = place(2 * q + 1);
    }
  };
  rest(0, smaller(first, pitch));
  rest(smaller(i, pitch), pitch);
}
template <class T>
void copy_line(const T* line, i64 size, const DepthwiseLines& to, float* out) {
  if (to.phases == 2) return copy_pairs(line, size, to.base, out, to.pitch);
  for (i64 p = 0; p < to.phases; ++p) {
    copy_places(line, size, to.base + p, to.phases, out + p * to.pitch, to.pitch);
  }
}
[[gnu::noinline]] inline bool all_finite(const float* p, i64 count) {
  f32v zeros{};
  for (i64 i = 0; i < count; i += kLanes) {
    const f32v x = load_float(p + i, static_cast<int>(smaller(kLanes, count - i)));
    zeros += x * 0.0F;
  }
  return sum_of_lanes(zeros) == 0;
}

// Lines of the result that are worked on together: as many as their copies leave room in L1.
inline i64 depthwise_band(i64 lines, i64 words_of_line, i64 rows) {
  constexpr i64 kMost = 4, kWords = 6144;
  i64 blocks = kMost;
  while (blocks > 1 && blocks * rows * words_of_line > kWords) --blocks;
  return smaller(lines, blocks * rows);
}

// Gradients by x and results: rows are lines of pixels, steps are taps of the height.
template <class T>
struct DepthwiseFirstImages : DepthwiseRun<T> {
  using DepthwiseRun<T>::s;
  using DepthwiseRun<T>::g;
  using DepthwiseRun<T>::thread;
  using DepthwiseRun<T>::taps;
  using Image = typename T::Image;

  static constexpr bool kForward = T::kForward;
  i64 channels() const { return g.groups * (kForward ? g.k : 1); }
  i64 sources() const { return kForward ? 1 : g.k; }  // of a channel

  // What a thread holds: copied lines, sums of a band, a filter, places of its taps in a line.
  struct Band {
    const ConvView& v;
    i64 lines, pitch;  // of the result, and its pixels of a line
    i64 copied;        // lines of one depth
    DepthwiseLines from;
    float *sums, *filter;
    i64* places;
  };
  Band band_of(const ConvView& v, u32* space) const {
    const ConvAxis &w = v.axis[kWidth], &h = v.axis[kHeight];
    Band b{v, 0, w.pixels, 0, {}, nullptr, nullptr, nullptr};
    const i64 phases = w.pixel_step;
    const i64 reach = w.taps == 0 ? 0 : (w.taps - 1) * w.tap_step;
    b.from = {nullptr, w.base, phases, blocks_of(w.pixels, kLanes) * kLanes + reach / phases + 1};
    b.lines = depthwise_band(h.pixels, b.from.line_pitch() * h.pixel_step, s.rows);
    b.copied = (b.lines - 1) * h.pixel_step + (h.taps == 0 ? 0 : (h.taps - 1) * h.tap_step) + 1;
    b.places = reinterpret_cast<i64*>(space);
    b.filter = reinterpret_cast<float*>(b.places + g.filter[kWidth]);
    b.sums = b.filter + taps();
    b.from.data = b.sums + b.lines * b.pitch;
    return b;
  }
  i64 words_of(const ConvView& v) const {
    const Band b = band_of(v, nullptr);
    return g.filter[kWidth] * 2 + taps() + b.lines * b.pitch +
           v.axis[kDepth].taps * b.copied * b.from.line_pitch() + kLanes;
  }
  // Class 0 has the most pixels, but not always the most taps.
  i64 thread_words() const {
    i64 most = 0;
    for (i64 c = 0; c < depthwise_classes<T>(g); ++c) {
      const i64 words = words_of(depthwise_view<T>(g, c));
      if (words > most) most = words;
    }
    return blocks_of(most, kLanes) * kLanes;
  }
  i64 workspace_bytes(int threads) const { return thread_words() * threads * 4; }

  // The filter of channel k of a group, as the class's taps are counted.
  void copy_filter(const Band& b, i64 group, i64 k) const {
    const ConvView& v = b.v;
    const auto* const w = static_cast<const typename T::W*>(g.w) + group * g.w_stride[kFilterG] +
                          k * g.w_stride[kFilterK];
    ConvTap tap{};
    for (i64 i = 0; i < v.taps(); ++i, next_tap(v, tap)) {
      b.filter[i] = load_float(w + filter_offset(g, v, tap), 1)[0];
    }
  }
  struct Unit {
    i64 n, channel, depth;
    Range lines;
  };
  // Lines of the image that a band meets at the taps [z.begin, z.end) of the depth.
  void copy_lines(const Band& b, const Image* image, const AxisTaps& z, Range lines) const {
    const ConvView& v = b.v;
    const ConvAxis &h = v.axis[kHeight], &d = v.axis[kDepth];
    for (i64 tap = z.taps.begin; tap < z.taps.end; ++tap) {
      for (i64 i = 0; i < b.copied; ++i) {
        const i64 place = h.base + lines.begin * h.pixel_step + i;
        if (!(place >= 0 && place < h.size)) continue;
        copy_line(image + (z.place + tap * d.tap_step) * v.image_stride[kImageD] +
                      place * v.image_stride[kImageH],
                  v.axis[kWidth].size, b.from,
                  b.from.data + ((tap - z.taps.begin) * b.copied + i) * b.from.line_pitch());
      }
    }
  }

  void multiply_band(const Band& b, const AxisTaps& z, Range lines, float* out, i64 ld,
                     bool accumulate) const {
    const ConvView& v = b.v;
    const ConvAxis &h = v.axis[kHeight], &w = v.axis[kWidth];
    const i64 line = b.from.line_pitch();
    typename T::Nest t{};
    t.outer = z.taps.end - z.taps.begin;
    t.middle = w.taps;
    t.steps = h.taps;
    t.source_outer = b.copied * line;
    t.middle_places = b.places;
    t.source_step = h.tap_step * line;
    t.source_row = h.pixel_step * line;
    t.source_place = line;
    t.factor_outer = h.taps * w.taps;
    t.factor_middle = 1;
    t.factor_step = w.taps;
    t.place_step = h.tap_step;
    t.place_row = h.pixel_step;
    t.size = h.size;
    t.place = h.base + lines.begin * h.pixel_step;
    t.source = b.from.data;
    t.factor = b.filter + z.taps.begin * t.factor_outer;
    const i64 vectors = blocks_of(w.pixels, kLanes);
    this->multiply(t, {reinterpret_cast<u32*>(out), ld, lines.end - lines.begin, vectors,
                       static_cast<int>(w.pixels - (vectors - 1) * kLanes), accumulate});
  }
  // One by one, taps outside of the image left out.
  [[gnu::noinline]] void multiply_inside(const Band& b, const AxisTaps& z, Range lines) const {
    const ConvView& v = b.v;
    const i64 width = v.axis[kWidth].pixels, line = b.from.line_pitch();
    for (i64 i = 0; i < (lines.end - lines.begin) * width; ++i) {
      const i64 h = i / width, w = i % width;
      const AxisTaps y = taps_of(v.axis[kHeight], lines.begin + h);
      const AxisTaps x = taps_of(v.axis[kWidth], w);
      float sum = b.sums[h * b.pitch + w];
      for (i64 tz = z.taps.begin; tz < z.taps.end; ++tz) {
        for (i64 ty = y.taps.begin; ty < y.taps.end; ++ty) {
          const i64 from = (tz - z.taps.begin) * b.copied + h * v.axis[kHeight].pixel_step +
                           ty * v.axis[kHeight].tap_step;
          const float* const filter =
              b.filter + (tz * v.axis[kHeight].taps + ty) * v.axis[kWidth].taps;
          for (i64 tx = x.taps.begin; tx < x.taps.end; ++tx) {
            sum += b.from.data[from * line + b.places[tx] + w] * filter[tx];
          }
        }
      }
      b.sums[h * b.pitch + w] = sum;
    }
  }

  void run_unit(const Band& b, const Unit& u) const {
    const ConvView& v = b.v;
    const i64 group = kForward ? u.channel / g.k : u.channel;
    const i64 rows = u.lines.end - u.lines.begin, distance = pixel_distance(v);
    const i64 row = v.axis[kHeight].pixel_stride * v.pixel_stride[kImageH];
    const AxisTaps z = taps_of(v.axis[kDepth], u.depth);
    const i64 own_channel = kForward ? u.channel % g.k : 0;
    const i64 at = offset_of(v, {u.n, {u.depth, u.lines.begin, 0}}) +
                   group * v.pixel_stride[kImageG] + own_channel * v.pixel_stride[kImageC];
    const bool plain =
        s.sums_are_output && g.alpha == 1.0F && g.beta == 0.0F && distance == 1 && sources() == 1;
    bool in_place = false;
    for (i64 k = 0; k < sources(); ++k) {
      const auto* const image = static_cast<const Image*>(kForward ? g.x : g.y) +
                                u.n * v.image_stride[kImageN] + group * v.image_stride[kImageG] +
                                k * v.image_stride[kImageC];
      copy_filter(b, group, own_channel + k);
      copy_lines(b, image, z, u.lines);
      if (all_finite(b.filter, v.taps())) {
        in_place = plain;
        multiply_band(b, z, u.lines, plain ? static_cast<float*>(g.out) + at : b.sums,
                      plain ? row : b.pitch, k > 0);
        continue;
      }
      if (k == 0) {
        for (i64 i = 0; i < b.lines * b.pitch; ++i) b.sums[i] = 0;
      }
      multiply_inside(b, z, u.lines);
    }
    if (!in_place) finish_band(b, {at, rows, b.pitch, row, distance, u.channel});
  }
  // Rows of a rectangle would be channels, so that all its pixels have to be in one row.
  void finish_band(const Band& b, ConvRectangle r) const {
    const u32* sums = reinterpret_cast<const u32*>(b.sums);
    if (!kForward) return s.finish(g, r, sums, b.pitch);
    const i64 lines = r.rows;
    const bool together = r.row_stride == b.pitch;
    r.columns = together ? lines * b.pitch : b.pitch;
    r.rows = 1;
    for (i64 i = 0; i < (together ? 1 : lines); ++i, r.at += r.row_stride, sums += b.pitch) {
      s.finish(g, r, sums, b.pitch);
    }
  }
  void run_class(const ConvView& v) const {
    const Band b = band_of(v, static_cast<u32*>(thread.workspace) + thread.index * thread_words());
    for (i64 x = 0; x < v.axis[kWidth].taps; ++x) {
      b.places[x] = b.from.place(x * v.axis[kWidth].tap_step);
    }
    const i64 lines = v.axis[kHeight].pixels;
    const i64 sizes[4] = {g.n, channels(), v.axis[kDepth].pixels, blocks_of(lines, b.lines)};
    const Range mine = part(product_of(sizes), 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      i64 at[4];
      digits_of(i, sizes, at);
      const i64 begin = at[3] * b.lines;
      run_unit(b, {at[0], at[1], at[2], {begin, smaller(begin + b.lines, lines)}});
    }
  }
  void run() const {
    for (i64 c = 0; c < depthwise_classes<T>(g); ++c) run_class(depthwise_view<T>(g, c));
  }
};

}  // namespace tessera::device
