// Depthwise convolutions of images whose channels are neighbours: lanes are channels. Each sum is
// formed in one order, so that the number of threads does not change its bits.
#pragma once

#include "tessera/device/cpu/conv/depthwise_shape.h"

namespace tessera::device {

// Gradients by x and results: rows are pixels of a line, steps are taps. Filters are packed as
// [k of the group][tap][channel]; all threads pack, then all read.
template <class T>
struct DepthwiseLastImages : DepthwiseRun<T> {
  using DepthwiseRun<T>::s;
  using DepthwiseRun<T>::g;
  using DepthwiseRun<T>::thread;
  using DepthwiseRun<T>::taps;
  using Nest = typename T::Nest;
  using Image = typename T::Image;
  using Span = ChannelSpans::Span;
  using Weight = typename T::W;

  ChannelSpans spans() const { return ChannelSpans::of(g, taps()); }
  i64 filter_words() const { return g.k * taps() * spans().pitch(); }
  // Sums that are finished together: pixels by channels.
  i64 batch() const {
    constexpr i64 kWords = 4096;
    const i64 fit = kWords / spans().lanes() / s.rows;
    return (fit < 1 ? 1 : fit) * s.rows;
  }
  i64 batch_words() const { return batch() * spans().lanes(); }
  i64 thread_words() const { return batch_words() * (T::kForward && g.k > 1 ? 1 + g.k : 1); }
  i64 view_words() const {
    return blocks_of(depthwise_classes<T>(g) * i64{sizeof(ConvView)}, kVectorBytes) * kLanes;
  }
  i64 workspace_bytes(int threads) const {
    return (filter_words() + (thread_words() + view_words()) * threads) * 4;
  }
  u32* filters() const { return static_cast<u32*>(thread.workspace); }
  u32* scratch() const { return filters() + filter_words() + thread.index * thread_words(); }
  // Every thread's own.
  ConvView* views() const {
    u32* const all = filters() + filter_words() + thread.count * thread_words();
    return reinterpret_cast<ConvView*>(all + thread.index * view_words());
  }

  // A vector of channels by all taps, which are neighbours in memory.
  void pack_turned(const Weight* w, int count, float* to) const {
    const i64 pitch = spans().pitch(), all = taps();
    for (i64 tap = 0; tap < all; tap += kLanes) {
      const int some = static_cast<int>(smaller(kLanes, all - tap));
      u32v rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        rows[i] = u32v{};
        if (i < count) rows[i] = load_first<u32v>(w + i * g.w_stride[kFilterG] + tap, some);
      }
      transpose(rows);
      for (int i = 0; i < some; ++i) store(to + (tap + i) * pitch, rows[i]);
    }
  }
  void pack_vector(i64 k, i64 channel) const {
    const int count = static_cast<int>(smaller(kLanes, g.groups - channel));
    const i64 pitch = spans().pitch(), run = taps_of_run(g);
    const Weight* const w =
        static_cast<const Weight*>(g.w) + channel * g.w_stride[kFilterG] + k * g.w_stride[kFilterK];
    float* const to = reinterpret_cast<float*>(filters()) + k * taps() * pitch + channel;
    if constexpr (sizeof(Weight) == 4) {
      if (run == taps() && g.w_stride[kFilterX] == 1) return pack_turned(w, count, to);
    }
    for (i64 tap = 0; tap < taps(); ++tap) {
      store(to + tap * pitch, lanes_apart(w + place_of_tap(g, tap), g.w_stride[kFilterG], count));
    }
  }
  void pack() const {
    const i64 vectors = blocks_of(g.groups, kLanes);
    const Range mine = part(vectors * g.k, 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) pack_vector(i / vectors, i % vectors * kLanes);
  }

  // ---- a line of pixels by a span of channels ----

  struct Line {
    const ConvView& v;
    Span span;
    ConvPixel first;
  };

