// Stores a warpgroup's sums to pixels that lie anywhere: the results of backward_data. Each warp
// stores its rows by itself, 16 at a time.
#pragma once

#include "tessera/device/cuda/conv/conv_arguments.h"
#include "tessera/device/cuda/conv/im2col.h"
#include "tessera/device/cuda/epilogue.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

// The place of a row among the pixels of a class, innermost dimension first.
template <int kDims>
struct ClassPixel {
  int at[kDims];
  int image;

  static __device__ __forceinline__ ClassPixel of(const ConvClass& of, int row) {
    ClassPixel pixel;
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) {
      const int rest = row / of.pixels[dim];
      pixel.at[dim] = row - rest * of.pixels[dim];
      row = rest;
    }
    pixel.image = row;
    return pixel;
  }
};

// Two ways: 16-bit results with beta = 0 go to the warp's area by stmatrix and from there by the
// copy engine; all others go there as raw sums, which lanes finish in pairs.
template <class C, int kBlocks, int kPass, int kAreaBytes>
struct ResidueStore {
  using Out = typename C::Out;
  static constexpr int kDims = C::kNdim;
  static constexpr int kCount = C::kTileN / 2;
  static constexpr int kWarpArea = kAreaBytes / 4;
  static constexpr bool kMayCopy = sizeof(Out) == 2;
  using Pixel = ClassPixel<kDims>;

  const CudaConvArguments& g;
  const ConvClass& of;
  int class_index, batch;
  int row, column;  // the warpgroup's first ones
  u32 area;         // the warp's
  int warp, lane;

  __device__ __forceinline__ void store(const float (&sums)[kBlocks][kCount]) const {
    if constexpr (kMayCopy) {
      if (g.result.beta == 0) return copy(sums);
    }
    finish(sums);
  }

  // ---- by the copy engine ----

  static constexpr int kChunk = chunk_of(C::kTileN) > 8 ? chunk_of(C::kTileN) : 16;  // columns
  static constexpr int kChunks = C::kTileN / kChunk;
  static constexpr int kLine = kChunk * 2;  // bytes
  static constexpr int kBufferBytes = 16 * kLine;
  static constexpr int kBuffers = kWarpArea / kBufferBytes;
  static_assert(C::kTileN % 16 == 0 && kBuffers >= 1, "chunks of 16 columns or more");

  __device__ __forceinline__ void copy(const float (&sums)[kBlocks][kCount]) const {
    const float alpha = g.result.alpha;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int first = row + block * kWgmmaRows + warp * 16;
      const Pixel pixel = Pixel::of(of, first);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const u32 buffer = area + (block * kChunks + chunk) % kBuffers * kBufferBytes;
        if (lane == 0) {
          if (block + chunk == 0) {
            stores_wait_read<0>();
          } else {
            stores_wait_read<kBuffers - 1>();
          }
        }
        __syncwarp();
        fill(buffer, &sums[block][chunk * (kChunk / 2)], alpha);
        copy_engine_fence();
        __syncwarp();
        if (lane == 0) {
          send(buffer, pixel, first, column + chunk * kChunk);
          stores_commit();
        }
      }
    }
  }

  static __device__ __forceinline__ u32 rounded(const float* pair, float alpha) {
    return round_pair<Out>(pair[0] * alpha, pair[1] * alpha);
  }
  __device__ __forceinline__ void fill(u32 buffer, const float* sums, float alpha) const {
    constexpr u32 kSwizzle = kLine / 16 - 1;
#pragma unroll
    for (int group = 0; group < kChunk / 8; group += 2) {
      const u32 linear = (lane & 15) * kLine + (group + (lane >> 4)) * 16;
      const float* const from = sums + group * 4;
      const u32 words[4] = {rounded(from, alpha), rounded(from + 2, alpha),
                            rounded(from + 4, alpha), rounded(from + 6, alpha)};
      store_matrices<false>(buffer + (linear ^ ((linear >> 7) & kSwizzle) << 4), words);
    }
  }
  __device__ __forceinline__ void send(u32 buffer, const Pixel& pixel, int first,
                                       int channel) const {
    if (first >= of.rows || channel >= g.result.columns) return;
    PixelColumn<kDims> to;
    to.map = &of.out;
    to.channel = batch * g.result_channels + channel;
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) to.at[dim] = pixel.at[dim];
    to.image = pixel.image;
    store_pixels(to, buffer);
  }

  // ---- by threads ----

  static constexpr int kRawPitch = kPass * 4;  // bytes
  static_assert(16 * kRawPitch <= kWarpArea, "the area holds 16 rows of raw sums");

  __device__ __forceinline__ void finish(const float (&sums)[kBlocks][kCount]) const {
    constexpr int kPasses = C::kTileN / kPass;  // of a block
    if (kMayCopy && lane == 0) stores_wait_read<0>();
#pragma unroll 1
    for (int pass = 0; pass < kBlocks * kPasses; ++pass) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kBlocks * kPasses; ++i) {
        if (i == pass) stage(&sums[i / kPasses][i % kPasses * (kPass / 2)]);
      }
      __syncwarp();
      finish_rows(row + pass / kPasses * kWgmmaRows + warp * 16, column + pass % kPasses * kPass);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void stage(const float* sums) const {
#pragma unroll
    for (int i = 0; i < kPass / 4; ++i) {
      const int at_row = lane / 4 + i % 2 * 8;
      const int at_column = i / 2 * 8 + lane % 4 * 2;
      store_shared(area + at_row * kRawPitch + at_column * 4, sums[i * 2], sums[i * 2 + 1]);
    }
  }
  // A pair of elements is a row of the matrix, so that a row can lie anywhere.
  __device__ __forceinline__ void finish_rows(int first, int first_column) const {
    const Finish<C, ConvMatrix> finish(g.result, batch);
#pragma unroll 1
    for (int at_row = 0; at_row < 16 && first + at_row < of.rows; ++at_row) {
      const Pixel pixel = Pixel::of(of, first + at_row);
      i64 offset = g.class_offset[class_index] + i64{pixel.image} * g.image_stride;
#pragma unroll
      for (int dim = 0; dim < kDims; ++dim) offset += i64{pixel.at[dim]} * g.pixel_stride[dim];
#pragma unroll 1
      for (int pair = lane; pair < kPass / 2; pair += 32) {
        const int at_column = first_column + pair * 2;
        if (at_column >= g.result.columns) break;
        float x, y;
        load_shared(area + at_row * kRawPitch + pair * 8, x, y);
        const Place at = {offset / 2, at_column, 2};
        const PairBits<Out> done = finish.finish(at, x, y);
        finish.store(finish.address(at), done, 2);
      }
    }
  }
};

}  // namespace tessera::device
