// What the drivers of depthwise convolutions share: sizes, the division of lanes into vectors, and
// the filters' strides.
#pragma once

#include "tessera/device/cpu/conv/conv_epilogue.h"
#include "tessera/device/cpu/conv/conv_view.h"
#include "tessera/device/cpu/conv/depthwise_block.h"

namespace tessera::device {

// The types of a direction. Sources are read with their lanes as neighbours, or at a distance where
// groups have several channels. In nchw both factors are copied as floats.
template <ConvDirection kOfWhat, bool kLast, class TypeX, class TypeW, class TypeY>
struct DepthwiseTypes {
  using X = TypeX;
  using W = TypeW;
  using Y = TypeY;
  using Acc = float;
  static constexpr ConvDirection kDirection = kOfWhat;
  static constexpr bool kChannelsLast = kLast;
  static constexpr bool kForward = kOfWhat == ConvDirection::forward;
  static constexpr bool kWeights = kOfWhat == ConvDirection::backward_weight;
  using Image = typename Choose<kOfWhat == ConvDirection::backward_data, Y, X>::type;
  using Source = typename Choose<kLast, Image, float>::type;
  using Factor = typename Choose<kLast && kWeights, Y, float>::type;
  static constexpr DepthwiseKind kKind =
      kLast || kWeights ? DepthwiseKind::vectors : DepthwiseKind::splat;
  static constexpr DepthwiseKind kApart =
      kWeights ? DepthwiseKind::apart : DepthwiseKind::source_apart;
  using Nest = DepthwiseNest<Source, Factor>;
  using Block = void (*)(const Nest& nest, const DepthwiseSums& sums);
};

// The sizes of a kernel, and the functions that depend on them or on the result. A window has
// `rows` rows by `taps` steps (the other way round for gradients by w), see depthwise_window.h.
template <class T>
struct DepthwiseShape {
  int rows, vectors, taps;
  int pixel_step;                     // of neighbouring pixels in the source
  bool sums_are_output;               // when alpha is 1 and beta is 0
  typename T::Block any, apart;       // of one vector, with lanes as neighbours or at a distance
  typename T::Block window, windows;  // of one vector, and of `vectors`
  ConvFinish finish;
};

template <class T>
struct DepthwiseRun {
  const DepthwiseShape<T>& s;
  const ConvArguments& g;
  const CpuThread& thread;

  using Nest = typename T::Nest;
  static constexpr bool kFactorsMove = T::kKind != DepthwiseKind::splat;