  Nest nest_of(const Line& line) const {
    const ConvView& v = line.v;
    const i64 pitch = spans().pitch();
    const AxisTaps z = taps_of(v.axis[kDepth], line.first.at[kDepth]);
    const AxisTaps y = taps_of(v.axis[kHeight], line.first.at[kHeight]);
    const ConvAxis &az = v.axis[kDepth], &ay = v.axis[kHeight], &ax = v.axis[kWidth];
    const i64 of_z = g.filter[kHeight] * g.filter[kWidth] * pitch, of_y = g.filter[kWidth] * pitch;
    Nest t{};
    t.source = static_cast<const Image*>(T::kForward ? g.x : g.y) +
               line.first.n * v.image_stride[kImageN] +
               (z.place + z.taps.begin * az.tap_step) * v.image_stride[kImageD] +
               (y.place + y.taps.begin * ay.tap_step) * v.image_stride[kImageH] +
               ax.base * v.image_stride[kImageW] + line.span.first * v.image_stride[kImageG];
    t.factor = reinterpret_cast<const float*>(filters()) + line.span.first +
               (az.first_tap + z.taps.begin * az.tap_stride) * of_z +
               (ay.first_tap + y.taps.begin * ay.tap_stride) * of_y + ax.first_tap * pitch;
    t.outer = z.taps.end - z.taps.begin;
    t.middle = y.taps.end - y.taps.begin;
    t.steps = ax.taps;
    t.source_outer = az.tap_step * v.image_stride[kImageD];
    t.source_middle = ay.tap_step * v.image_stride[kImageH];
    t.source_step = ax.tap_step * v.image_stride[kImageW];
    t.source_row = ax.pixel_step * v.image_stride[kImageW];
    t.source_place = v.image_stride[kImageW];
    t.factor_outer = az.tap_stride * of_z;
    t.factor_middle = ay.tap_stride * of_y;
    t.factor_step = ax.tap_stride * pitch;
    t.place = ax.base;
    t.place_step = ax.tap_step;
    t.place_row = ax.pixel_step;
    t.size = ax.size;
    t.lane = g.k;
    return t;
  }
  // Pixels [first, first + rows) of a line. Several channels of y in a group lie apart.
  void multiply_pixels(Nest t, i64 first, DepthwiseSums sums) const {
    t.source += first * t.source_row;
    t.place += first * t.place_row;
    if (T::kForward || g.k == 1) return this->multiply(t, sums);
    for (i64 k = 0; k < g.k; ++k) {
      this->multiply_any(t, sums, true);
      sums.accumulate = true;
      t.source += 1;
      t.factor += taps() * spans().pitch();
    }
  }
  // Channel k of each group takes its place between the other channels.
  void spread(const u32* from, i64 rows, i64 lanes, i64 k, u32* to) const {
    for (i64 i = 0; i < rows * lanes; ++i) to[i * g.k + k] = from[i];
  }
  // Sums of int8 are whole numbers, which floats hold exactly.
  static void to_sums(u32* sums, i64 words) {
    if constexpr (is_int8<Image>::value) {
      for (i64 i = 0; i < words; i += kLanes) {
        store(sums + i, __builtin_convertvector(load<f32v>(sums + i), i32v));
      }
    }
  }
  void finish_line(const Line& line, const Nest& t, i64 at) const {
    const Span& span = line.span;
    const i64 lanes = spans().lanes(), pixels = line.v.axis[kWidth].pixels;
    const i64 distance = pixel_distance(line.v), k = T::kForward ? g.k : 1;
    const i64 vectors = span.vectors();
    if (s.sums_are_output && g.alpha == 1.0F && g.beta == 0.0F && g.k == 1) {
      return multiply_pixels(
          t, 0, {static_cast<u32*>(g.out) + at, distance, pixels, vectors, span.last(), false});
    }
    u32* const own = scratch();
    u32* const all = k == 1 ? own : own + batch_words();
    for (i64 begin = 0; begin < pixels; begin += batch()) {
      const i64 count = smaller(batch(), pixels - begin);
      Nest of_k = t;
      for (i64 i = 0; i < k; ++i, of_k.factor += taps() * spans().pitch()) {
        multiply_pixels(of_k, begin, {own, lanes, count, vectors, span.last(), false});
        if (k > 1) spread(own, count, lanes, i, all);
      }
      to_sums(all, count * lanes * k);
      s.finish(g, {at + begin * distance, count, span.count * k, distance, 1, span.first * k}, all,
               lanes * k);
    }
  }

