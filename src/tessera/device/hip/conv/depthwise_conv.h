// Depthwise convolutions and their gradients by x on the ordinary lanes: one channel of x in each
// group, and kWarpTileM channels of y of it. A lane has 16 bytes of channels of what it reads and
// kWarpTileN neighbouring results of a line. Weights wait in LDS as fp32. With kWarpTileK taps of a
// line known, tap after tap in memory and results kTileK places apart, a lane reads each place of a
// line once; kWarpTileK = 0 takes any line of taps and reads a place for each of them.
#pragma once

#include "tessera/device/hip/conv/depthwise_runs.h"
#include "tessera/device/hip/conv/single_result.h"

namespace tessera::device {

template <class C>
class DepthwiseConv {
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  using Image = typename If<kData, typename C::Y, typename C::X>::Type;
  using Weight = typename C::W;
  using Lanes = DepthwiseLanes<Image, C::kTileN>;
  static constexpr int kMultiple = C::kWarpTileM, kColumns = C::kWarpTileN;
  static constexpr int kTaps = C::kWarpTileK, kStep = C::kTileK;
  static constexpr int kVector = Lanes::kVector, kOwn = kVector / kMultiple;
  static constexpr int kRead = kData ? kVector : kOwn, kMade = kData ? kOwn : kVector;
  static constexpr int kMostTaps = hip_depthwise_taps(kTaps, C::kNdim);
  static_assert(kOwn * kMultiple == kVector && C::kTileM == Lanes::kRuns * kColumns);
  using Vector = ChannelVector<Image, kRead>;
  using Arguments = HipDepthwiseArguments<kData ? kHipDepthwiseParts : 1>;

  const Arguments& g;
  const HipDepthwisePart& p;
  const int thread, across;
  Shared* const weights;
  int first_channel;  // of y, of the block
  float sums[kColumns][kMade];

  __device__ __forceinline__ DepthwiseConv(const Arguments& arguments, int channel_block,
                                           Shared* memory)
      : g(arguments),
        p(arguments.parts[kData ? __builtin_amdgcn_workgroup_id_y() : 0]),
        thread(static_cast<int>(__builtin_amdgcn_workitem_id_x())),
        across(thread % Lanes::kAcross),
        weights(memory),
        first_channel(channel_block * C::kTileN) {}

  // ---- weights ----

  __device__ __forceinline__ void stage() const {
    const auto from = (Global<Weight>)g.gemm.b + p.filter_first;
    const int all = p.taps[kDepth] * p.taps[kHeight] * p.taps[kWidth] * C::kTileN;
#pragma unroll 1
    for (int i = thread; i < all; i += kHipDepthwiseLanes) {
      const int channel = first_channel + Lanes::channel_at(i % C::kTileN);
      const u32 tap = static_cast<u32>(i) / C::kTileN;
      const u32 line = tap / static_cast<u32>(p.taps[kWidth]);
      const u32 z = line / static_cast<u32>(p.taps[kHeight]);
      const i64 at =
          channel * g.filter_channel + i64{tap - line * p.taps[kWidth]} * p.filter[kWidth] +
          i64{line - z * p.taps[kHeight]} * p.filter[kHeight] + i64{z} * p.filter[kDepth];
      float weight = 0;
      if (channel < g.channels)
        weight = to_float(bits<Weight>(*(Global<WordBits<Weight>>)(from + at)));
      store_shared(weights + i * 4, weight);
    }
  }

  // ---- sums ----

