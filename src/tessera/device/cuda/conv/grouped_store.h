// Finishes and stores the sums of grouped kernels for forward and backward_data, which lie in
// registers as mma and wgmma leave them: a lane has two neighbouring channels of row lane / 4, and
// the same of the row 8 further on.
#pragma once

#include "tessera/device/cuda/conv/grouped_exact.h"
#include "tessera/device/cuda/conv/grouped_mma.h"
#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

struct GroupedStride {
  i64 stride;
  __device__ __forceinline__ i64 operator[](int) const { return stride; }
};

// As ConvResultArguments. Where results are stored in pairs, a row is a pair of elements: its
// distance in memory counts pairs.
struct GroupedResultArguments {
  const void* c;
  const void* d[4];
  void* out;
  float alpha, beta, clamp_lo, clamp_hi;
  i64 ld_c, ld_out;
  GroupedStride ld_d;
  static constexpr int pointer_arrays = 0;
  static constexpr i64 batch_stride_c = 0, batch_stride_out = 0;
  static constexpr SameStrides<0> batch_stride_d = {};
};
__device__ __forceinline__ GroupedResultArguments grouped_result(const GroupedArguments& a) {
  const ConvArguments& g = a.conv;
  const i64 ld = a.result_width > 1 ? 2 : 1;
  return {g.before,   {g.d[0], g.d[1], g.d[2], g.d[3]},
          g.out,      g.alpha,
          g.beta,     g.clamp_lo,
          g.clamp_hi, ld,
          ld,         {ld}};
}

// A row of results: where the channel 0 of its pixel lies.
struct GroupedRow {
  i64 offset;
  bool exists;
};

template <class C>
class GroupedStore {
  using Tile = GroupedTile<C>;
  using Config = ConvResultConfig<C>;
  using Out = typename Config::Out;
  using End = Finish<Config, GroupedResultArguments>;
  static_assert(sizeof(Out) == 2, "results have 16 bits");

  const GroupedArguments& g;
  const GroupedAt& tile;
  const GroupedClass& of;
  int channel, columns;  // of the warp: the first over all groups, and how many exist
  int lane;

 public:
  // The warp has the columns from `column` on of the tile's product number `product`; a product
  // has at most `most` of them here.
  __device__ __forceinline__ GroupedStore(const GroupedArguments& arguments, const GroupedAt& at,
                                          const GroupedClass& of_class, int product, int column,
                                          int most, int own_lane)
      : g(arguments), tile(at), of(of_class), lane(own_lane) {
    const int first = at.part * C::kTileN + column;
    channel = (at.product + product) * arguments.columns + first;
    columns = min(min(arguments.columns - first, arguments.all_columns - channel), most);
  }

