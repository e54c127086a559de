// Depthwise gradients by w of images in which pixels of a line are neighbours: lanes are pixels,
// rows are taps of the height, steps are lines of y. See depthwise_first.h.
#pragma once

#include "tessera/device/cpu/conv/depthwise_first.h"

namespace tessera::device {

// Sums are [slice][channel of y][tap].
template <class T>
struct DepthwiseFirstFilters : DepthwiseRun<T> {
  using DepthwiseRun<T>::s;
  using DepthwiseRun<T>::g;
  using DepthwiseRun<T>::thread;
  using DepthwiseRun<T>::taps;
  static constexpr i64 kBlock = 16;  // channels that are finished together

  i64 channels() const { return g.groups * g.k; }
  i64 pitch_y() const { return blocks_of(g.out_size[kWidth], kLanes) * kLanes; }
  DepthwiseLines lines_of_x(float* data) const {
    const i64 phases = g.stride[kWidth];
    const i64 reach = (g.filter[kWidth] - 1) * g.dilation[kWidth];
    return {data, -g.pad[kWidth], phases, pitch_y() + reach / phases + 1};
  }
  i64 band() const {
    const i64 words = lines_of_x(nullptr).line_pitch() * g.stride[kHeight] + pitch_y();
    return depthwise_band(g.out_size[kHeight], words, s.rows);
  }
  i64 copied() const {
    return (band() - 1) * g.stride[kHeight] + (g.filter[kHeight] - 1) * g.dilation[kHeight] + 1;
  }
  DepthwiseParts parts() const { return DepthwiseParts::of(g, band()); }
  i64 slices() const { return parts().slices(g, channels()); }
  i64 words() const { return blocks_of(channels() * taps(), kLanes) * kLanes; }
  i64 lanes() const { return i64{s.vectors} * kLanes; }
  i64 thread_words() const {
    const i64 own =
        taps() * lanes() + band() * pitch_y() + copied() * lines_of_x(nullptr).line_pitch();
    return blocks_of(own, kLanes) * kLanes;
  }
  i64 workspace_bytes(int threads) const {
    return (slices() * words() + thread_words() * threads) * 4;
  }
  u32* sums() const { return static_cast<u32*>(thread.workspace); }

  // What a thread holds: sums of lanes [tap][lane], lines of y, lines of x.
  struct Space {
    float *lanes, *y;
    DepthwiseLines x;
    i64 first;  // the place of the first line of x
  };
  Space space() const {
    u32* const own = sums() + slices() * words() + thread.index * thread_words();
    Space to{};
    to.lanes = reinterpret_cast<float*>(own);
    to.y = to.lanes + taps() * lanes();
    to.x = lines_of_x(to.y + band() * pitch_y());
    return to;
  }
  // Whether all elements are numbers.
  template <class E>
  bool copy(const E* image, i64 line_stride, i64 first, i64 count, i64 size, i64 width,
            const DepthwiseLines& to) const {
    bool finite = true;
    for (i64 i = 0; i < count; ++i) {
      float* const out = to.data + i * to.line_pitch();
      if (first + i < 0 || first + i >= size) continue;
      copy_line(image + (first + i) * line_stride, width, to, out);
      finite = all_finite(out, to.line_pitch()) && finite;
    }
    return finite;
  }

