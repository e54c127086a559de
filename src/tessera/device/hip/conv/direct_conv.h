// Any convolution on the ordinary lanes of an AMD GPU: any size, stride and alignment, counted in
// 64 bits. A lane has one result, and neighbouring lanes have neighbours in memory. The kWaveK
// waves of a workgroup share the products of the same results. Elements are loaded one by one and
// multiplied as fp32, or as int32 modulo 2^32; those outside of the image are left out.
#pragma once

#pragma clang force_cuda_host_device begin
#include "tessera/device/hip/conv/direct_arguments.h"
#pragma clang force_cuda_host_device end
#include "tessera/device/hip/conv/single_result.h"
#include "tessera/device/hip/lanes.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

template <class C>
class DirectConv {
  using Acc = typename C::Acc;
  using Sum = typename If<kSame<Acc, int>, u32, float>::Type;
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  static constexpr int kWaves = C::kWaveK;
  static constexpr int kRun = kLanes;  // results of a workgroup at a time
  static_assert(C::kTileM == kRun && C::kTileN == 1, "a lane has one result");
  static_assert((kWaves & (kWaves - 1)) == 0, "waves take turns by a power of two");

  // The operands that are multiplied: an image, and the filters or in backward_weight y.
  using Image = typename If<kData, typename C::Y, typename C::X>::Type;
  using Other = typename If<kWeight, typename C::Y, typename C::W>::Type;

  // Where a lane's result is: channels within their group. `at` is the pixel, or in backward_weight
  // the tap.
  struct Result {
    i64 n, group, c, k;
    i64 at[kSpatialDims];
  };

  const ConvArguments& g;
  const int wave;

  __device__ __forceinline__ explicit DirectConv(const ConvArguments& arguments)
      : g(arguments),
        wave(__builtin_amdgcn_readfirstlane(static_cast<int>(__builtin_amdgcn_workitem_id_x()) /
                                            kLanes)) {}

  // ---- places ----

  static __device__ __forceinline__ i64 take_digit(u64& index, i64 size) {
    const u64 rest = index / static_cast<u64>(size);
    const u64 digit = index - rest * static_cast<u64>(size);
    index = rest;
    return static_cast<i64>(digit);
  }
  __device__ __forceinline__ void take_place(u64& index, const i64* sizes, Result& r) const {
#pragma unroll
    for (int dim = kSpatialDims - 1; dim >= 0; --dim) r.at[dim] = take_digit(index, sizes[dim]);
  }

