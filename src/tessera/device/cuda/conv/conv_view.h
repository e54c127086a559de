// A direction of a convolution as products of matrices, one for each group: what a row, a column
// and a step of the depth are, and where their elements lie.
//
// One operand is an image at places that a pixel and a tap name together. The other one has no
// borders: its elements all exist. A backward_data with strides is as many products as there are
// residues of a pixel's place: the pixels of a residue see the same taps, and the next pixel sees
// the next place of y.
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/cuda/types.h"

namespace tessera::device {

// The taps of a filter along one dimension that a product has. Tap i is at place
// filter + i * filter_step of the filter, and moves the place in the image by
// shift + i * shift_step.
struct ConvTaps {
  i64 count, filter, filter_step, shift, shift_step;
};

// One tile of one product. Rows, columns and the depth count within the product.
struct ConvTile {
  i64 group;
  i64 residue[kSpatialDims];  // backward_data: of the pixels' places
  u64 pixels[kSpatialDims];   // how many pixels an image of this product has
  ConvTaps taps[kSpatialDims];
  u64 taps_in_all, channels;  // channels that the depth, or a column of backward_weight, counts
  u64 rows, columns, depth;
  u64 row, column;  // the tile's first ones
};

// How many tiles there are: in all, and of one product along its rows and columns. Where residues
// have products of their own, it is the product with the most rows.
struct ConvTiles {
  u64 rows, columns, count, down, right;
};

// The share of a row, a column or a step of the depth in the place of an element of the image. The
// element exists where the sums of both shares lie inside of the image.
template <int kDims>
struct ConvPlace {
  i64 offset;
  i64 at[kDims];
};

__device__ __forceinline__ u64 take_digit(u64& index, u64 size) {
  const u64 rest = index / size;
  const u64 digit = index - rest * size;
  index = rest;
  return digit;
}
__device__ __forceinline__ u64 divided_up(u64 value, u64 by) { return (value + by - 1) / by; }

template <class C>
struct ConvView {
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  static constexpr int kDims = C::kNdim;
  static constexpr int kFirst = kSpatialDims - kDims;  // the outermost dimension in use
  using Place = ConvPlace<kDims>;

  const ConvArguments& g;

  // ---- the image, its pixels and taps ----

  __device__ __forceinline__ i64 image_size(int dim) const {
    return kData ? g.out_size[dim] : g.size[dim];
  }
  __device__ __forceinline__ const i64* image_stride() const {
    return kData ? g.y_stride : g.x_stride;
  }
  __device__ __forceinline__ const void* image() const { return kData ? g.y : g.x; }
  __device__ __forceinline__ const void* other() const { return kWeight ? g.y : g.w; }
  __device__ __forceinline__ i64 other_group() const {
    return kWeight ? g.y_stride[kImageG] : g.w_stride[kFilterG];
  }
  __device__ __forceinline__ i64 result_group() const {
    return kWeight ? g.w_stride[kFilterG] : kData ? g.x_stride[kImageG] : g.y_stride[kImageG];
  }

  // The residues of a dimension: those that pixels have.
  __device__ __forceinline__ u64 residues(int dim) const {
    return kData ? static_cast<u64>(min(g.stride[dim], g.size[dim])) : 1;
  }
  __device__ __forceinline__ u64 pixels_along(int dim, i64 residue) const {
    if constexpr (!kData) return static_cast<u64>(g.out_size[dim]);
    return divided_up(static_cast<u64>(g.size[dim] - residue), static_cast<u64>(g.stride[dim]));
  }

  __device__ __forceinline__ ConvTaps taps_along(int dim, i64 residue) const {
    const i64 filter = g.filter[dim];
    const i64 dilation = g.dilation[dim];
    const i64 stride = g.stride[dim];
    if constexpr (!kData) return {filter, 0, 1, 0, dilation};
    if (stride == 1) return {filter, 0, 1, residue + g.pad[dim], -dilation};
    i64 divisor = stride;
    for (i64 rest = dilation; rest != 0;) {
      const i64 next = divisor % rest;
      divisor = rest;
      rest = next;
    }
    const i64 step = stride / divisor;
    i64 first = 0;
    i64 place = residue + g.pad[dim];
    for (; first < min(step, filter) && place % stride != 0; ++first) place -= dilation;
    if (first >= min(step, filter)) return {0, 0, 0, 0, 0};
    return {(filter - first + step - 1) / step, first, step, place / stride, -(dilation / divisor)};
  }

  // ---- tiles ----