  void add_taps(const Space& m, const DepthwiseParts::Part& p, i64 z) const {
    const i64 line = m.x.line_pitch();
    typename T::Nest t{};
    t.outer = t.middle = 1;
    t.steps = p.lines.end - p.lines.begin;
    t.source_step = g.stride[kHeight] * line;
    t.source_row = g.dilation[kHeight] * line;
    t.source_place = line;
    t.factor_step = pitch_y();
    t.place_step = g.stride[kHeight];
    t.place_row = g.dilation[kHeight];
    t.size = g.size[kHeight];
    const i64 filter_x = g.filter[kWidth];
    for (i64 x = 0; x < filter_x; ++x) {
      for (i64 y = 0; y < g.filter[kHeight]; y += s.taps) {
        const i64 tap = (z * g.filter[kHeight] + y) * filter_x + x;
        const i64 rows = smaller(s.taps, g.filter[kHeight] - y);
        t.place = m.first + y * g.dilation[kHeight];
        t.source = m.x.data + y * t.source_row + m.x.place(x * g.dilation[kWidth]);
        t.factor = m.y;
        add_vectors(t, {reinterpret_cast<u32*>(m.lanes + tap * lanes()), filter_x * lanes(), rows,
                        s.vectors, kLanes, true});
      }
    }
  }
  // Blocks of a line are added to the same sums.
  void add_vectors(typename T::Nest t, DepthwiseSums sums) const {
    for (i64 left = pitch_y() / kLanes; left > 0; left -= sums.vectors) {
      sums.vectors = smaller(sums.vectors, left);
      this->multiply_steps(t, sums);
      t.source += sums.vectors * kLanes;
      t.factor += sums.vectors * kLanes;
    }
  }
  // One by one, taps outside of the image left out.
  [[gnu::noinline]] void add_inside(const Space& m, const DepthwiseParts::Part& p, i64 z) const {
    const i64 width = g.out_size[kWidth];
    for (i64 tap = 0; tap < g.filter[kHeight] * g.filter[kWidth]; ++tap) {
      const i64 y = tap / g.filter[kWidth], x = tap % g.filter[kWidth];
      float& sum = m.lanes[(z * g.filter[kHeight] * g.filter[kWidth] + tap) * lanes()];
      const Range w = meet_forward(g, kWidth, x, 0, width).range;
      for (i64 h = p.lines.begin; h < p.lines.end; ++h) {
        if (meet_forward(g, kHeight, y, h, 1).is_empty()) continue;
        const i64 from = (h - p.lines.begin) * g.stride[kHeight] + y * g.dilation[kHeight];
        const float* const line =
            m.x.data + from * m.x.line_pitch() + m.x.place(x * g.dilation[kWidth]);
        for (i64 i = w.begin; i < w.end; ++i) {
          sum += line[i] * m.y[(h - p.lines.begin) * pitch_y() + i];
        }
      }
    }
  }
  void add_part(const DepthwiseParts::Part& p, i64 channel, Space m) const {
    const auto* const x = static_cast<const typename T::X*>(g.x) + p.n * g.x_stride[kImageN] +
                          channel / g.k * g.x_stride[kImageG];
    const auto* const y = static_cast<const typename T::Y*>(g.y) + p.n * g.y_stride[kImageN] +
                          channel / g.k * g.y_stride[kImageG] +
                          channel % g.k * g.y_stride[kImageC] + p.depth * g.y_stride[kImageD];
    const DepthwiseLines to = {m.y, 0, 1, pitch_y()};
    const bool finite = copy(y + p.lines.begin * g.y_stride[kImageH], g.y_stride[kImageH], 0,
                             p.lines.end - p.lines.begin, p.lines.end, g.out_size[kWidth], to);
    m.first = p.lines.begin * g.stride[kHeight] - g.pad[kHeight];
    for (i64 z = 0; z < g.filter[kDepth]; ++z) {
      const Meeting d = meet_forward(g, kDepth, z, p.depth, 1);
      if (d.is_empty()) continue;
      const bool both = copy(x + d.base * g.x_stride[kImageD], g.x_stride[kImageH], m.first,
                             copied(), g.size[kHeight], g.size[kWidth], m.x) &&
                        finite;
      if (both) {
        add_taps(m, p, z);
      } else {
        add_inside(m, p, z);
      }
    }
  }
  void add_slice(i64 slice, i64 channel) const {
    const DepthwiseParts all = parts();
    const Space m = space();
    for (i64 i = 0; i < taps() * lanes(); i += kLanes) store(m.lanes + i, f32v{});
    const Range mine = part(all.number(g), 1, slices(), slice);
    for (i64 i = mine.begin; i < mine.end; ++i) add_part(all.part(i), channel, m);
    float* const to = reinterpret_cast<float*>(sums() + slice * words()) + channel * taps();
    for (i64 tap = 0; tap < taps(); ++tap) {
      f32v sum{};
      for (int v = 0; v < s.vectors; ++v) sum += load<f32v>(m.lanes + tap * lanes() + v * kLanes);
      to[tap] = sum_of_lanes(sum);
    }
  }

  void run() const {
    const i64 units = slices() * channels();
    const Range mine = part(units, 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) add_slice(i / channels(), i % channels());
    this->wait();
    add_slices(sums(), slices(), words(), thread);
    this->wait();
    const i64 run = taps_of_run(g);
    const Range own = part(channels(), 1, thread.count, thread.index);
    for (i64 channel = own.begin; channel < own.end; ++channel) {
      for (i64 tap = 0; tap < taps(); tap += run) {
        const i64 at = channel / g.k * g.w_stride[kFilterG] + channel % g.k * g.w_stride[kFilterK] +
                       place_of_tap(g, tap);
        s.finish(g, {at, 1, run, 0, g.w_stride[kFilterX], 0}, sums() + channel * taps() + tap, run);
      }
    }
  }
};

}  // namespace tessera::device
