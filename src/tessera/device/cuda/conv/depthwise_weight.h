// Depthwise convolutions, by w: a thread adds up the products of all taps of one depth of the
// filter for some channels, over patches of y. Its block adds up what its threads found; with
// slices, a second step adds up what blocks found, in their order.
#pragma once

#include "tessera/device/cuda/conv/depthwise_view.h"

namespace tessera::device {

template <class C>
class DepthwiseWeight {
  using View = DepthwiseView<C>;
  using Image = typename View::Image;
  using Gradient = typename View::Gradient;
  static constexpr int kThreads = View::kThreads;
  static constexpr int kLines = View::kLines;
  static constexpr int kColumns = View::kColumns;
  static constexpr int kTaps = View::kTaps;
  static constexpr int kChannels = View::kChannels;
  static constexpr int kStep = View::kStep;
  static constexpr int kImageColumns = View::kImageColumns;
  static constexpr int kLoaded = View::kAny ? 4 : kChannels;

  using Line = ImageLine<Image, kLoaded, kImageColumns>;
  using GradientLine = ImageLine<Gradient, kLoaded, kColumns>;
  using Sums = float[View::kAny ? 1 : kTaps][View::kAny ? 1 : kTaps][kChannels];

  // A line of taps of all threads.
  struct Shared {
    float sums[View::kAny ? 1 : kTaps * kChannels][kThreads];
  };

  const DepthwiseArguments& g;
  Shared& shared;
  View view;
  int part;  // of the taps: a depth of the filter, or so many taps as the block has together
  int slice, first_channel, vector, row, channel;
  int first, last;  // patches

  __device__ __forceinline__ DepthwiseWeight(const DepthwiseArguments& arguments, Shared& memory)
      : g(arguments), shared(memory), view{arguments} {
    const auto [rest, channel_block] =
        divided(static_cast<int>(blockIdx.x), arguments.channel_blocks);
    const auto [own_row, own] = divided(static_cast<int>(threadIdx.x), arguments.vectors);
    part = rest / C::kSlices;
    slice = rest - part * C::kSlices;
    row = own_row;
    vector = own;
    first_channel = channel_block * g.vectors * kChannels;
    channel = first_channel + vector * kChannels;
    first = static_cast<int>(i64{g.patches} * slice / C::kSlices);
    last = static_cast<int>(i64{g.patches} * (slice + 1) / C::kSlices);
  }

  // ---- results ----

  static __device__ __forceinline__ float* partial(const DepthwiseArguments& g) {
    return reinterpret_cast<float*>(static_cast<char*>(g.workspace) + g.partial_sums);
  }
  static __device__ __forceinline__ void finish(const DepthwiseArguments& g, int tap, int channel,
                                                float sum) {
    const View view{g};
    const int line = tap / view.filter(kWidth);
    const int z = line / view.filter(kHeight);
    const ConvResultArguments arguments = conv_result_arguments(g.conv);
    const i64 offset = view.filter_offset(channel, z, line - z * view.filter(kHeight),
                                          tap - line * view.filter(kWidth));
    ConvResult<C>(arguments, 0).store(offset, channel, sum);
  }
  // Sums lie in the workspace as [slice][tap][channel].
  __device__ __forceinline__ void put(int tap, int of_channel, float sum) const {
    if constexpr (C::kSlices > 1) {
      partial(g)[(i64{slice} * g.taps + tap) * g.channels + of_channel] = sum;
    } else {
      finish(g, tap, of_channel, sum);
    }
  }

  // ---- products ----

  static __device__ __forceinline__ void multiply(
      const float (&in)[kImageColumns][kChannels], const float (&y)[kColumns][kChannels],
      float (&sums)[View::kAny ? 1 : kTaps][kChannels]) {
#pragma unroll
    for (int t = 0; t < kColumns; ++t) {
#pragma unroll
      for (int i = 0; i < kImageColumns; ++i) {
        const int x = View::tap(i, t);
        if (x < 0 || x >= kTaps) continue;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) sums[x][c] = fmaf(in[i][c], y[t][c], sums[x][c]);
      }
    }
  }

