// Convolutions of any kind in place: no panels, no workspace. Taps outside of the image are left
// out. Each sum is formed in one order, so that the number of threads does not change its bits.
#pragma once

#include "tessera/device/cpu/conv/conv_epilogue.h"
#include "tessera/device/cpu/conv/conv_walk.h"

namespace tessera::device {

template <class C>
struct DirectConvDriver {
  using Types = ConvTypes<C>;

  using Row = typename Types::Row;
  using Column = typename Types::Column;
  using Sums = typename Types::Sums;
  static constexpr bool kForward = Types::kForward;
  static constexpr bool kWeights = Types::kWeights;
  // Where both factors are contiguous in the depth of the product, and the result's columns are
  // not, vectors lie along the depth. Otherwise they lie along columns.
  static constexpr bool kDots = kForward ? C::kChannelsLast : kWeights && !C::kChannelsLast;
  static constexpr int kRows = 4;
  static constexpr int kColumns = kDots ? 16 : 64;
  static constexpr int kTogether = kDots ? 4 : 2;  // columns or vectors in registers

  ConvFinish finish_block;

  // A rectangle of sums: a vector of partial sums for each, or a lane.
  struct Block {
    static constexpr int kPitch = kDots ? kColumns * kLanes : kColumns + kLanes;
    alignas(64) u32 sums[kRows * kPitch];
    u32* at(i64 row, i64 column) {
      return sums + row * kPitch + (kDots ? column * kLanes : column);
    }
  };

  // Adds row[r * row_step + d * row_depth] * column[c * column_step + d * column_depth] to every
  // sum (r, c), for d in [0, depth).
  struct Term {
    const Row* row;
    const Column* column;
    i64 row_step, row_depth, column_step, column_depth;
    i64 depth;
    Range rows, columns;
  };

  // ---- elements ----

  template <class T>
  [[gnu::always_inline]] static Sums elements(const T* p, int count) {
    if constexpr (__is_same(Sums, i32v)) {
      if (count == kLanes) return widen(load<s8v>(p));
      const u32v raw = load_bytes(p, count);
      return widen(load<s8v>(&raw));
    } else {
      return load_float(p, count);
    }
  }
  template <class T>
  [[gnu::noinline]] static Sums gathered(const T* p, i64 stride, int count) {
    T together[kLanes] = {};
    for (int i = 0; i < count; ++i) together[i] = p[i * stride];
    return elements(together, kLanes);
  }
  template <bool kMayBeApart, class T>
  [[gnu::always_inline]] static Sums elements(const T* p, i64 stride, int count) {
    if (kMayBeApart && stride != 1) return gathered(p, stride, count);
    return elements(p, count);
  }
  template <class T>
  [[gnu::always_inline]] static Sums broadcast(const T* p) {
    if constexpr (__is_same(T, float)) {
      return splat(*p);
    } else if constexpr (is_int8<T>::value) {
      return splat(int{p->value});
    } else {
      return bits_as<f32v>(float_bits(T{}, splat(u32{p->bits})));
    }
  }

  // ---- products ----

  // kR rows by kC columns, vectors along the depth.
  template <int kR, int kC>
  [[gnu::noinline]] static void multiply_dots(const Term& t, Block& block, i64 r, i64 c) {
    Sums sums[kR][kC];
    const Row* row[kR];
    const Column* column[kC];
#pragma GCC unroll 4
    for (int i = 0; i < kR; ++i) {
      row[i] = t.row + (r + i) * t.row_step;
#pragma GCC unroll 4
      for (int j = 0; j < kC; ++j) sums[i][j] = load<Sums>(block.at(r + i, c + j));
    }
#pragma GCC unroll 4
    for (int j = 0; j < kC; ++j) column[j] = t.column + (c + j) * t.column_step;
    const i64 apart = kWeights ? t.column_depth : 1;
    for (i64 d = 0; d < t.depth; d += kLanes) {
      const int count = static_cast<int>(smaller(kLanes, t.depth - d));
      Sums x[kR];
#pragma GCC unroll 4
      for (int i = 0; i < kR; ++i) x[i] = elements(row[i] + d, count);
#pragma GCC unroll 4
      for (int j = 0; j < kC; ++j) {
        const Sums y = elements<kWeights>(column[j] + d * apart, apart, count);
#pragma GCC unroll 4
        for (int i = 0; i < kR; ++i) sums[i][j] += x[i] * y;
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kR; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kC; ++j) store(block.at(r + i, c + j), sums[i][j]);
    }
  }