  // A line of the result: pixels of one class, then the pixels of the next.
  void run_line(const ConvView* views, const Span& span, const i64 (&at)[4]) const {
    const i64 d = depthwise_classes<T>(g, kDepth), h = depthwise_classes<T>(g, kHeight);
    const i64 w = depthwise_classes<T>(g, kWidth);
    const i64 first = (at[2] % d * h + at[3] % h) * w;
    for (i64 c = first; c < first + w; ++c) {
      const Line line = {views[c], span, {at[0], {at[2] / d, at[3] / h, 0}}};
      const i64 channel = span.first * (T::kForward ? g.k : 1);
      finish_line(line, nest_of(line), offset_of(line.v, line.first) + channel);
    }
  }
  void run() const {
    pack();
    ConvView* const all_views = views();
    for (i64 c = 0; c < depthwise_classes<T>(g); ++c) all_views[c] = depthwise_view<T>(g, c);
    this->wait();
    const ChannelSpans all = spans();
    const i64* const size = T::kForward ? g.out_size : g.size;
    const i64 sizes[4] = {g.n, all.number(), size[kDepth], size[kHeight]};
    const Range mine = part(product_of(sizes), 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      i64 at[4];
      digits_of(i, sizes, at);
      run_line(all_views, all.span(at[1]), at);
    }
  }
};

// Gradients by w: rows are taps of a line, steps are pixels of y. Sums are
// [slice][k of the group][tap][channel].
template <class T>
struct DepthwiseLastFilters : DepthwiseRun<T> {
  using DepthwiseRun<T>::s;
  using DepthwiseRun<T>::g;
  using DepthwiseRun<T>::thread;
  using DepthwiseRun<T>::taps;
  using Span = ChannelSpans::Span;
  static constexpr i64 kBand = 4;       // lines of y
  static constexpr i64 kMostTaps = 64;  // that are finished together

  ChannelSpans spans() const { return ChannelSpans::of(g, taps()); }
  i64 words() const { return g.k * taps() * spans().pitch(); }
  DepthwiseParts parts() const { return DepthwiseParts::of(g, kBand); }
  i64 slices() const { return parts().slices(g, spans().number() * g.k); }
  i64 workspace_bytes(int) const { return slices() * words() * 4; }
  u32* sums() const { return static_cast<u32*>(thread.workspace); }