  // The lines of x and y that a patch meets, this thread's channels of them.
  struct Source {
    const char* x;
    const char* y;
    int x_line, y_line;  // the next ones
    u32 x_columns, y_columns;
    int x_distance, y_distance;
  };
  __device__ __forceinline__ Source source(const DepthwisePatch& patch, int depth) const {
    const int line = view.image_start(kHeight, patch.at[kHeight]);
    const int column = view.image_start(kWidth, patch.at[kWidth]);
    const i64 of_x = View::offset_in(g.conv.x_stride, patch.image, depth, line, column);
    const i64 of_y = View::offset_in(g.conv.y_stride, patch.image, patch.at[kDepth],
                                     patch.at[kHeight], patch.at[kWidth]);
    return {reinterpret_cast<const char*>(view.image() + of_x + channel),
            reinterpret_cast<const char*>(static_cast<const Gradient*>(g.conv.y) + of_y + channel),
            line,
            patch.at[kHeight],
            places_inside<kImageColumns>(column, view.image_size(kWidth)),
            places_inside<kColumns>(patch.at[kWidth], view.size_of(kWidth)),
            g.image_column,
            g.other_column};
  }
  __device__ __forceinline__ void fetch_x(Source& from, Line& to) const {
    const bool exists = static_cast<u32>(from.x_line) < static_cast<u32>(view.image_size(kHeight));
    to.load(from.x, from.x_distance, exists ? from.x_columns : 0);
    from.x += g.image_line;
    ++from.x_line;
  }
  __device__ __forceinline__ void fetch_y(Source& from, bool is_of_patch, GradientLine& to) const {
    const bool exists = is_of_patch && from.y_line < view.size_of(kHeight);
    to.load(from.y, from.y_distance, exists ? from.y_columns : 0);
    from.y += g.other_line;
    ++from.y_line;
  }

  // Lines of x pass by a window of those lines of y that meet them. In each round a line of y comes
  // in, and as many lines of x pass as the stride has. Lines that do not exist are left out.
  __device__ __forceinline__ void add_patch(int index, Sums& sums) const {
    constexpr int kWindow = (kTaps + kStep - 1) / kStep;
    const DepthwisePatch patch = view.patch(static_cast<u32>(index));
    const int depth = view.met(kDepth, patch.at[kDepth], part);
    if (depth < 0) return;
    Source from = source(patch, depth);
    stay(from.x_distance);
    stay(from.y_distance);
    const int rows = view.filter(kHeight);
    const int first_line = from.x_line;
    const int lines = min(kLines, view.size_of(kHeight) - patch.at[kHeight]);
    GradientLine window[kWindow];
    GradientLine next_y;
    Line next_x[kStep];
#pragma unroll
    for (int u = 0; u < kStep; ++u) fetch_x(from, next_x[u]);
    fetch_y(from, true, next_y);
#pragma unroll
    for (int j = 0; j < kWindow; ++j) window[j].clear();
#pragma unroll 1
    for (int q = 0; q < lines + kWindow - 1; ++q) {
#pragma unroll
      for (int j = kWindow - 1; j > 0; --j) window[j] = window[j - 1];
      window[0] = next_y;
      fetch_y(from, q + 1 < lines, next_y);
#pragma unroll
      for (int u = 0; u < kStep; ++u) {
        float in[kImageColumns][kChannels];
        const bool exists = static_cast<u32>(first_line + q * kStep + u) <
                            static_cast<u32>(view.image_size(kHeight));
        next_x[u].to_floats(in);
        fetch_x(from, next_x[u]);
#pragma unroll
        for (int j = 0; j < kWindow; ++j) {
          const int tap = u + j * kStep;
          if (tap >= kTaps || tap >= rows || !exists || q < j || q - j >= lines) continue;
          float y[kColumns][kChannels];
          window[j].to_floats(y);
          multiply(in, y, sums[tap]);
        }
      }
    }
  }

  // ---- blocks ----

  __device__ __forceinline__ bool in_vectors() const {
    return is_aligned(view.image(), kChannels * static_cast<int>(sizeof(Image))) &&
           is_aligned(static_cast<const Gradient*>(g.conv.y),
                      kChannels * static_cast<int>(sizeof(Gradient)));
  }

