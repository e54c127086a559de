// Gradients by w of depthwise convolutions on the ordinary lanes (depthwise_conv.h): a lane has 16
// bytes of channels of y, all taps of one line, or with kWarpTileK = 0 one tap, and every so many
// runs of places of y. The lanes of a block add up in LDS, in their order; the sums of all slices
// wait in the workspace for the second entry, which adds and finishes them.
#pragma once

#include "tessera/device/hip/conv/depthwise_runs.h"
#include "tessera/device/hip/conv/single_result.h"

namespace tessera::device {

template <class C>
class DepthwiseWeight {
  using X = typename C::X;
  using Y = typename C::Y;
  using Lanes = DepthwiseLanes<Y, C::kTileN>;
  static constexpr int kMultiple = C::kWarpTileM, kColumns = C::kWarpTileN;
  static constexpr int kTaps = C::kWarpTileK, kStep = C::kTileK;
  static constexpr int kVector = Lanes::kVector, kOwn = kVector / kMultiple;
  static constexpr int kMade = kTaps == 0 ? 1 : kTaps;  // taps
  static_assert(sizeof(X) == sizeof(Y) && kOwn * kMultiple == kVector);
  static_assert(C::kTileM == Lanes::kRuns * kColumns);
  using Arguments = HipDepthwiseArguments<1>;

  const Arguments& g;
  const HipDepthwisePart& p;
  const int thread, across;
  int first_channel, z, y, x;  // the first channel of y, and the tap or the line of taps
  float sums[kMade][kVector];

  __device__ __forceinline__ DepthwiseWeight(const Arguments& arguments, int channel_block, int tap)
      : g(arguments),
        p(arguments.parts[0]),
        thread(static_cast<int>(__builtin_amdgcn_workitem_id_x())),
        across(thread % Lanes::kAcross),
        first_channel(channel_block * C::kTileN) {
    const int of_line = taps_of_line(p);
    x = tap % of_line;
    y = tap / of_line % p.taps[kHeight], z = tap / of_line / p.taps[kHeight];
#pragma unroll
    for (int i = 0; i < kMade; ++i) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[i][j] = 0;
    }
  }

  // Blocks that a line of taps has.
  static __device__ __forceinline__ int taps_of_line(const HipDepthwisePart& p) {
    return kTaps == 0 ? p.taps[kWidth] : 1;
  }