  // kR rows by kV vectors of columns, of which the last one has `count` lanes.
  template <int kR, int kV>
  [[gnu::noinline]] static void multiply_columns(const Term& t, Block& block, i64 r, i64 c,
                                                 int count) {
    Sums sums[kR][kV];
    const Row* row[kR];
#pragma GCC unroll 4
    for (int i = 0; i < kR; ++i) {
      row[i] = t.row + (r + i) * t.row_step;
#pragma GCC unroll 4
      for (int j = 0; j < kV; ++j) sums[i][j] = load<Sums>(block.at(r + i, c + j * kLanes));
    }
    constexpr bool kMayBeApart = kForward;
    const i64 step = kMayBeApart ? t.column_step : 1;
    // A line of one pixel may have any distance of pixels.
    const Column* column = t.column + c * t.column_step;
    for (i64 d = 0; d < t.depth; ++d, column += t.column_depth) {
      Sums y[kV];
#pragma GCC unroll 4
      for (int j = 0; j < kV; ++j) {
        const int lanes = j == kV - 1 ? count : kLanes;
        y[j] = elements<kMayBeApart>(column + j * kLanes * step, step, lanes);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kR; ++i) {
        const Sums x = broadcast(row[i]);
        row[i] += t.row_depth;
#pragma GCC unroll 4
        for (int j = 0; j < kV; ++j) sums[i][j] += x * y[j];
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kR; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kV; ++j) {
        store_first(block.at(r + i, c + j * kLanes), sums[i][j], j == kV - 1 ? count : kLanes);
      }
    }
  }

  template <int kR>
  static void multiply_rows(const Term& t, Block& block, i64 r) {
    i64 c = t.columns.begin;
    if constexpr (kDots) {
      for (; c + kTogether <= t.columns.end; c += kTogether) {
        multiply_dots<kR, kTogether>(t, block, r, c);
      }
      for (; c < t.columns.end; ++c) multiply_dots<kR, 1>(t, block, r, c);
    } else {
      for (; c + kTogether * kLanes <= t.columns.end; c += kTogether * kLanes) {
        multiply_columns<kR, kTogether>(t, block, r, c, kLanes);
      }
      for (; c < t.columns.end; c += kLanes) {
        const i64 count = smaller(kLanes, t.columns.end - c);
        multiply_columns<kR, 1>(t, block, r, c, static_cast<int>(count));
      }
    }
  }

  static void multiply(const Term& t, Block& block) {
    if (t.rows.end - t.rows.begin == kRows) return multiply_rows<kRows>(t, block, t.rows.begin);
    for (i64 r = t.rows.begin; r < t.rows.end; ++r) multiply_rows<1>(t, block, r);
  }

  // Partial sums become sums, and these the result.
  void finish(const ConvArguments& g, const ConvRectangle& r, Block& block) const {
    if constexpr (kDots) {
      alignas(64) u32 sums[kRows * kColumns];
      for (i64 i = 0; i < r.rows; ++i) {
        for (i64 j = 0; j < r.columns; ++j) {
          const auto sum = sum_of_lanes(load<Sums>(block.at(i, j)));
          __builtin_memcpy(sums + i * kColumns + j, &sum, sizeof(sum));
        }
      }
      finish_block(g, r, sums, kColumns);
    } else {
      finish_block(g, r, block.sums, Block::kPitch);
    }
  }

  // ---- images: a run of pixels of a line by some channels ----

  static constexpr int kPixels = C::kChannelsLast ? kRows : kColumns;
  static constexpr int kChannels = C::kChannelsLast ? kColumns : kRows;

  static Meeting meet(const ConvArguments& g, int dim, i64 tap, i64 first, i64 count) {
    if (kForward) return meet_forward(g, dim, tap, first, count);
    return meet_backward(g, dim, tap, first, count);
  }

