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

// kJoined: products of a warp; with more than one, each has 8 columns here.
template <class C, int kJoined>
class GroupedStore {
  using Tile = GroupedTile<C>;
  using Config = ConvResultConfig<C>;
  using Out = typename Config::Out;
  using End = Finish<Config, GroupedResultArguments>;
  static_assert(sizeof(Out) == 2, "results have 16 bits");

  const GroupedArguments& g;
  GroupedAt tile;
  int begin[kSpatialDims];  // where the tile begins in its image
  int room[kSpatialDims];   // how many of its results exist along each dimension
  i64 offset;               // of that in memory
  int channel, columns;     // of the warp: the first over all groups, and how many exist
  int lane;

 public:
  // The warp has the columns from `column` on of the tile's product number `product`.
  __device__ __forceinline__ GroupedStore(const GroupedArguments& arguments, const GroupedAt& at,
                                          const GroupedClass& of, int product, int column,
                                          int own_lane)
      : g(arguments), tile(at), lane(own_lane) {
    const i64* const stride = Tile::kData ? g.conv.x_stride : g.conv.y_stride;
    offset = at.image * stride[kImageN];
#pragma unroll
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      begin[dim] = of.start[dim] + at.at[dim] * g.result_step[dim];
      const auto size = static_cast<int>(Tile::kData ? g.conv.size[dim] : g.conv.out_size[dim]);
      const int left = max(size - begin[dim] + g.result_step[dim] - 1, 0);
      room[dim] = Tile::kData ? quotient_of(left, g.by_result_step[dim]) : left;
      if (dim >= 3 - C::kNdim) offset += begin[dim] * stride[kImageD + dim];
    }
    const int first = at.part * C::kTileN + column;
    channel = (at.product + product) * arguments.columns + first;
    columns = min(min(kJoined * arguments.columns - first, arguments.all_columns - channel),
                  kJoined * C::kWarpTileN);
  }

  // Stores a warp's sums: `sums(b, j, e)` is a lane's element e of block b of 16 rows and of eight
  // columns j; `find(b, half, pixel)` finds the pixels of its two rows, and says whether the tile
  // has them. kMasked: rows that the tile lacks hold anything.
  template <int kBlocks, int kEights, bool kMasked, class Sums, class Find>
  __device__ __forceinline__ void store(const Sums& sums, const Find& find) const {
    const bool is_special = any_of_warp(has_special<kBlocks, kEights, kMasked>(sums, find));
    if (is_special || g.result_width < 4 || g.conv.beta != 0) {
      Copied<kBlocks, kEights> copied;
#pragma unroll
      for (int i = 0; i < kBlocks * kEights * 4; ++i) {
        const int b = i / (kEights * 4);
        copied.x[b][i / 4 % kEights][i % 4] = sums(b, i / 4 % kEights, i % 4);
      }
      store_slowly(*this, find, copied, is_special);
      return;
    }
    store_eights<kBlocks, kEights>(sums, find);
  }

 private:
  template <int kBlocks, int kEights>
  struct Copied {
    float x[kBlocks][kEights][4];
  };
  // What few launches need is a function of its own, so that the text of the others is short: when
  // a kernel starts, its text comes from memory.
  template <int kBlocks, int kEights, class Find>
  static __device__ __noinline__ void store_slowly(GroupedStore store, Find find,
                                                   const Copied<kBlocks, kEights>& sums,
                                                   bool is_special) {
    if (is_special) {
      store.template store_exact<kBlocks, kEights>(find);
      return;
    }
    const GroupedResultArguments arguments = grouped_result(store.g);
    const End end(arguments, 0);
#pragma unroll 1
    for (int i = 0; i < kBlocks * 2; ++i) {
      const int b = i / 2;
      store.template store_pairs<kEights>(
          end, store.row_of(find, b, i % 2), [&](int j, int e) { return sums.x[b][j][e]; },
          i % 2 * 2);
    }
  }

  // Whether a sum is no number.
  template <int kBlocks, int kEights, bool kMasked, class Sums, class Find>
  __device__ __forceinline__ bool has_special(const Sums& sums, const Find& find) const {
    bool special = false;
#pragma unroll
    for (int i = 0; i < kBlocks * kEights * 4; ++i) {
      const float sum = sums(i / (kEights * 4), i / 4 % kEights, i % 4);
      special = special || sum != sum;
    }
    if constexpr (!kMasked) return special;
    if (!special) return false;
    special = false;
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) {
      bool found = false;
#pragma unroll
      for (int e = 0; e < kEights * 2; ++e) {
        const float sum = sums(i / 2, e / 2, i % 2 * 2 + e % 2);
        found = found || sum != sum;
      }
      GroupedPixel pixel;
      special = special || (found && find(i / 2, i % 2, pixel));
    }
    return special;
  }

  // Where the eight columns number j begin, from `channel` on, and how many of them exist.
  __device__ __forceinline__ int begin_of(int j) const {
    return kJoined > 1 ? j * g.columns : j * 8;
  }
  __device__ __forceinline__ int left_of(int j) const {
    if constexpr (kJoined == 1) return columns - j * 8;
    return min(g.columns, columns - begin_of(j));
  }

  // The pixel's place in its image along a dimension.
  __device__ __forceinline__ int place_of(const GroupedPixel& pixel, int dim) const {
    return begin[dim] + pixel.at[dim] * g.result_step[dim];
  }
  __device__ __forceinline__ bool exists(const GroupedPixel& pixel) const {
    bool inside = tile.image + pixel.image < static_cast<int>(g.conv.n);
#pragma unroll
    for (int dim = 3 - C::kNdim; dim < kSpatialDims; ++dim) {
      inside = inside && pixel.at[dim] < room[dim];
    }
    return inside;
  }
  template <class Find>
  __device__ __forceinline__ GroupedRow row_of(const Find& find, int block, int half) const {
    GroupedPixel pixel;
    const bool has = find(block, half, pixel);
    i64 at = offset + pixel.image * g.image_distance;
#pragma unroll
    for (int dim = 3 - C::kNdim; dim < kSpatialDims; ++dim) {
      at += i64{pixel.at[dim]} * g.result_distance[dim];
    }
    return {at, has && exists(pixel)};
  }

  // `column` counts from the beginning of the eight columns number j.
  __device__ __forceinline__ Place place(const GroupedRow& row, int j, int column,
                                         int count) const {
    const bool exists = row.exists && column < left_of(j);
    return {g.result_width > 1 ? row.offset / 2 : row.offset, channel + begin_of(j) + column,
            exists ? count : 0};
  }

  // Four lanes side by side have two channels each of two rows. They swap, so that each has eight
  // channels of one row. There is no C to be added.
  template <int kBlocks, int kEights, class Sums, class Find>
  __device__ __forceinline__ void store_eights(const Sums& sums, const Find& find) const {
    const GroupedResultArguments arguments = grouped_result(g);
    const End end(arguments, 0);
    const bool odd = (lane & 1) != 0;
    const bool upper = (lane & 2) != 0;
    const bool at_once = g.result_width == 8;
    Out* const out = static_cast<Out*>(g.conv.out) + channel;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const GroupedRow row = row_of(find, b, upper ? 1 : 0);
      const auto bits = [&](int j, int half) {
        // Only matrices that are added need the rows that the lane does not store.
        GroupedRow of = row;
        if constexpr (Config::kNumD > 0) of = row_of(find, b, half);
        return end.rounded(place(of, j, (lane & 3) * 2, 2),
                           end.scaled(sums(b, j, half * 2), sums(b, j, half * 2 + 1)));
      };
      Out* const to = out + row.offset;
#pragma unroll
      for (int j = 0; j + 1 < kEights; j += 2) {
        u32 words[4];
        transpose(odd, upper, {bits(j, 0), bits(j + 1, 0), bits(j, 1), bits(j + 1, 1)}, words);
        const int left = odd ? left_of(j + 1) : left_of(j);
        if (!row.exists || left <= 0) continue;
        Out* const here = to + (odd ? begin_of(j + 1) : begin_of(j));
        if (at_once) {
          store_global(here, words);
        } else {
          store_words(here, words[0], words[1]);
          if (left > 4) store_words(here + 4, words[2], words[3]);
        }
      }
      if constexpr (kEights % 2 != 0) {
        // Half of the last eight is a lane's.
        constexpr int kLast = kEights - 1;
        const u32 first = bits(kLast, 0);
        const u32 second = bits(kLast, 1);
        const u32 got = from_neighbour(odd ? first : second);
        const u32 low = from_swapped(odd ? got : first, lane);
        const u32 high = from_swapped(odd ? second : got, lane);
        const int four = odd ? 4 : 0;
        if (row.exists && four < left_of(kLast)) {
          store_words(to + begin_of(kLast) + four, low, high);
        }
      }
    }
  }
  // Word i of each of four lanes goes to the lane i of them.
  struct FourWords {
    u32 x[4];
  };
  static __device__ __forceinline__ void transpose(bool odd, bool upper, const FourWords& w,
                                                   u32 (&to)[4]) {
    const u32 first = from_neighbour(odd ? w.x[0] : w.x[1]);
    const u32 second = from_neighbour(odd ? w.x[2] : w.x[3]);
    const u32 low[2] = {odd ? first : w.x[0], odd ? w.x[1] : first};
    const u32 high[2] = {odd ? second : w.x[2], odd ? w.x[3] : second};
    const u32 got[2] = {from_second_next(upper ? low[0] : high[0]),
                        from_second_next(upper ? low[1] : high[1])};
    to[0] = upper ? got[0] : low[0];
    to[1] = upper ? got[1] : low[1];
    to[2] = upper ? high[0] : got[0];
    to[3] = upper ? high[1] : got[1];
  }

  template <int kEights, class Sums>
  __device__ __forceinline__ void store_pairs(const End& end, const GroupedRow& row,
                                              const Sums& sums, int half) const {
    if (!row.exists) return;
#pragma unroll 1
    for (int j = 0; j < kEights; ++j) {
      const int column = (lane & 3) * 2;
      if (g.result_width > 1) {
        const Place at = place(row, j, column, 2);
        end.store(end.address(at), end.finish(at, sums(j, half), sums(j, half + 1)), at.count);
      } else {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const Place at = place(row, j, column + e, 1);
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
      const int j = i / 2 % kEights;
      const int column = (lane & 3) * 2 + i % 2;
      GroupedPixel pixel;
      if (!find(block, half, pixel) || !exists(pixel) || column >= left_of(j)) continue;
      const int at = channel + begin_of(j) + column;
      const float sum = exact.image_sum(tile.image + pixel.image, place_of(pixel, kDepth),
                                        place_of(pixel, kHeight), place_of(pixel, kWidth), at);
      const GroupedRow row = row_of(find, block, half);
      result.store(row.offset + at, at, sum);
    }
  }
};

}  // namespace tessera::device
