// Stores a warpgroup's sums to elements of an image that lie anywhere, one by one: channels first,
// or rows that the copy engine cannot write. Each warp stores its rows by itself, 16 at a time.
#pragma once

#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/conv/repack_arguments.h"
#include "tessera/device/cuda/conv/residue_store.h"

namespace tessera::device {

template <class C, int kBlocks, int kPass, int kAreaBytes>
struct PixelStore {
  static constexpr int kCount = C::kTileN / 2;
  static constexpr int kPairs = kPass / 2;  // of columns, in a row of the area
  static_assert(16 * kPairs * 8 <= kAreaBytes / 4, "the area holds 16 rows of raw sums");
  using Pixel = ClassPixel<C::kNdim>;

  const CudaRepackArguments& g;
  const ConvClass& of;
  int class_index, batch;
  int row, column;  // the warpgroup's first ones
  u32 area;         // the warp's
  int warp, lane;

  static __device__ __forceinline__ PixelStore
  at(const ResidueStore<C, kBlocks, kPass, kAreaBytes>& x, const CudaRepackArguments& g) {
    return {g, x.of, x.class_index, x.batch, x.row, x.column, x.area, x.warp, x.lane};
  }

  __device__ __forceinline__ void store(const float (&sums)[kBlocks][kCount]) const {
    constexpr int kPasses = C::kTileN / kPass;  // of a block
    const ConvMatrix& m = g.result;
    const ConvResult<C> result(
        {m.c, {m.d[0], m.d[1], m.d[2], m.d[3]}, m.out, m.alpha, m.beta, m.clamp_lo, m.clamp_hi},
        batch * m.batch_stride_out);
#pragma unroll 1
    for (int pass = 0; pass < kBlocks * kPasses; ++pass) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kBlocks * kPasses; ++i) {
        if (i == pass) stage(&sums[i / kPasses][i % kPasses * (kPass / 2)]);
      }
      __syncwarp();
      finish(result, row + pass / kPasses * kWgmmaRows + warp * 16,
             column + pass % kPasses * kPass);
    }
    __syncwarp();
  }

  // The swizzle keeps both a row's pairs and a pair's rows in different banks.
  __device__ __forceinline__ u32 pair_at(int at_row, int pair) const {
    return area + (at_row * kPairs + (pair ^ (at_row & (kPairs - 1)))) * 8;
  }
  __device__ __forceinline__ void stage(const float* sums) const {
#pragma unroll
    for (int i = 0; i < kPass / 4; ++i) {
      store_shared(pair_at(lane / 4 + i % 2 * 8, i / 2 * 4 + lane % 4), sums[i * 2],
                   sums[i * 2 + 1]);
    }
  }

  __device__ __forceinline__ i64 offset_of(int at_row) const {
    const Pixel pixel = Pixel::of(of, at_row);
    i64 offset = g.class_offset[class_index] + i64{pixel.image} * g.image_stride;
#pragma unroll
    for (int dim = 0; dim < C::kNdim; ++dim) offset += i64{pixel.at[dim]} * g.pixel_stride[dim];
    return offset;
  }

  // Lanes follow memory: along a pixel's channels, where each of 16 lanes finds a row's place, or
  // along the pixels of a channel.
  __device__ __forceinline__ void finish(const ConvResult<C>& result, int first,
                                         int first_column) const {
    if (has_result_cells(g)) return finish_cells(result, first, first_column);
    if constexpr (C::kChannelsLast) {
      constexpr int kWide = kPairs < 32 ? kPairs : 32;
      const i64 row_offset = offset_of(first + lane % 16);
#pragma unroll 1
      for (int pair = lane % kWide; pair < kPairs; pair += kWide) {
#pragma unroll 4
        for (int i = 0; i < 16; i += 32 / kWide) {
          const int at_row = i + lane / kWide;
          const i64 offset = __shfl_sync(0xffffffffU, row_offset, at_row);
          if (first + at_row < of.rows) put(result, offset, at_row, pair, first_column);
        }
      }
    } else {
      const int at_row = lane % 16;
      if (first + at_row >= of.rows) return;
      const i64 offset = offset_of(first + at_row);
#pragma unroll 1
      for (int pair = lane / 16; pair < kPairs; pair += 2) {
        put(result, offset, at_row, pair, first_column);
      }
    }
  }
  // A row is a cell of pixels, of which some may be outside of the image. Each of 16 lanes finds a
  // row's place, and all lanes follow the columns in pairs.
  __device__ __forceinline__ void finish_cells(const ConvResult<C>& result, int first,
                                               int first_column) const {
    constexpr u32 kAll = 0xffffffffU;
    constexpr int kWide = kPairs < 32 ? kPairs : 32;
    const ImageCopy& x = g.images[1];
    const Pixel cell = Pixel::of(of, first + lane % 16);
    i64 row_offset = cell.image * x.image;
    int pixels[C::kNdim];  // of the image, from the cell on
#pragma unroll
    for (int dim = 0; dim < C::kNdim; ++dim) {
      const int at = cell.at[dim] * x.step[2 - dim];
      pixels[dim] = first + lane % 16 < of.rows ? x.size[2 - dim] - at : 0;
      row_offset += at * x.pixel[2 - dim];
    }
#pragma unroll 1
    for (int pair = lane % kWide; pair < kPairs; pair += kWide) {
      const int at_column = first_column + pair * 2;
      const CellColumn one = cell_column(x, at_column), two = cell_column(x, at_column + 1);
      const i64 to_one = offset_of(one), to_two = offset_of(two);
      // A pair of a vector's elements begins at an even one.
      const bool has_pair = two.channel > one.channel && one.channel % 2 == 0;
      const bool together = to_two == to_one + 1 && (C::kNumD == 0 || has_pair);
#pragma unroll 2
      for (int i = 0; i < 16; i += 32 / kWide) {
        const int at_row = i + lane / kWide;
        const i64 offset = __shfl_sync(kAll, row_offset, at_row);
        bool has_one = at_column < g.result.columns, has_two = at_column + 1 < g.result.columns;
#pragma unroll
        for (int dim = 0; dim < C::kNdim; ++dim) {
          const int count = __shfl_sync(kAll, pixels[dim], at_row);
          has_one = has_one && one.at[2 - dim] < count;
          has_two = has_two && two.at[2 - dim] < count;
        }
        float sums[2];
        load_shared(pair_at(at_row, pair), sums[0], sums[1]);
        if (has_one && has_two && together) {
          result.store_pair(offset + to_one, one.channel, sums[0], sums[1]);
        } else {
          if (has_one) result.store(offset + to_one, one.channel, sums[0]);
          if (has_two) result.store(offset + to_two, two.channel, sums[1]);
        }
      }
    }
  }
  __device__ __forceinline__ i64 offset_of(const CellColumn& column) const {
    const ImageCopy& x = g.images[1];
    i64 offset = column.channel * x.channel;
#pragma unroll
    for (int dim = 0; dim < C::kNdim; ++dim) offset += column.at[2 - dim] * x.pixel[2 - dim];
    return offset;
  }
  __device__ __forceinline__ void put(const ConvResult<C>& result, i64 offset, int at_row, int pair,
                                      int first_column) const {
    const int at = first_column + pair * 2;
    if (at >= g.result.columns) return;
    float x, y;
    load_shared(pair_at(at_row, pair), x, y);
    const i64 channel = i64{batch} * g.result.columns + at;
    const bool has_two = at + 1 < g.result.columns;
    // A pair of a vector's elements begins at an even one.
    if (has_two && g.channel_stride == 1 && (C::kNumD == 0 || channel % 2 == 0)) {
      return result.store_pair(offset + at, channel, x, y);
    }
    result.store(offset + at * g.channel_stride, channel, x);
    if (!has_two) return;
    result.store(offset + (at + 1) * g.channel_stride, channel + 1, y);
  }
};

}  // namespace tessera::device