  __device__ __forceinline__ void add_run(Chunk image, Chunk other, const DepthwiseRun& run) {
    constexpr int kBytes = static_cast<int>(sizeof(Y));
    int line;
    const bool is_inside = depthwise_line(g.image, p, run, z, y, line) & (run.number < p.runs);
    line += (first_channel / kMultiple + across * kOwn) * kBytes;
    const int of_y =
        run.image * static_cast<int>(g.other.image_pitch) + run.at[kDepth] * g.other.pitch[kDepth] +
        run.at[kHeight] * g.other.pitch[kHeight] + (first_channel + across * kVector) * kBytes;
    ChannelVector<Y, kVector> ys[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      ys[i].load(other, depthwise_place(g.other, of_y, is_inside, run.at[kWidth] * kColumns + i));
    }
    constexpr int kPlaces = kTaps == 0 ? kColumns : (kColumns - 1) * kStep + kTaps;
    const int step = kTaps == 0 ? p.step[kWidth] : 1;
    const int first = run.at[kWidth] * kColumns * p.step[kWidth] + p.base[kWidth] +
                      (kTaps == 0 ? x * p.tap[kWidth] : 0);
    ChannelVector<X, kOwn> xs[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      xs[i].load(image, depthwise_place(g.image, line, is_inside, first + i * step));
    }
#pragma unroll
    for (int tap = 0; tap < kMade; ++tap) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const ChannelVector<X, kOwn>& from = xs[kTaps == 0 ? i : i * kStep + tap];
#pragma unroll
        for (int j = 0; j < kVector; ++j) sums[tap][j] += ys[i][j] * from[j / kMultiple];
      }
    }
  }

  // Where the sums of a channel block, a slice and a tap begin in the workspace.
  static __device__ __forceinline__ i64 place_of(const Arguments& g, i64 slice, i64 tap) {
    const HipDepthwisePart& p = g.parts[0];
    const i64 taps = i64{p.taps[kDepth]} * p.taps[kHeight] * taps_of_line(p) * kMade;
    return (slice * taps + tap) * g.channel_blocks * C::kTileN;
  }
  static __device__ __forceinline__ float* sums_of(const Arguments& g) {
    return (float*)(bits<u64>(g.workspace) + static_cast<u64>(g.partial_sums));
  }

  // The sums of all lanes with the same channels, in the order of the lanes.
  __device__ __forceinline__ void add_lanes(Shared* memory, int slice, int tap) const {
#pragma unroll 1
    for (int i = 0; i < kMade; ++i) {
      float own[kVector];
#pragma unroll
      for (int number = 0; number < kMade; ++number) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          own[j] = number == i ? sums[number][j] : own[j];
        }
      }
      Lanes::store(memory + thread / Lanes::kAcross * Lanes::kLineBytes, across, own);
      barrier();
      if (thread < C::kTileN) {
        float sum = 0;
#pragma unroll 4
        for (int run = 0; run < Lanes::kRuns; ++run) {
          sum += load_shared<float>(memory + run * Lanes::kLineBytes + thread * 4);
        }
        sums_of(g)[place_of(g, slice, i64{tap} * kMade + i) + first_channel +
                   Lanes::channel_at(thread)] = sum;
      }
      barrier();
    }
  }

 public:
  static __device__ __forceinline__ void run(const Arguments&) {
    __shared__ __attribute__((aligned(16))) static u8 memory[Lanes::kRuns * Lanes::kLineBytes];
    const Arguments& g = fresh_arguments<Arguments>();
    const u32 index = __builtin_amdgcn_workgroup_id_x();
    const u32 slice = index / static_cast<u32>(g.channel_blocks);
    const int tap = static_cast<int>(__builtin_amdgcn_workgroup_id_y());
    DepthwiseWeight block(g, static_cast<int>(index - slice * g.channel_blocks), tap);
    const Chunk image = make_buffer(uniform(bits<u64>(g.gemm.a)), g.image.bytes);
    const Chunk other = make_buffer(uniform(bits<u64>(g.gemm.b)), g.other.bytes);
    int first = static_cast<int>(slice) * Lanes::kRuns;
    DepthwiseRun run(block.p, first + block.thread / Lanes::kAcross);
#pragma unroll 1
    for (; first < block.p.runs; first += g.slices * Lanes::kRuns) {
      block.add_run(image, other, run);
      run.step(block.p, g.slices * Lanes::kRuns);
    }
    block.add_lanes((Shared*)memory, static_cast<int>(slice), tap);
  }

  // A lane has one weight: the sums of all slices, in their order.
  static __device__ __forceinline__ void sum(const Arguments&) {
    const Arguments& g = fresh_arguments<Arguments>();
    const HipDepthwisePart& p = g.parts[0];
    const u32 index =
        __builtin_amdgcn_workgroup_id_x() * kHipDepthwiseLanes + __builtin_amdgcn_workitem_id_x();
    const u32 tap = index / static_cast<u32>(g.channels);
    const u32 channel = index - tap * static_cast<u32>(g.channels);
    const u32 line = tap / static_cast<u32>(p.taps[kWidth]);
    const u32 deep = line / static_cast<u32>(p.taps[kHeight]);
    if (deep >= static_cast<u32>(p.taps[kDepth])) return;
    const u32 x = tap - line * static_cast<u32>(p.taps[kWidth]);
    const u32 y = line - deep * static_cast<u32>(p.taps[kHeight]);
    const i64 kept = kTaps == 0 ? i64{tap} : i64{line} * kMade + x;
    float all = 0;
#pragma unroll 1
    for (int slice = 0; slice < g.slices; ++slice) {
      all += sums_of(g)[place_of(g, slice, kept) + channel];
    }
    const i64 at = channel * g.filter_channel + i64{x} * p.filter[kWidth] +
                   i64{y} * p.filter[kHeight] + i64{deep} * p.filter[kDepth];
    const Finish<SingleResultConfig<C>, GemmArguments> finish(g.gemm, 0);
    finish.store({at - channel, channel, 1}, Float4{all, 0, 0, 0});
  }
};

}  // namespace tessera::device