  // The pixels of a line fall into classes that meet the same taps.
  struct Lines {
    const i64* size;  // of the result
    i64 channels;     // of the result, in a group
    i64 classes;
    i64 class_pixels() const { return blocks_of(size[kWidth], classes); }
  };
  static Lines lines_of(const ConvArguments& g) {
    if (kForward) return {g.out_size, g.k, 1};
    return {g.size, g.c, smaller(g.stride[kWidth], g.size[kWidth])};
  }

  void image_block(const ConvArguments& g, const Lines& lines, const i64 (&at)[7]) const {
    const i64 classes = lines.classes, channel = at[6] * kChannels;
    const i64 first = at[4] + at[5] * kPixels * classes;
    const i64 pixels = smaller(kPixels, blocks_of(lines.size[kWidth] - first, classes));
    if (pixels <= 0) return;
    const i64 channels = smaller(kChannels, lines.channels - channel);
    const i64* const image = kForward ? g.x_stride : g.y_stride;
    const i64* const result = kForward ? g.y_stride : g.x_stride;
    const int outer = kForward ? kFilterK : kFilterC, inner = kForward ? kFilterC : kFilterK;

    Term t{};
    t.depth = kForward ? g.c : g.k;
    i64& pixel_step = C::kChannelsLast ? t.row_step : t.column_step;
    i64& filter_step = C::kChannelsLast ? t.column_step : t.row_step;
    (C::kChannelsLast ? t.row_depth : t.column_depth) = image[kImageC];
    (C::kChannelsLast ? t.column_depth : t.row_depth) = g.w_stride[inner];
    filter_step = g.w_stride[outer];
    (C::kChannelsLast ? t.columns : t.rows) = {0, channels};

    Block block{};
    const i64 image_at = at[0] * image[kImageN] + at[1] * image[kImageG];
    const i64 filter_at = at[1] * g.w_stride[kFilterG] + channel * filter_step;
    for (i64 z = 0; z < g.filter[kDepth]; ++z) {
      const Meeting d = meet(g, kDepth, z, at[2], 1);
      for (i64 y = 0; y < g.filter[kHeight] && !d.is_empty(); ++y) {
        const Meeting h = meet(g, kHeight, y, at[3], 1);
        for (i64 x = 0; x < g.filter[kWidth] && !h.is_empty(); ++x) {
          const Meeting w = meet(g, kWidth, x, first, pixels);
          if (w.is_empty()) continue;
          pixel_step = w.step * image[kImageW];
          (C::kChannelsLast ? t.rows : t.columns) = w.range;
          const i64 from = image_at + d.base * image[kImageD] + h.base * image[kImageH] +
                           w.base * image[kImageW];
          const i64 tap = filter_at + z * g.w_stride[kFilterZ] + y * g.w_stride[kFilterY] +
                          x * g.w_stride[kFilterX];
          const void* const source = kForward ? g.x : g.y;
          t.row = static_cast<const Row*>(C::kChannelsLast ? source : g.w) +
                  (C::kChannelsLast ? from : tap);
          t.column = static_cast<const Column*>(C::kChannelsLast ? g.w : source) +
                     (C::kChannelsLast ? tap : from);
          multiply(t, block);
        }
      }
    }

    ConvRectangle r{};
    r.at = at[0] * result[kImageN] + at[1] * result[kImageG] + at[2] * result[kImageD] +
           at[3] * result[kImageH] + first * result[kImageW] + channel * result[kImageC];
    r.rows = C::kChannelsLast ? pixels : channels;
    r.columns = C::kChannelsLast ? channels : pixels;
    r.row_stride = C::kChannelsLast ? result[kImageW] * classes : result[kImageC];
    r.column_stride = C::kChannelsLast ? 1 : result[kImageW] * classes;
    r.channel = at[1] * lines.channels + channel;
    finish(g, r, block);
  }