  // Adds up what the block's threads found, one line of taps after the other.
  __device__ __forceinline__ void add_threads(const Sums& sums) {
    const int rows = view.filter(kHeight);
    const int thread = static_cast<int>(threadIdx.x);
    const int of_tap = g.vectors * kChannels;
#pragma unroll
    for (int y = 0; y < kTaps; ++y) {
      if (y >= rows) break;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kTaps * kChannels; ++i) {
        shared.sums[i][thread] = sums[y][i / kChannels][i % kChannels];
      }
      __syncthreads();
#pragma unroll 1
      for (int i = thread; i < kTaps * of_tap; i += kThreads) {
        const int x = i / of_tap;
        const int own = i - x * of_tap;
        const float* const found = shared.sums[x * kChannels + own % kChannels];
        float sum = 0;
#pragma unroll 4
        for (int r = 0; r < g.together; ++r) sum += found[r * g.vectors + own / kChannels];
        if (first_channel + own >= g.channels) continue;
        put((part * rows + y) * kTaps + x, first_channel + own, sum);
      }
    }
  }

  // Every sum by itself, of what exists.
  __device__ __forceinline__ void add_exactly() const {
    const int rows = view.filter(kHeight);
    const int of_tap = g.vectors * kChannels;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < rows * kTaps * of_tap; i += kThreads) {
      const int tap = i / of_tap;
      const int own = first_channel + i - tap * of_tap;
      if (own >= g.channels) continue;
      const int y = tap / kTaps;
      put(part * rows * kTaps + tap, own,
          view.exact_tap(own, part, y, tap - y * kTaps, first, last));
    }
  }

  // Places outside of the images count as zeros. Where such a zero meets an infinity or a NaN, a
  // sum becomes NaN.
  __device__ __forceinline__ void run_fast() {
    Sums sums = {};
    bool special = !in_vectors();
    if (!special && row < g.together && channel < g.channels) {
#pragma unroll 1
      for (int index = first + row; index < last; index += g.together) add_patch(index, sums);
    }
#pragma unroll
    for (int i = 0; i < kTaps * kTaps * kChannels; ++i) {
      const float sum = sums[i / (kTaps * kChannels)][i / kChannels % kTaps][i % kChannels];
      special = special || sum != sum;
    }
    if (__syncthreads_or(special)) {
      add_exactly();
    } else {
      add_threads(sums);
    }
  }

  __device__ __forceinline__ void run_any() const {
    const int tap = part * g.together + row;
    if (row >= g.together || tap >= g.taps || channel >= g.channels) return;
    const int line = tap / view.filter(kWidth);
    const int z = line / view.filter(kHeight);
    put(tap, channel,
        view.exact_tap(channel, z, line - z * view.filter(kHeight),
                       tap - line * view.filter(kWidth), first, last));
  }

 public:
  static __device__ __forceinline__ void run(const DepthwiseArguments& arguments) {
    __shared__ Shared shared;
    DepthwiseWeight block(arguments, shared);
    if constexpr (View::kAny) {
      block.run_any();
    } else {
      block.run_fast();
    }
  }

  // The second step: some threads add up every so manieth slice of an element, and the first of
  // them what these found.
  static __device__ __forceinline__ void run_sum(const DepthwiseArguments& g) {
    __shared__ float found[kThreads];
    constexpr int kElements = kThreads / kDepthwiseLanes;
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread / kElements;
    const i64 count = i64{g.taps} * g.channels;
    const i64 index = i64{blockIdx.x} * kElements + thread % kElements;
    float sum = 0;
    if (index < count) {
#pragma unroll 8
      for (int of = lane; of < C::kSlices; of += kDepthwiseLanes) {
        sum += partial(g)[of * count + index];
      }
    }
    found[thread] = sum;
    __syncthreads();
    if (lane != 0 || index >= count) return;
#pragma unroll
    for (int i = 1; i < kDepthwiseLanes; ++i) sum += found[thread + i * kElements];
    const int tap = static_cast<int>(index / g.channels);
    finish(g, tap, static_cast<int>(index - i64{tap} * g.channels), sum);
  }
};

}  // namespace tessera::device