  // Stores a warp's sums: `sums(b, j, e)` is a lane's element e of block b of 16 rows and of eight
  // columns j; `find(b, half, pixel)` finds the pixels of its two rows, and says whether the tile
  // has them. kMasked: rows that the tile lacks hold anything.
  template <int kBlocks, int kEights, bool kMasked, class Sums, class Find>
  __device__ __forceinline__ void store(const Sums& sums, const Find& find) const {
    if (any_of_warp(has_special<kBlocks, kEights, kMasked>(sums, find))) {
      store_exact<kBlocks, kEights>(find);
      return;
    }
    const GroupedResultArguments arguments = grouped_result(g);
    const End end(arguments, 0);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const GroupedRow first = row_of(find, b, 0);
      const GroupedRow second = row_of(find, b, 1);
      const auto of_block = [&](int j, int e) { return sums(b, j, e); };
      if (g.result_width == 4) {
        store_fours<kEights>(end, first, second, of_block);
      } else {
        store_pairs<kEights>(end, first, of_block, 0);
        store_pairs<kEights>(end, second, of_block, 2);
      }
    }
  }

 private:
  // Whether a sum is no number.
  template <int kBlocks, int kEights, bool kMasked, class Sums, class Find>
  __device__ __forceinline__ bool has_special(const Sums& sums, const Find& find) const {
    bool special = false;
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) {
      bool found = false;
#pragma unroll
      for (int e = 0; e < kEights * 2; ++e) {
        const float sum = sums(i / 2, e / 2, i % 2 * 2 + e % 2);
        found = found || sum != sum;
      }
      if constexpr (kMasked) {
        GroupedPixel pixel;
        found = found && find(i / 2, i % 2, pixel);
      }
      special = special || found;
    }
    return special;
  }

  // The pixel's place in its image along a dimension.
  __device__ __forceinline__ int place_of(const GroupedPixel& pixel, int dim) const {
    return of.start[dim] + (tile.at[dim] + pixel.at[dim]) * g.result_step[dim];
  }
  __device__ __forceinline__ bool exists(const GroupedPixel& pixel) const {
    bool inside = tile.image + pixel.image < static_cast<int>(g.conv.n);
#pragma unroll
    for (int dim = 3 - C::kNdim; dim < kSpatialDims; ++dim) {
      const i64 size = Tile::kData ? g.conv.size[dim] : g.conv.out_size[dim];
      inside = inside && place_of(pixel, dim) < static_cast<int>(size);
    }
    return inside;
  }
  template <class Find>
  __device__ __forceinline__ GroupedRow row_of(const Find& find, int block, int half) const {
    const i64* const stride = Tile::kData ? g.conv.x_stride : g.conv.y_stride;
    GroupedPixel pixel;
    const bool has = find(block, half, pixel);
    i64 offset = (tile.image + pixel.image) * stride[kImageN];
#pragma unroll
    for (int dim = 3 - C::kNdim; dim < kSpatialDims; ++dim) {
      offset += place_of(pixel, dim) * stride[kImageD + dim];
    }
    return {offset, has && exists(pixel)};
  }

  __device__ __forceinline__ Place place(const GroupedRow& row, int column, int count) const {
    const bool exists = row.exists && column < columns;
    return {g.result_width > 1 ? row.offset / 2 : row.offset, channel + column, exists ? count : 0};
  }

  // Lanes side by side swap, so that each has four channels of one row.
  template <int kEights, class Sums>
  __device__ __forceinline__ void store_fours(const End& end, const GroupedRow& first,
                                              const GroupedRow& second, const Sums& sums) const {
    const bool odd = (lane & 1) != 0;
    const int own = (lane & 3) * 2;
    const int four = (lane & 2) * 2;
    const auto bits = [&](const GroupedRow& row, int j, int half) {
      return end.finish(place(row, j * 8 + own, 2), sums(j, half * 2), sums(j, half * 2 + 1));
    };
    const auto put = [&](const GroupedRow& row, int column, u32 low, u32 high) {
      if (!row.exists || column >= columns) return;
      auto* const to = static_cast<Out*>(g.conv.out) + row.offset + channel + column;
      *reinterpret_cast<Neighbours<u32, 2>*>(to) = {{low, high}};
    };
#pragma unroll
    for (int j = 0; j + 1 < kEights; j += 2) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const GroupedRow& row = half == 0 ? first : second;
        const u32 mine = bits(row, j, half);
        const u32 next = bits(row, j + 1, half);
        const u32 got = from_neighbour(odd ? mine : next);
        put(row, (j + (odd ? 1 : 0)) * 8 + four, odd ? got : mine, odd ? next : got);
      }
    }
    if constexpr (kEights % 2 != 0) {
      constexpr int kLast = kEights - 1;
      const u32 mine = bits(first, kLast, 0);
      const u32 next = bits(second, kLast, 1);
      const u32 got = from_neighbour(odd ? mine : next);
      put(odd ? second : first, kLast * 8 + four, odd ? got : mine, odd ? next : got);
    }
  }

  template <int kEights, class Sums>
  __device__ __forceinline__ void store_pairs(const End& end, const GroupedRow& row,
                                              const Sums& sums, int half) const {
    if (!row.exists) return;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      const int column = j * 8 + (lane & 3) * 2;
      if (g.result_width > 1) {
        const Place at = place(row, column, 2);
        end.store(end.address(at), end.finish(at, sums(j, half), sums(j, half + 1)), at.count);
      } else {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const Place at = place(row, column + e, 1);
          end.store(end.address(at), end.finish(at, sums(j, half + e), 0), at.count);
        }
      }
    }
  }

  // Every sum anew, of what exists.
  template <int kBlocks, int kEights, class Find>
  __device__ __forceinline__ void store_exact(const Find& find) const {
    const GroupedExact<C> exact{g.conv};
    const ConvResultArguments arguments = conv_result_arguments(g.conv);
    const ConvResult<C> result(arguments, 0);
#pragma unroll 1
    for (int i = 0; i < kBlocks * 2 * kEights * 2; ++i) {
      const int block = i / (4 * kEights);
      const int half = i / (2 * kEights) % 2;
      const int column = i / 2 % kEights * 8 + (lane & 3) * 2 + i % 2;
      GroupedPixel pixel;
      if (!find(block, half, pixel) || !exists(pixel) || column >= columns) continue;
      const float sum =
          exact.image_sum(tile.image + pixel.image, place_of(pixel, kDepth),
                          place_of(pixel, kHeight), place_of(pixel, kWidth), channel + column);
      const GroupedRow row = row_of(find, block, half);
      result.store(row.offset + channel + column, channel + column, sum);
    }
  }
};

}  // namespace tessera::device
