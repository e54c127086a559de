// Depthwise convolutions, forward and by x: a thread computes a patch of results for some channels.
// It loads and converts each line of the image once and uses it for all results of the patch.
#pragma once

#include "tessera/device/cuda/conv/depthwise_view.h"
#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

template <class C>
class DepthwiseImage {
  using View = DepthwiseView<C>;
  using Config = ConvResultConfig<C>;
  using Out = typename Config::Out;
  using Image = typename View::Image;
  using Filter = typename View::Filter;
  static constexpr int kLines = View::kLines;
  static constexpr int kColumns = View::kColumns;
  static constexpr int kTaps = View::kTaps;
  static constexpr int kChannels = View::kChannels;
  static constexpr int kImageLines = View::kImageLines;
  static constexpr int kImageColumns = View::kImageColumns;
  static_assert(C::kSlices == 1, "the taps are not shared between blocks");

  // Where the code of all lines is short enough to be written out, two lines are on their way, and
  // results leave as soon as they are complete. Few weights stay in registers.
  static constexpr int kProducts = kLines * kColumns * kTaps * kTaps * kChannels;
  static constexpr bool kWrittenOut = kProducts <= 300;
  static constexpr bool kSlides = kWrittenOut && C::kNdim < 3;
  static constexpr bool kKept = kWrittenOut && kTaps * kTaps * kChannels <= 36;
  static constexpr int kAhead = kWrittenOut ? 2 : 1;

  struct alignas(16) Shared {
    float weights[View::kAny ? 1 : kTaps * kTaps * C::kTileN];
  };
  using Line = ImageLine<Image, View::kAny ? 4 : kChannels, kImageColumns>;

  const DepthwiseArguments& g;
  Shared& shared;
  View view;
  Finish<Config, ConvResultArguments> finish;
  DepthwisePatch patch;
  int first_channel;  // of the block
  int vector;         // of the block's vectors of channels, this thread's
  int channel;
  bool active;

  __device__ __forceinline__ DepthwiseImage(const DepthwiseArguments& arguments,
                                            const ConvResultArguments& result, Shared& memory)
      : g(arguments), shared(memory), view{arguments}, finish(result, 0) {
    const auto [group, channel_block] =
        divided(static_cast<int>(blockIdx.x), arguments.channel_blocks);
    const auto [row, own] = divided(static_cast<int>(threadIdx.x), arguments.vectors);
    vector = own;
    first_channel = channel_block * g.vectors * kChannels;
    channel = first_channel + vector * kChannels;
    const i64 index = i64{group} * g.together + row;
    active = row < g.together && channel < g.channels && index < g.patches;
    patch = view.patch(active ? static_cast<u32>(index) : 0);
  }

  // ---- weights ----