  // All taps of a depth of the filter for some lines of y.
  void add_part(const DepthwiseParts::Part& p, const Span& span, i64 k, i64 z, i64 place,
                u32* to) const {
    const i64 pitch = spans().pitch();
    typename T::Nest t{};
    t.outer = 1;
    t.steps = g.out_size[kWidth];
    t.source_middle = g.stride[kHeight] * g.x_stride[kImageH];
    t.source_step = g.stride[kWidth] * g.x_stride[kImageW];
    t.source_row = g.dilation[kWidth] * g.x_stride[kImageW];
    t.source_place = g.x_stride[kImageW];
    t.factor_middle = g.y_stride[kImageH];
    t.factor_step = g.y_stride[kImageW];
    t.place_step = g.stride[kWidth];
    t.place_row = g.dilation[kWidth];
    t.size = g.size[kWidth];
    t.lane = g.k;
    const auto* const x = static_cast<const typename T::X*>(g.x) + p.n * g.x_stride[kImageN] +
                          place * g.x_stride[kImageD] + span.first;
    const auto* const y = static_cast<const typename T::Y*>(g.y) + p.n * g.y_stride[kImageN] +
                          p.depth * g.y_stride[kImageD] + span.first * g.k + k;
    for (i64 h = 0; h < g.filter[kHeight]; ++h) {
      const Meeting m = meet_forward(g, kHeight, h, p.lines.begin, p.lines.end - p.lines.begin);
      if (m.is_empty()) continue;
      t.middle = m.range.end - m.range.begin;
      t.factor = y + (p.lines.begin + m.range.begin) * g.y_stride[kImageH];
      for (i64 w = 0; w < g.filter[kWidth]; w += s.taps) {
        t.place = w * g.dilation[kWidth] - g.pad[kWidth];
        t.source = x + (m.base + m.range.begin * m.step) * g.x_stride[kImageH] +
                   t.place * g.x_stride[kImageW];
        const i64 tap = (z * g.filter[kHeight] + h) * g.filter[kWidth] + w;
        const DepthwiseSums own = {
            to + tap * pitch, pitch,       smaller(s.taps, g.filter[kWidth] - w),
            span.vectors(),   span.last(), true};
        if (g.k == 1) {
          this->multiply_steps(t, own);
        } else {
          this->multiply_any(t, own, true);
        }
      }
    }
  }
  void add_slice(i64 slice, const Span& span, i64 k) const {
    const DepthwiseParts all = parts();
    const i64 pitch = spans().pitch();
    u32* const to = sums() + slice * words() + k * taps() * pitch + span.first;
    for (i64 tap = 0; tap < taps(); ++tap) {
      for (i64 v = 0; v < span.vectors(); ++v) store(to + tap * pitch + v * kLanes, f32v{});
    }
    const Range mine = part(all.number(g), 1, slices(), slice);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      const DepthwiseParts::Part p = all.part(i);
      for (i64 z = 0; z < g.filter[kDepth]; ++z) {
        const Meeting m = meet_forward(g, kDepth, z, p.depth, 1);
        if (!m.is_empty()) add_part(p, span, k, z, m.base, to);
      }
    }
  }

  // Taps [tap, tap + count) of a vector of channels, which the result has as rows.
  void finish_taps(i64 channel, i64 k, i64 tap, i64 count) const {
    u32 turned[kLanes * kMostTaps];
    const i64 pitch = spans().pitch(), rows = smaller(kLanes, g.groups - channel);
    const u32* const from = sums() + (k * taps() + tap) * pitch + channel;
    for (i64 i = 0; i < count; ++i) {
      for (i64 r = 0; r < rows; ++r) turned[r * kMostTaps + i] = from[i * pitch + r];
    }
    s.finish(g,
             {channel * g.w_stride[kFilterG] + k * g.w_stride[kFilterK] + place_of_tap(g, tap),
              rows, count, g.w_stride[kFilterG], g.w_stride[kFilterX], 0},
             turned, kMostTaps);
  }
  void run() const {
    const ChannelSpans all = spans();
    const i64 sizes[3] = {slices(), all.number(), g.k};
    const Range mine = part(product_of(sizes), 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      i64 at[3];
      digits_of(i, sizes, at);
      add_slice(at[0], all.span(at[1]), at[2]);
    }
    this->wait();
    add_slices(sums(), slices(), words(), thread);
    this->wait();
    const i64 run = taps_of_run(g), vectors = blocks_of(g.groups, kLanes);
    const Range own = part(vectors * g.k, 1, thread.count, thread.index);
    for (i64 i = own.begin; i < own.end; ++i) {
      for (i64 tap = 0; tap < taps();) {
        const i64 count = smaller(smaller(run - tap % run, kMostTaps), taps() - tap);
        finish_taps(i / g.k * kLanes, i % g.k, tap, count);
        tap += count;
      }
    }
  }
};

}  // namespace tessera::device