  // Vectors that make up whole blocks, then those left over, one by one.
  template <class Run>
  [[gnu::always_inline]] void by_blocks(Nest t, DepthwiseSums sums, i64 together, Run run) const {
    while (sums.vectors > 0) {
      const i64 whole = sums.lanes() / kLanes / s.vectors * s.vectors;
      const bool in_blocks = s.vectors > 1 && whole > 0;
      DepthwiseSums some = sums;
      some.vectors = in_blocks ? smaller(together, whole) : 1;
      some.last = in_blocks || sums.vectors > 1 ? kLanes : sums.last;
      run(in_blocks ? s.windows : s.window, t, some);
      t.source += some.vectors * kLanes;
      if (kFactorsMove) t.factor += some.vectors * kLanes;
      sums.data += some.vectors * kLanes;
      sums.vectors -= some.vectors;
    }
  }
  // All rows and steps of a nest.
  void multiply(const Nest& nest, const DepthwiseSums& sums) const {
    if (sums.accumulate || nest.steps != s.taps || nest.place_step != 1 ||
        nest.place_row != s.pixel_step) {
      return multiply_any(nest, sums);
    }
    by_blocks(nest, sums, sums.vectors,
              [](typename T::Block window, const Nest& t, const DepthwiseSums& some) {
                window(t, some);
              });
  }
  // The same for sums of taps, to which products are added.
  void multiply_steps(const Nest& nest, const DepthwiseSums& sums) const {
    if (sums.rows != s.taps || nest.place_row != 1 || nest.place_step != s.pixel_step) {
      return multiply_any(nest, sums);
    }
    const i64 done = nest.steps / s.rows * s.rows;
    by_blocks(nest, sums, s.vectors,
              [&](typename T::Block window, Nest t, const DepthwiseSums& some) {
                if (done > 0) window(t, some);
                if (done == t.steps) return;
                t.source += done * t.source_step;
                t.factor += done * t.factor_step;
                t.place += done * t.place_step;
                t.steps -= done;
                multiply_any(t, some);
              });
  }
  void multiply_any(Nest nest, const DepthwiseSums& sums, bool apart = false) const {
    const bool sources_apart = apart && T::kApart == DepthwiseKind::source_apart;
    const bool factors_apart = apart && T::kApart == DepthwiseKind::apart;
    for (i64 v = 0; v < sums.vectors; ++v) {
      Nest t = nest;
      for (i64 row = 0; row < sums.rows; row += kDepthwiseRows) {
        (apart ? s.apart : s.any)(t, {sums.data + row * sums.ld + v * kLanes, sums.ld,
                                      smaller(kDepthwiseRows, sums.rows - row), 1,
                                      v == sums.vectors - 1 ? sums.last : kLanes, sums.accumulate});
        t.source += kDepthwiseRows * t.source_row;
        t.place += kDepthwiseRows * t.place_row;
      }
      nest.source += kLanes * (sources_apart ? nest.lane : 1);
      if (kFactorsMove) nest.factor += kLanes * (factors_apart ? nest.lane : 1);
    }
  }
  i64 taps() const { return product_of(g.filter); }
  void wait() const { thread.barrier(thread.barrier_context); }
};

// Channels in spans, whose filters stay in L1 besides a line of pixels.
struct ChannelSpans {
  i64 channels, vectors;  // of all spans, of one
  static ChannelSpans of(const ConvArguments& g, i64 taps) {
    constexpr i64 kFilterWords = 4096;
    const i64 all = blocks_of(g.groups, kLanes), fit = kFilterWords / (taps * kLanes) / 2 * 2;
    const i64 most = fit < 2 ? 2 : fit;
    const i64 spans = blocks_of(all, most);
    return {g.groups, blocks_of(blocks_of(all, spans), 2) * 2};
  }
  i64 lanes() const { return vectors * kLanes; }
  i64 number() const { return blocks_of(channels, lanes()); }
  struct Span {
    i64 first, count;  // channels
    i64 vectors() const { return blocks_of(count, kLanes); }
    int last() const { return static_cast<int>(count - (vectors() - 1) * kLanes); }
  };
  Span span(i64 i) const { return {i * lanes(), smaller(lanes(), channels - i * lanes())}; }
  // The distance of two taps in packed filters: an odd number of vectors, so that taps do not meet
  // in one set of a cache.
  i64 pitch() const { return (blocks_of(channels, kLanes) | 1) * kLanes; }
};

// The classes of pixels that meet the same taps along a dimension, see conv_view.h.
template <class T>
inline i64 depthwise_classes(const ConvArguments& g, int dim) {
  if (T::kDirection != ConvDirection::backward_data) return 1;
  return smaller(g.stride[dim], g.size[dim]);
}
template <class T>
inline i64 depthwise_classes(const ConvArguments& g) {
  i64 number = 1;
  for (int dim = kDepth; dim <= kWidth; ++dim) number *= depthwise_classes<T>(g, dim);
  return number;
}
// Axes and strides of one class; places of groups are added by the caller.
template <class T>
inline ConvView depthwise_view(const ConvArguments& g, i64 number) {
  i64 sizes[kSpatialDims], residue[kSpatialDims];
  for (int dim = kDepth; dim <= kWidth; ++dim) sizes[dim] = depthwise_classes<T>(g, dim);
  digits_of(number, sizes, residue);
  constexpr bool kData = T::kDirection == ConvDirection::backward_data;
  ConvView v{};
  v.images = g.n;
  for (int dim = kDepth; dim <= kWidth; ++dim) {
    v.axis[dim] = kData ? backward_axis(g, dim, residue[dim]) : forward_axis(g, dim);
  }
  for (int i = 0; i < kImageStrides; ++i) {
    v.image_stride[i] = kData ? g.y_stride[i] : g.x_stride[i];
    v.pixel_stride[i] = kData ? g.x_stride[i] : g.y_stride[i];
  }
  return v;
}
// The place that pixel 0 and tap 0 of an axis meet at for pixel i, and the taps that lie inside.
struct AxisTaps {
  i64 place;
  Range taps;
};
inline AxisTaps taps_of(const ConvAxis& a, i64 pixel) {
  const i64 place = a.base + pixel * a.pixel_step;
  if (a.taps == 0) return {place, {0, 0}};
  Range taps = rows_inside(place, a.tap_step, a.size, a.taps);
  if (taps.end < taps.begin) taps = {0, 0};
  return {place, taps};
}

// ---- gradients by filters ----

// The parts of images that the sums of a gradient by w are formed of: some lines of one depth of
// one image. They make up slices, whose number does not depend on the threads.
struct DepthwiseParts {
  i64 depths, lines, bands;  // of y
  i64 band;                  // lines
  struct Part {
    i64 n, depth;
    Range lines;
  };
  static DepthwiseParts of(const ConvArguments& g, i64 band) {
    return {g.out_size[kDepth], g.out_size[kHeight], blocks_of(g.out_size[kHeight], band), band};
  }
  i64 number(const ConvArguments& g) const { return g.n * depths * bands; }
  Part part(i64 i) const {
    const i64 begin = i % bands * band;
    return {i / bands / depths, i / bands % depths, {begin, smaller(begin + band, lines)}};
  }
  // Enough for many threads; each slice costs a sum of all filters.
  i64 slices(const ConvArguments& g, i64 blocks) const {
    constexpr i64 kMostUnits = 64, kPartsOfSlice = 4;
    const i64 wanted = blocks_of(kMostUnits, blocks);
    const i64 most = blocks_of(number(g), kPartsOfSlice);
    return most < 1 ? 1 : smaller(wanted, most);
  }
};

// Adds the slices, `words` apart, to the first one.
inline void add_slices(u32* sums, i64 slices, i64 words, const CpuThread& thread) {
  const Range mine = part(words, kLanes, thread.count, thread.index);
  for (i64 i = mine.begin; i < mine.end; i += kLanes) {
    f32v sum = load<f32v>(sums + i);
    for (i64 slice = 1; slice < slices; ++slice) sum += load<f32v>(sums + slice * words + i);
    store(sums + i, sum);
  }
}

// How many taps lie at one distance in the filters: all, or one line's.
inline i64 taps_of_run(const ConvArguments& g) {
  i64 distance = g.w_stride[kFilterX] * g.filter[kWidth];
  for (int dim = kHeight; dim >= kDepth; --dim) {
    if (g.filter[dim] > 1 && g.w_stride[kFilterZ + dim] != distance) return g.filter[kWidth];
    distance *= g.filter[dim];
  }
  return product_of(g.filter);
}
inline i64 place_of_tap(const ConvArguments& g, i64 tap) {
  i64 at[kSpatialDims];
  digits_of(tap, g.filter, at);
  return at[0] * g.w_stride[kFilterZ] + at[1] * g.w_stride[kFilterY] + at[2] * g.w_stride[kFilterX];
}

}  // namespace tessera::device