  // The weights of one depth of the filter for the block's channels. Returns whether one of this
  // thread's is NaN or infinite.
  __device__ __forceinline__ bool stage(int z) {
    const int count = g.vectors * kChannels;
    const auto [part, of] = divided(static_cast<int>(threadIdx.x), count);
    const int parts = max(View::kThreads / count, 1);
    const i64* const stride = g.conv.w_stride;
    bool all_finite = true;
#pragma unroll 1
    for (int c = of; c < min(count, g.channels - first_channel); c += View::kThreads) {
      const auto* const from = static_cast<const Filter*>(g.conv.w) +
                               (first_channel + c) * stride[kFilterG] + z * stride[kFilterZ];
#pragma unroll 2
      for (int y = part; y < view.filter(kHeight); y += parts) {
#pragma unroll
        for (int x = 0; x < kTaps; ++x) {
          const float w = to_float(from[y * stride[kFilterY] + x * stride[kFilterX]]);
          shared.weights[(y * kTaps + x) * C::kTileN + c] = w;
          all_finite = all_finite && w - w == 0;
        }
      }
    }
    return !all_finite;
  }
  __device__ __forceinline__ void load_weights(int tap, float (&w)[kChannels]) const {
    using Run = Neighbours<float, kChannels>;
    const Run run =
        *reinterpret_cast<const Run*>(shared.weights + tap * C::kTileN + vector * kChannels);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) w[i] = run.x[i];
  }

  // ---- lines ----

  struct Source {
    const char* at;  // this thread's channels of the first line, at the first column
    int line;        // the first one
    u32 columns;     // those that exist
    int distance;    // of columns, in bytes
  };
  __device__ __forceinline__ Source source(int depth) const {
    const int line = view.image_start(kHeight, patch.at[kHeight]);
    const int column = view.image_start(kWidth, patch.at[kWidth]);
    const Image* const at = view.image() +
                            View::offset_in(view.image_stride(), patch.image, depth, line, column) +
                            channel;
    return {reinterpret_cast<const char*>(at), line,
            places_inside<kImageColumns>(column, view.image_size(kWidth)), g.image_column};
  }
  __device__ __forceinline__ bool line_exists(const Source& from, int l) const {
    return static_cast<u32>(from.line + l) < static_cast<u32>(view.image_size(kHeight));
  }
  // Line number l, and then the next one.
  __device__ __forceinline__ void fetch(Source& from, int l, Line& to) const {
    to.load(from.at, from.distance, line_exists(from, l) ? from.columns : 0);
    from.at += g.image_line;
  }

  // The products of one line of the image with one line of taps, for one line of results.
  template <class Weights>
  static __device__ __forceinline__ void multiply(const float (&in)[kImageColumns][kChannels],
                                                  const Weights& weights,
                                                  float (&sums)[kColumns][kChannels]) {
#pragma unroll
    for (int x = 0; x < kTaps; ++x) {
      float w[kChannels];
      weights(x, w);
#pragma unroll
      for (int t = 0; t < kColumns; ++t) {
#pragma unroll
        for (int i = 0; i < kImageColumns; ++i) {
          if (View::tap(i, t) != x) continue;
#pragma unroll
          for (int c = 0; c < kChannels; ++c) sums[t][c] = fmaf(in[i][c], w[c], sums[t][c]);
        }
      }
    }
  }

  // Whether line l of the image is the last one that result line r meets.
  static constexpr bool completes(int l, int r) {
    return View::kData ? l == View::kReach + r / C::kTileK : l == r * C::kTileK + kTaps - 1;
  }

  __device__ __forceinline__ void multiply_plane(Source& from, Line (&lines)[kAhead],
                                                 float (&sums)[kLines][kColumns][kChannels]) {
    const int rows = view.filter(kHeight);
    stay(from.distance);
    float kept[kKept ? kTaps * kTaps : 1][kChannels];
    if constexpr (kKept) {
#pragma unroll
      for (int i = 0; i < kTaps * kTaps; ++i) load_weights(i, kept[i]);
    }
#pragma unroll kWrittenOut ? kImageLines : 1
    for (int l = 0; l < kImageLines; ++l) {
      // A line that does not exist is not multiplied, unless a branch would cost more.
      const bool exists = kWrittenOut || line_exists(from, l);
      float in[kImageColumns][kChannels];
      lines[kWrittenOut ? l % 2 : 0].to_floats(in);
      if (l + kAhead < kImageLines) fetch(from, l + kAhead, lines[kWrittenOut ? l % 2 : 0]);
#pragma unroll
      for (int r = 0; r < kLines; ++r) {
        const int y = View::tap(l, r);
        if (y >= 0 && y < kTaps && y < rows && exists) {
          multiply(
              in,
              [&](int x, float(&w)[kChannels]) {
                if constexpr (kKept) {
#pragma unroll
                  for (int c = 0; c < kChannels; ++c) w[c] = kept[y * kTaps + x][c];
                } else {
                  load_weights(y * kTaps + x, w);
                }
              },
              sums[r]);
        }
        if constexpr (kSlides) {
          if (completes(l, r)) store_line(r, sums[r]);
        }
      }
    }
  }

  // ---- results ----

  __device__ __forceinline__ i64 result_offset(int line, int column) const {
    return View::offset_in(View::kData ? g.conv.x_stride : g.conv.y_stride, patch.image,
                           patch.at[kDepth], line, column);
  }

  __device__ __forceinline__ void store_line(int r, float (&sums)[kColumns][kChannels]) {
    using Run = Neighbours<PairBits<Out>, kChannels / 2>;
    const int line = patch.at[kHeight] + r;
    if (static_cast<u32>(line) >= static_cast<u32>(view.size_of(kHeight))) return;
    const u32 columns = places_inside<kColumns>(patch.at[kWidth], view.size_of(kWidth));
    const i64 first = result_offset(line, patch.at[kWidth]);
    const int distance = g.other_column / static_cast<int>(sizeof(Out));
    auto* const to = reinterpret_cast<char*>(finish.address({first, channel, 2}));
    Values pairs[kColumns][kChannels / 2];
    const auto place = [&](int t, int i) -> Place {
      return {first + i64{distance} * t, channel + i * 2, 2};
    };
#pragma unroll
    for (int i = 0; i < kColumns * kChannels / 2; ++i) {
      const float(&two)[kChannels] = sums[i / (kChannels / 2)];
      const int c = i % (kChannels / 2) * 2;
      pairs[i / (kChannels / 2)][c / 2] = finish.scaled(two[c], two[c + 1]);
    }
    if (g.conv.beta != 0) {
#pragma unroll
      for (int t = 0; t < kColumns; ++t) {
#pragma unroll
        for (int i = 0; i < kChannels / 2; ++i) {
          if ((columns >> t & 1) != 0) {
            pairs[t][i] = finish.template with_c<true>(place(t, i), pairs[t][i]);
          }
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kColumns; ++t) {
      if ((columns >> t & 1) == 0) continue;
      Run run;
#pragma unroll
      for (int i = 0; i < kChannels / 2; ++i) {
        run.x[i] = finish.template rounded<true>(place(t, i), pairs[t][i]);
      }
      *reinterpret_cast<Run*>(to + i64{g.other_column} * t) = run;
    }
  }

  __device__ __forceinline__ void store_exact() const {
#pragma unroll 1
    for (int i = 0; i < kLines * kColumns * kChannels; ++i) {
      const int t = i / kChannels;
      const int at[kSpatialDims] = {patch.at[kDepth], patch.at[kHeight] + t / kColumns,
                                    patch.at[kWidth] + t % kColumns};
      if (static_cast<u32>(at[kHeight]) >= static_cast<u32>(view.size_of(kHeight))) continue;
      if (static_cast<u32>(at[kWidth]) >= static_cast<u32>(view.size_of(kWidth))) continue;
      const int own = channel + i % kChannels;
      const float sum = view.exact(patch.image, at, own);
      const i64* const stride = View::kData ? g.conv.x_stride : g.conv.y_stride;
      const int many = View::kData ? 1 : static_cast<int>(g.conv.k);
      const int group = own / many;
      const i64 offset = result_offset(at[kHeight], at[kWidth]) + group * stride[kImageG] +
                         (own - group * many) * stride[kImageC];
      const Place place = {offset - own, own, 1};
      finish.store(finish.address(place), finish.finish(place, sum, 0), 1);
    }
  }

  // ---- blocks ----

  // Whether all vectors of channels begin where one load can read them.
  __device__ __forceinline__ bool in_vectors() const {
    bool all =
        is_aligned(view.image(), kChannels * static_cast<int>(sizeof(Image))) &&
        is_aligned(static_cast<const Out*>(g.conv.out),
                   kChannels * static_cast<int>(sizeof(Out))) &&
        is_aligned(static_cast<const Out*>(g.conv.before), 2 * static_cast<int>(sizeof(Out)));
    using D = typename Config::D;
#pragma unroll
    for (int i = 0; i < Config::kNumD; ++i) {
      all = all && is_aligned(static_cast<const D*>(g.conv.d[i]), 2 * static_cast<int>(sizeof(D)));
    }
    return all;
  }

  // Zeros outside of the image are multiplied, unless a weight is NaN or infinite.
  __device__ __forceinline__ void run_fast() {
    float sums[kLines][kColumns][kChannels] = {};
    bool special = !in_vectors();
#pragma unroll 1
    for (int z = 0; z < view.filter(kDepth); ++z) {
      const int depth = active && !special ? view.met(kDepth, patch.at[kDepth], z) : -1;
      Source from = source(depth < 0 ? 0 : depth);
      Line lines[kAhead];
      if (depth >= 0) {
#pragma unroll
        for (int l = 0; l < kAhead; ++l) fetch(from, l, lines[l]);
      }
      if (C::kNdim == 3) __syncthreads();
      const bool found = stage(z);
      special = __syncthreads_or(special || found);
      if (depth >= 0 && !special) multiply_plane(from, lines, sums);
    }
    if (!active) return;
    if (special) {
      store_exact();
    } else if constexpr (!kSlides) {
#pragma unroll
      for (int r = 0; r < kLines; ++r) store_line(r, sums[r]);
    }
  }

 public:
  static __device__ __forceinline__ void run(const DepthwiseArguments& arguments) {
    __shared__ Shared shared;
    const ConvResultArguments result = conv_result_arguments(arguments.conv);
    DepthwiseImage block(arguments, result, shared);
    if constexpr (View::kAny) {
      if (block.active) block.store_exact();
    } else {
      block.run_fast();
    }
  }
};

}  // namespace tessera::device
