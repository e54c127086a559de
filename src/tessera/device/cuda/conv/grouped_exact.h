// Single sums of a grouped convolution, of the products that exist. Kernels multiply zeros where
// an image ends and where groups share a tile; a sum that is not a number is computed again here.
#pragma once

#include "tessera/device/cuda/conv/grouped_tile.h"

namespace tessera::device {

template <class C>
struct GroupedExact {
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  using X = typename C::X;
  using W = typename C::W;
  using Y = typename C::Y;

  const ConvArguments& g;

  static __device__ __forceinline__ i64 offset_in(const i64* stride, i64 image, i64 group,
                                                  i64 channel, const i64 (&at)[kSpatialDims]) {
    return image * stride[kImageN] + group * stride[kImageG] + channel * stride[kImageC] +
           at[kDepth] * stride[kImageD] + at[kHeight] * stride[kImageH] +
           at[kWidth] * stride[kImageW];
  }
  __device__ __forceinline__ i64 filter_offset(i64 group, i64 k, i64 c,
                                               const i64 (&tap)[kSpatialDims]) const {
    const i64* const stride = g.w_stride;
    return group * stride[kFilterG] + k * stride[kFilterK] + c * stride[kFilterC] +
           tap[kDepth] * stride[kFilterZ] + tap[kHeight] * stride[kFilterY] +
           tap[kWidth] * stride[kFilterX];
  }
  // The tap with this number, the last dimension counting fastest.
  __device__ __forceinline__ void tap_of(i64 index, i64 (&tap)[kSpatialDims]) const {
#pragma unroll
    for (int dim = kSpatialDims - 1; dim >= 0; --dim) {
      const i64 next = index / g.filter[dim];
      tap[dim] = index - next * g.filter[dim];
      index = next;
    }
  }
  // The place in x that a place in y meets by a tap, or the other way round; false: none.
  __device__ __forceinline__ bool meet(const i64 (&at)[kSpatialDims],
                                       const i64 (&tap)[kSpatialDims], bool gives_x,
                                       i64 (&place)[kSpatialDims]) const {
#pragma unroll
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      const i64 moved = tap[dim] * g.dilation[dim] - g.pad[dim];
      i64 x = gives_x ? at[dim] - moved : at[dim] * g.stride[dim] + moved;
      if (gives_x) {
        if (x < 0 || x % g.stride[dim] != 0) return false;
        x /= g.stride[dim];
      }
      if (x < 0 || x >= (gives_x ? g.out_size[dim] : g.size[dim])) return false;
      place[dim] = x;
    }
    return true;
  }

  // forward: of y; backward_data: of x. `channel` counts over all groups.
  __device__ __forceinline__ float image_sum(int image, int depth, int line, int column,
                                             i64 channel) const {
    const i64 at[kSpatialDims] = {depth, line, column};
    const i64 own = kData ? g.c : g.k;
    const i64 group = channel / own;
    channel -= group * own;
    const i64 taps = g.filter[kDepth] * g.filter[kHeight] * g.filter[kWidth];
    const i64* const stride = kData ? g.y_stride : g.x_stride;
    float sum = 0;
#pragma unroll 1
    for (i64 index = 0; index < taps && sum == sum; ++index) {
      i64 tap[kSpatialDims];
      i64 place[kSpatialDims];
      tap_of(index, tap);
      if (!meet(at, tap, kData, place)) continue;
#pragma unroll 1
      for (i64 i = 0; i < (kData ? g.k : g.c); ++i) {
        const i64 from = offset_in(stride, image, group, i, place);
        const i64 with = filter_offset(group, kData ? i : channel, kData ? channel : i, tap);
        float x;
        if constexpr (kData) {
          x = to_float(static_cast<const Y*>(g.y)[from]);
        } else {
          x = to_float(static_cast<const X*>(g.x)[from]);
        }
        sum = fmaf(x, to_float(static_cast<const W*>(g.w)[with]), sum);
      }
    }
    return sum;
  }

  // backward_weight, over all images.
  __device__ __forceinline__ float filter_sum(i64 group, i64 k, i64 c, int of_tap) const {
    i64 tap[kSpatialDims];
    tap_of(of_tap, tap);
    const i64 pixels = g.out_size[kDepth] * g.out_size[kHeight] * g.out_size[kWidth];
    float sum = 0;
#pragma unroll 1
    for (i64 index = 0; index < g.n * pixels && sum == sum; ++index) {
      const i64 image = index / pixels;
      i64 rest = index - image * pixels;
      i64 at[kSpatialDims];
      i64 place[kSpatialDims];
#pragma unroll
      for (int dim = kSpatialDims - 1; dim >= 0; --dim) {
        const i64 next = rest / g.out_size[dim];
        at[dim] = rest - next * g.out_size[dim];
        rest = next;
      }
      if (!meet(at, tap, false, place)) continue;
      const i64 of_x = offset_in(g.x_stride, image, group, c, place);
      const i64 of_y = offset_in(g.y_stride, image, group, k, at);
      sum = fmaf(to_float(static_cast<const X*>(g.x)[of_x]),
                 to_float(static_cast<const Y*>(g.y)[of_y]), sum);
    }
    return sum;
  }
};

}  // namespace tessera::device
