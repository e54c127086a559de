// Finishes and stores the sums of a convolution's tile, which lie in shared memory, wherever the
// results lie; or keeps them as the sums of a slice, which a second step adds up.
#pragma once

#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/conv/gather_places.h"

namespace tessera::device {

// As SameStrides, of a number that is known when the kernel runs.
struct GatherStride {
  i64 stride;
  __device__ __forceinline__ i64 operator[](int) const { return stride; }
};

// As ConvResultArguments. Where results are stored in pairs, a row is a pair of elements: its
// distance in memory counts pairs.
struct GatherResultArguments {
  const void* c;
  const void* d[4];
  void* out;
  float alpha, beta, clamp_lo, clamp_hi;
  i64 ld_c, ld_out;
  GatherStride ld_d;
  static constexpr int pointer_arrays = 0;
  static constexpr i64 batch_stride_c = 0, batch_stride_out = 0;
  static constexpr SameStrides<0> batch_stride_d = {};
};

template <class C>
class GatherStore {
  using Places = GatherPlaces<C>;
  using Config = ConvResultConfig<C>;
  using Acc = typename C::Acc;
  using End = Finish<Config, GatherResultArguments>;
  // Neighbours in memory are neighbours of a row, or of a column.
  static constexpr bool kAlongColumns = C::kChannelsLast || Places::kWeight;
  static constexpr int kRow = C::kTileN + (kAlongColumns ? kStagingPad : 1);

  static __device__ __forceinline__ GatherResultArguments arguments_of(const GatherArguments& a) {
    const ConvArguments& g = a.conv;
    const i64 ld = a.pairs != 0 ? 2 : 1;
    return {g.before,   {g.d[0], g.d[1], g.d[2], g.d[3]},
            g.out,      g.alpha,
            g.beta,     g.clamp_lo,
            g.clamp_hi, ld,
            ld,         {ld}};
  }
  static __device__ __forceinline__ void finish(const GatherArguments& a, const End& end,
                                                i64 offset, i64 channel, int count, Acc x, Acc y) {
    const i64 row = a.pairs != 0 ? (offset - channel) / 2 : offset - channel;
    const Place at = {row, channel, count};
    const PairBits<typename Config::Out> pair = end.finish(at, x, y);
    end.store(end.address(at), pair, count);
  }
  // The channel of a column's results; only forward has vectors of channels.
  static __device__ __forceinline__ i64 channel_of(const Places& in, u32 column) {
    if constexpr (C::kDirection == ConvDirection::forward) {
      return i64{in.t.product} * in.a.together * in.a.conv.k + column;
    } else {
      return 0;
    }
  }

 public:
  // The place of a sum in shared memory.
  static __device__ __forceinline__ Acc& at(Acc* staged, u32 row, u32 column) {
    return staged[row * kRow + column];
  }

  static __device__ __forceinline__ void store(const GatherArguments& a, const Places& in,
                                               const GatherLines<C>& lines, Acc* staged, u32 thread,
                                               u32 threads) {
    const GatherResultArguments arguments = arguments_of(a);
    const End end(arguments, 0);
    const i64 first = in.product_result();
    const u32 step = a.pairs != 0 ? 2 : 1;
    const u32 count = C::kTileM * C::kTileN / step;
#pragma unroll 2
    for (u32 i = thread; i < count; i += threads) {
      u32 row = i % C::kTileM;
      u32 column = i / C::kTileM;
      if (kAlongColumns) {
        row = i * step / C::kTileN;
        column = i * step % C::kTileN;
      }
      if (!lines.has(row, column)) continue;
      const Acc x = at(staged, row, column);
      const Acc y = step == 2 ? at(staged, row, column + 1) : x;
      finish(a, end, first + lines.result(row, column), channel_of(in, in.t.column + column),
             static_cast<int>(step), x, y);
    }
  }

  // ---- slices: [slice][tile][row][column] ----

  static __device__ __forceinline__ Acc* slice_at(const GatherArguments& a, u32 tile, u32 slice) {
    Acc* const sums = reinterpret_cast<Acc*>(static_cast<char*>(a.workspace) + a.partial_sums);
    return sums + (i64{slice} * a.tiles + tile) * (C::kTileM * C::kTileN);
  }
  static __device__ __forceinline__ void put_slice(const GatherArguments& a, u32 tile, u32 slice,
                                                   Acc* staged, u32 thread, u32 threads) {
    Acc* const to = slice_at(a, tile, slice);
#pragma unroll 4
    for (u32 i = thread; i < C::kTileM * C::kTileN; i += threads) {
      to[i] = at(staged, i / C::kTileN, i % C::kTileN);
    }
  }

  // Adds up the slices of two neighbours in their order and finishes the sums.
  static __device__ __forceinline__ void add_slices(const GatherArguments& a, const Places& in,
                                                    u32 tile, u32 pair) {
    const u32 row = pair * 2 / C::kTileN;
    const u32 column = pair * 2 % C::kTileN;
    const bool by_weight = Places::kWeight;
    typename Places::ImagePlace image;
    typename Places::OtherPlace other;
    i64 image_at[2];
    i64 other_at[2];
    bool exists[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 at_column = in.t.column + column + i;
      int image_group;
      int other_group;
      in.image_line(by_weight ? at_column : in.t.row + row, image, image_at[i], image_group);
      in.other_line(by_weight ? in.t.row + row : at_column, other, other_at[i], other_group);
      exists[i] = image_group == other_group;
    }
    if (!exists[0] && !exists[1]) return;
    Acc sums[2] = {};
#pragma unroll 8
    for (u32 slice = 0; slice < C::kSlices; ++slice) {
      const Acc* const from = slice_at(a, tile, slice) + pair * 2;
      sums[0] += from[0];
      sums[1] += from[1];
    }
    const GatherResultArguments arguments = arguments_of(a);
    const End end(arguments, 0);
    const i64 channel = channel_of(in, in.t.column + column);
    const int step = a.pairs != 0 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!exists[i] || i >= 3 - step) continue;
      const i64 at = in.product_result() + image_at[i] + other_at[i];
      finish(a, end, at, channel + i, step, sums[i], sums[1]);
    }
  }
};

}  // namespace tessera::device