  // Results count as they lie in memory without gaps.
  __device__ __forceinline__ Result result_of(u64 index) const {
    Result r{};
    if constexpr (kWeight) {
      if constexpr (C::kChannelsLast) r.c = take_digit(index, g.c);
      take_place(index, g.filter, r);
      if constexpr (!C::kChannelsLast) r.c = take_digit(index, g.c);
      r.k = take_digit(index, g.k);
      r.group = static_cast<i64>(index);
    } else {
      i64& channel = kData ? r.c : r.k;
      const i64 channels = kData ? g.c : g.k;
      if constexpr (!C::kChannelsLast) take_place(index, kData ? g.size : g.out_size, r);
      channel = take_digit(index, channels);
      r.group = take_digit(index, g.groups);
      if constexpr (C::kChannelsLast) take_place(index, kData ? g.size : g.out_size, r);
      r.n = static_cast<i64>(index);
    }
    return r;
  }
  __device__ __forceinline__ u64 results() const {
    u64 all = static_cast<u64>(g.groups);
    all *= static_cast<u64>(kWeight ? g.k * g.c : kData ? g.n * g.c : g.n * g.k);
#pragma unroll
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      all *= static_cast<u64>(kWeight ? g.filter[dim] : kData ? g.size[dim] : g.out_size[dim]);
    }
    return all;
  }

  // Where a pixel's product with a tap reads the image, along one dimension; false: nowhere. In
  // backward_data the pixel is one of x and the image is y.
  __device__ __forceinline__ bool place(int dim, i64 pixel, i64 tap, i64& at) const {
    if constexpr (!kData) {
      at = pixel * g.stride[dim] - g.pad[dim] + tap * g.dilation[dim];
      return static_cast<u64>(at) < static_cast<u64>(g.size[dim]);
    } else {
      at = pixel + g.pad[dim] - tap * g.dilation[dim];
      if (g.stride[dim] != 1) {
        if (at < 0) return false;
        const u64 stride = static_cast<u64>(g.stride[dim]);
        const u64 step = static_cast<u64>(at) / stride;
        if (step * stride != static_cast<u64>(at)) return false;
        at = static_cast<i64>(step);
      }
      return static_cast<u64>(at) < static_cast<u64>(g.out_size[dim]);
    }
  }

  // ---- products ----

  template <class T>
  static __device__ __forceinline__ Sum load(Global<T> p) {
    const T element = bits<T>(*(Global<WordBits<T>>)p);
    if constexpr (kSame<Acc, int>) {
      return static_cast<Sum>(static_cast<int>(element.value));
    } else {
      return to_float(element);
    }
  }

  // A wave has every kWaves-th product, counted through all lines; `first` is its first one of a
  // line of `count`. This is the one of the next line.
  static __device__ __forceinline__ i64 first_of_next(i64 first, i64 count) {
    return (first - count) & (kWaves - 1);
  }

  // The wave's share of the products of all taps and channels.
  __device__ __forceinline__ Sum sum_of_taps(const Result& r) const {
    const i64* const strides = kData ? g.y_stride : g.x_stride;
    const auto image =
        (Global<Image>)(kData ? g.y : g.x) + r.n * strides[kImageN] + r.group * strides[kImageG];
    const auto other = (Global<Other>)g.w + r.group * g.w_stride[kFilterG] +
                       (kData ? r.c * g.w_stride[kFilterC] : r.k * g.w_stride[kFilterK]);
    const i64 count = kData ? g.k : g.c;
    i64 first = wave;
    Sum sum = 0;
#pragma unroll 1
    for (i64 z = 0; z < g.filter[kDepth]; ++z) {
      i64 at[kSpatialDims];
      const bool in_depth = place(kDepth, r.at[kDepth], z, at[kDepth]);
#pragma unroll 1
      for (i64 y = 0; y < g.filter[kHeight]; ++y) {
        const bool in_height = place(kHeight, r.at[kHeight], y, at[kHeight]);
#pragma unroll 1
        for (i64 x = 0; x < g.filter[kWidth]; ++x) {
          const bool is_inside =
              first < count && place(kWidth, r.at[kWidth], x, at[kWidth]) && in_height && in_depth;
          if (is_inside) {
            add_channels(image + offset_of(at, strides + kImageD),
                         other + offset_of({z, y, x}, g.w_stride + kFilterZ), first, count, sum);
          }
          first = first_of_next(first, count);
        }
      }
    }
    return sum;
  }
  static __device__ __forceinline__ i64 offset_of(const i64 (&at)[kSpatialDims],
                                                  const i64* strides) {
    return at[kDepth] * strides[kDepth] + at[kHeight] * strides[kHeight] +
           at[kWidth] * strides[kWidth];
  }
  __device__ __forceinline__ void add_channels(Global<Image> image, Global<Other> other, i64 first,
                                               i64 count, Sum& sum) const {
    const i64 image_step = kData ? g.y_stride[kImageC] : g.x_stride[kImageC];
    const i64 other_step = kData ? g.w_stride[kFilterK] : g.w_stride[kFilterC];
    image += first * image_step;
    other += first * other_step;
#pragma unroll 4
    for (i64 i = first; i < count; i += kWaves) {
      sum += load<Image>(image) * load<Other>(other);
      image += kWaves * image_step;
      other += kWaves * other_step;
    }
  }

  // The wave's share of the products of all pixels of y.
  __device__ __forceinline__ Sum sum_of_pixels(const Result& r) const {
    const auto image =
        (Global<Image>)g.x + r.group * g.x_stride[kImageG] + r.c * g.x_stride[kImageC];
    const auto other =
        (Global<Other>)g.y + r.group * g.y_stride[kImageG] + r.k * g.y_stride[kImageC];
    const i64 count = g.out_size[kWidth];
    i64 first = wave;
    Sum sum = 0;
#pragma unroll 1
    for (i64 n = 0; n < g.n; ++n) {
#pragma unroll 1
      for (i64 d = 0; d < g.out_size[kDepth]; ++d) {
        i64 at[kSpatialDims] = {};
        const bool in_depth = place(kDepth, d, r.at[kDepth], at[kDepth]);
#pragma unroll 1
        for (i64 h = 0; h < g.out_size[kHeight]; ++h) {
          const bool is_inside =
              first < count && place(kHeight, h, r.at[kHeight], at[kHeight]) && in_depth;
          if (is_inside) {
            add_width(image + n * g.x_stride[kImageN] + offset_of(at, g.x_stride + kImageD),
                      other + n * g.y_stride[kImageN] + offset_of({d, h, 0}, g.y_stride + kImageD),
                      r.at[kWidth], first, sum);
          }
          first = first_of_next(first, count);
        }
      }
    }
    return sum;
  }
  __device__ __forceinline__ void add_width(Global<Image> image, Global<Other> other, i64 tap,
                                            i64 first, Sum& sum) const {
    const i64 image_step = g.x_stride[kImageW];
    const i64 other_step = g.y_stride[kImageW];
    i64 at = 0;
    place(kWidth, first, tap, at);
#pragma unroll 4
    for (i64 i = first; i < g.out_size[kWidth]; i += kWaves) {
      if (static_cast<u64>(at) < static_cast<u64>(g.size[kWidth])) {
        sum += load<Image>(image + at * image_step) * load<Other>(other + i * other_step);
      }
      at += kWaves * g.stride[kWidth];
    }
  }

  // ---- results ----

  __device__ __forceinline__ void store(const Result& r, Sum sum) const {
    i64 offset = 0;
    if constexpr (kWeight) {
      const i64* const s = g.w_stride;
      offset = r.group * s[kFilterG] + r.k * s[kFilterK] + r.c * s[kFilterC] +
               offset_of(r.at, s + kFilterZ);
    } else {
      const i64* const s = kData ? g.x_stride : g.y_stride;
      offset = r.n * s[kImageN] + r.group * s[kImageG] + (kData ? r.c : r.k) * s[kImageC] +
               offset_of(r.at, s + kImageD);
    }
    store_result<C>(g, offset, r.group * g.k + r.k, bits<Acc>(sum));
  }

 public:
  static __device__ __forceinline__ void run(const HipDirectConvArguments&) {
    __shared__ Sum shares[kWaves][kRun];
    const HipDirectConvArguments& arguments = fresh_arguments<HipDirectConvArguments>();
    const DirectConv conv(arguments.conv);
    const u64 results = conv.results();
    const int lane = lane_of_wave();
#pragma unroll 1
    for (u64 first = __builtin_amdgcn_workgroup_id_x() * u64{kRun}; first < results;
         first += static_cast<u64>(arguments.blocks) * kRun) {
      const bool exists = first + lane < results;
      const Result r = conv.result_of(exists ? first + lane : results - 1);
      shares[conv.wave][lane] = kWeight ? conv.sum_of_pixels(r) : conv.sum_of_taps(r);
      barrier();
      if (conv.wave == 0 && exists) {
        Sum sum = shares[0][lane];
#pragma unroll
        for (int w = 1; w < kWaves; ++w) sum += shares[w][lane];
        conv.store(r, sum);
      }
      barrier();
    }
  }
};

}  // namespace tessera::device
