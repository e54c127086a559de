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
  static constexpr int kImageLines = View::kImageLines;
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

  __device__ __forceinline__ void add_patch(int index, Sums& sums) const {
    const DepthwisePatch patch = view.patch(static_cast<u32>(index));
    const int depth = view.met(kDepth, patch.at[kDepth], part);
    if (depth < 0) return;
    const int line = view.image_start(kHeight, patch.at[kHeight]);
    const int column = view.image_start(kWidth, patch.at[kWidth]);
    auto* x = reinterpret_cast<const char*>(
        view.image() + View::offset_in(g.conv.x_stride, patch.image, depth, line, column) +
        channel);
    const u32 columns = places_inside(column, kImageColumns, view.image_size(kWidth));
    const auto fetch = [&](int l, Line& to) {
      const bool exists = static_cast<u32>(line + l) < static_cast<u32>(view.image_size(kHeight));
      to.load(x, g.image_column, exists ? columns : 0);
      x += g.image_line;
    };
    Line lines[2];
    fetch(0, lines[0]);
    auto* gradient = reinterpret_cast<const char*>(
        static_cast<const Gradient*>(g.conv.y) +
        View::offset_in(g.conv.y_stride, patch.image, patch.at[kDepth], patch.at[kHeight],
                        patch.at[kWidth]) +
        channel);
    const u32 y_columns = places_inside(patch.at[kWidth], kColumns, view.size_of(kWidth));
    GradientLine of_y[kLines];
#pragma unroll
    for (int r = 0; r < kLines; ++r) {
      const bool exists = patch.at[kHeight] + r < view.size_of(kHeight);
      of_y[r].load(gradient, g.other_column, exists ? y_columns : 0);
      gradient += g.other_line;
    }
    if (kImageLines > 1) fetch(1, lines[1]);
    float y[kLines][kColumns][kChannels];
#pragma unroll
    for (int r = 0; r < kLines; ++r) of_y[r].to_floats(y[r]);
    const int rows = view.filter(kHeight);
#pragma unroll
    for (int l = 0; l < kImageLines; ++l) {
      float in[kImageColumns][kChannels];
      lines[l % 2].to_floats(in);
      if (l + 2 < kImageLines) fetch(l + 2, lines[l % 2]);
#pragma unroll
      for (int r = 0; r < kLines; ++r) {
        const int tap = View::tap(l, r);
        if (tap >= 0 && tap < kTaps && tap < rows) multiply(in, y[r], sums[tap]);
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