  __device__ __forceinline__ ConvTiles tiles() const {
    ConvTiles all = {static_cast<u64>(kWeight ? g.k : g.n),
                     static_cast<u64>(kWeight || kData ? g.c : g.k), static_cast<u64>(g.groups)};
#pragma unroll 1
    for (int dim = kFirst; dim < kSpatialDims; ++dim) {
      if constexpr (kWeight) {
        all.columns *= static_cast<u64>(g.filter[dim]);
      } else {
        all.rows *= pixels_along(dim, 0);
      }
      all.count *= residues(dim);
    }
    all.down = divided_up(all.rows, C::kTileM);
    all.right = divided_up(all.columns, C::kTileN);
    all.count *= all.down * all.right;
    return all;
  }

  // Neighbours in this order have their rows in common.
  __device__ __forceinline__ void find(const ConvTiles& all, u64 index, ConvTile& t) const {
    t.column = take_digit(index, all.right) * C::kTileN;
    t.row = take_digit(index, all.down) * C::kTileM;
    t.columns = all.columns;
    t.taps_in_all = 1;
    u64 pixels = static_cast<u64>(g.n);
#pragma unroll 1
    for (int dim = kSpatialDims - 1; dim >= kFirst; --dim) {
      const i64 residue = kData ? static_cast<i64>(take_digit(index, residues(dim))) : 0;
      t.residue[dim] = residue;
      t.pixels[dim] = pixels_along(dim, residue);
      t.taps[dim] = taps_along(dim, residue);
      t.taps_in_all *= static_cast<u64>(t.taps[dim].count);
      pixels *= t.pixels[dim];
    }
    t.group = static_cast<i64>(index);
    t.channels = static_cast<u64>(kData ? g.k : g.c);
    t.rows = kWeight ? static_cast<u64>(g.k) : pixels;
    t.depth = kWeight ? pixels : t.taps_in_all * t.channels;
  }

  // ---- places ----

  // The share of a pixel: in the image, and in `strides` of the tensor that has an element for it.
  __device__ __forceinline__ void pixel(const ConvTile& t, u64 index, const i64* strides,
                                        Place& place, i64& offset) const {
    place.offset = 0;
    offset = 0;
#pragma unroll 1
    for (int dim = kSpatialDims - 1; dim >= kFirst; --dim) {
      const i64 i = static_cast<i64>(take_digit(index, t.pixels[dim]));
      const i64 at = kData ? i : i * g.stride[dim] - g.pad[dim];
      place.at[dim - kFirst] = at;
      place.offset += at * image_stride()[kImageD + dim];
      offset += (kData ? t.residue[dim] + i * g.stride[dim] : i) * strides[kImageD + dim];
    }
    place.offset += static_cast<i64>(index) * image_stride()[kImageN];
    offset += static_cast<i64>(index) * strides[kImageN];
  }

  // The share of a tap and a channel of the image: in the image, and in the filters. Channels count
  // fastest where they lie side by side.
  __device__ __forceinline__ void tap(const ConvTile& t, u64 index, Place& place,
                                      i64& offset) const {
    i64 channel = 0;
    if constexpr (C::kChannelsLast) channel = static_cast<i64>(take_digit(index, t.channels));
    place.offset = 0;
    offset = 0;
#pragma unroll 1
    for (int dim = kSpatialDims - 1; dim >= kFirst; --dim) {
      const ConvTaps& along = t.taps[dim];
      const i64 i = static_cast<i64>(take_digit(index, static_cast<u64>(along.count)));
      const i64 at = along.shift + i * along.shift_step;
      place.at[dim - kFirst] = at;
      place.offset += at * image_stride()[kImageD + dim];
      offset += (along.filter + i * along.filter_step) * g.w_stride[kFilterZ + dim];
    }
    if constexpr (!C::kChannelsLast) channel = static_cast<i64>(index);
    place.offset += channel * image_stride()[kImageC];
    offset += channel * g.w_stride[kData ? kFilterK : kFilterC];
  }

  // The image's line, a row or in backward_weight a column, and where its results lie.
  __device__ __forceinline__ void image_line(const ConvTile& t, u64 index, Place& place,
                                             i64& result) const {
    if constexpr (kWeight) {
      tap(t, index, place, result);
    } else {
      pixel(t, index, kData ? g.x_stride : g.y_stride, place, result);
    }
  }
  // The same of the other operand.
  __device__ __forceinline__ void other_line(u64 index, i64& place, i64& result) const {
    const i64 channel = static_cast<i64>(index);
    if constexpr (kWeight) {
      place = channel * g.y_stride[kImageC];
      result = channel * g.w_stride[kFilterK];
    } else {
      place = channel * g.w_stride[kData ? kFilterC : kFilterK];
      result = channel * (kData ? g.x_stride[kImageC] : g.y_stride[kImageC]);
    }
  }
  // A step of the depth, in the image and in the other operand.
  __device__ __forceinline__ void step(const ConvTile& t, u64 index, Place& place,
                                       i64& other) const {
    if constexpr (kWeight) {
      pixel(t, index, g.y_stride, place, other);
    } else {
      tap(t, index, place, other);
    }
  }
};

}  // namespace tessera::device