  void run_image(const ConvArguments& g, const CpuThread& thread) const {
    const Lines lines = lines_of(g);
    const i64 sizes[7] = {g.n,
                          g.groups,
                          lines.size[kDepth],
                          lines.size[kHeight],
                          lines.classes,
                          blocks_of(lines.class_pixels(), kPixels),
                          blocks_of(lines.channels, kChannels)};
    const Range mine = part(product_of(sizes), 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      i64 at[7];
      digits_of(i, sizes, at);
      image_block(g, lines, at);
    }
  }

  // ---- filters: some channels of y by some of x, for one tap ----

  void filter_block(const ConvArguments& g, const i64 (&at)[6]) const {
    const i64 k = at[4] * kRows, c = at[5] * kColumns;
    Term t{};
    t.rows = {0, smaller(kRows, g.k - k)};
    t.columns = {0, smaller(kColumns, g.c - c)};
    t.row_step = g.y_stride[kImageC];
    t.row_depth = g.y_stride[kImageW];
    t.column_step = g.x_stride[kImageC];
    t.column_depth = g.stride[kWidth] * g.x_stride[kImageW];
    const Meeting w = meet_forward(g, kWidth, at[3], 0, g.out_size[kWidth]);
    t.depth = w.range.end - w.range.begin;

    Block block{};
    for (i64 n = 0; n < g.n && !w.is_empty(); ++n) {
      for (i64 od = 0; od < g.out_size[kDepth]; ++od) {
        const Meeting d = meet_forward(g, kDepth, at[1], od, 1);
        for (i64 oh = 0; oh < g.out_size[kHeight] && !d.is_empty(); ++oh) {
          const Meeting h = meet_forward(g, kHeight, at[2], oh, 1);
          if (h.is_empty()) continue;
          t.row = static_cast<const Row*>(g.y) + n * g.y_stride[kImageN] +
                  at[0] * g.y_stride[kImageG] + k * g.y_stride[kImageC] + od * g.y_stride[kImageD] +
                  oh * g.y_stride[kImageH] + w.range.begin * g.y_stride[kImageW];
          t.column = static_cast<const Column*>(g.x) + n * g.x_stride[kImageN] +
                     at[0] * g.x_stride[kImageG] + c * g.x_stride[kImageC] +
                     d.base * g.x_stride[kImageD] + h.base * g.x_stride[kImageH] +
                     (w.base + w.range.begin * w.step) * g.x_stride[kImageW];
          multiply(t, block);
        }
      }
    }

    ConvRectangle r{};
    r.at = at[0] * g.w_stride[kFilterG] + k * g.w_stride[kFilterK] + c * g.w_stride[kFilterC] +
           at[1] * g.w_stride[kFilterZ] + at[2] * g.w_stride[kFilterY] +
           at[3] * g.w_stride[kFilterX];
    r.rows = t.rows.end;
    r.columns = t.columns.end;
    r.row_stride = g.w_stride[kFilterK];
    r.column_stride = g.w_stride[kFilterC];
    finish(g, r, block);
  }

  void run_filters(const ConvArguments& g, const CpuThread& thread) const {
    const i64 sizes[6] = {g.groups,         g.filter[kDepth],      g.filter[kHeight],
                          g.filter[kWidth], blocks_of(g.k, kRows), blocks_of(g.c, kColumns)};
    const Range mine = part(product_of(sizes), 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      i64 at[6];
      digits_of(i, sizes, at);
      filter_block(g, at);
    }
  }

  void run(const ConvArguments& g, const CpuThread& thread) const {
    if constexpr (kWeights) {
      run_filters(g, thread);
    } else {
      run_image(g, thread);
    }
  }
};

// What kernels share as compiled code.
template <class T>
void direct_conv_run(ConvFinish finish, const void* arguments, const CpuThread& thread) {
  const ConvArguments g = *static_cast<const ConvArguments*>(arguments);
  DirectConvDriver<T>{finish}.run(g, thread);
}

// A kernel: the code that depends on its configuration.
template <class C>
struct DirectConv {
  using Types = ConvSums<C::kDirection, C::kChannelsLast, typename C::X, typename C::W,
                         typename C::Y, typename C::Acc>;
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");

  static void run(const void* arguments, const CpuThread* thread) {
    direct_conv_run<Types>(finish_conv<C>, arguments, *thread);
  }
  static i64 workspace_bytes(const void*, int) { return 0; }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