  __device__ __forceinline__ void add(const Vector& x, const float (&w)[kVector], int column) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sums[column][kData ? i / kMultiple : i] += x[kData ? i : i / kMultiple] * w[i];
    }
  }
  __device__ __forceinline__ int first_place(const DepthwiseRun& run) const {
    return run.at[kWidth] * kColumns * p.step[kWidth] + p.base[kWidth];
  }

  // The products of a line of taps whose places a lane reads once.
  __device__ __forceinline__ void add_window(Chunk buffer, const DepthwiseRun& run, int line,
                                             bool is_inside, const Shared* w) {
    constexpr int kPlaces = (kColumns - 1) * kStep + kTaps;
    const int first = first_place(run);
    Vector x[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      x[i].load(buffer, depthwise_place(g.image, line, is_inside, first + i));
    }
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if (tap >= p.taps[kWidth]) break;
      float of_tap[kVector];
      Lanes::load(w + tap * Lanes::kLineBytes, across, of_tap);
#pragma unroll
      for (int column = 0; column < kColumns; ++column)
        add(x[column * kStep + tap], of_tap, column);
    }
  }
  __device__ __forceinline__ void add_any(Chunk buffer, const DepthwiseRun& run, int line,
                                          bool is_inside, const Shared* w) {
    int first = first_place(run);
#pragma unroll 1
    for (int tap = 0; tap < p.taps[kWidth]; ++tap) {
      Vector x[kColumns];
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        const int place = first + column * p.step[kWidth];
        x[column].load(buffer, depthwise_place(g.image, line, is_inside, place));
      }
      float of_tap[kVector];
      Lanes::load(w, across, of_tap);
#pragma unroll
      for (int column = 0; column < kColumns; ++column) add(x[column], of_tap, column);
      first += p.tap[kWidth];
      w += Lanes::kLineBytes;
    }
  }

  __device__ __forceinline__ void add_run(Chunk buffer, const DepthwiseRun& run) {
    const int channel_bytes = (first_channel / (kData ? 1 : kMultiple) + across * kRead) *
                              static_cast<int>(sizeof(Image));
    const bool exists = run.number < p.runs;
    const Shared* w = weights;
#pragma unroll 1
    for (int z = 0; z < p.taps[kDepth]; ++z) {
#pragma unroll 1
      for (int y = 0; y < p.taps[kHeight]; ++y) {
        int line;
        const bool is_inside = depthwise_line(g.image, p, run, z, y, line) & exists;
        line += channel_bytes;
        if constexpr (kTaps == 0) {
          add_any(buffer, run, line, is_inside, w);
        } else {
          add_window(buffer, run, line, is_inside, w);
        }
        w += p.taps[kWidth] * Lanes::kLineBytes;
      }
    }
  }

  // ---- results ----

  __device__ __forceinline__ void store(const DepthwiseRun& run) const {
    if (run.number >= p.runs) return;
    const Finish<SingleResultConfig<C>, GemmArguments> finish(g.gemm, 0);
    const int first = first_channel / (kData ? kMultiple : 1) + across * kMade;
    const int left = g.channels / (kData ? kMultiple : 1) - first;
    i64 row = p.result_first + run.image * p.result_image + run.at[kDepth] * p.result[kDepth] +
              run.at[kHeight] * p.result[kHeight];
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const int at = run.at[kWidth] * kColumns + column;
      if (at >= p.width) break;
#pragma unroll
      for (int i = 0; i < kMade; i += 4) {
        constexpr int kMost = kMade < 4 ? kMade : 4;
        Float4 four = 0;
#pragma unroll
        for (int j = 0; j < kMost; ++j) four[j] = sums[column][i + j];
        finish.store({row + at * p.result[kWidth], first + i, left - i < kMost ? left - i : kMost},
                     four);
      }
    }
  }

 public:
  static __device__ __forceinline__ void run(const Arguments&) {
    __shared__ __attribute__((aligned(16))) static u8 memory[kMostTaps * Lanes::kLineBytes];
    const Arguments& g = fresh_arguments<Arguments>();
    const u32 index = __builtin_amdgcn_workgroup_id_x();
    const u32 slice = index / static_cast<u32>(g.channel_blocks);
    DepthwiseConv block(g, static_cast<int>(index - slice * g.channel_blocks), (Shared*)memory);
    block.stage();
    barrier();
    const Chunk buffer = make_buffer(uniform(bits<u64>(g.gemm.a)), g.image.bytes);
    int first = static_cast<int>(slice) * Lanes::kRuns;
    DepthwiseRun run(block.p, first + block.thread / Lanes::kAcross);
#pragma unroll 1
    for (; first < block.p.runs; first += g.slices * Lanes::kRuns) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
#pragma unroll
        for (int j = 0; j < kMade; ++j) block.sums[i][j] = 0;
      }
      block.add_run(buffer, run);
      block.store(run);
      run.step(block.p, g.slices * Lanes::kRuns);
    }
  }
};

}  // namespace tessera::device
