// Where the operands of a convolution's products lie, for loaders that copy chunks. The place of an
// element is the sum of two places: its line's and its step's along the depth.
#pragma once

#include "tessera/device/cuda/conv/conv_view.h"
#include "tessera/device/cuda/conv/gather_arguments.h"

namespace tessera::device {

// A mixed-radix number, the fastest digit first. The last digit has no end: a number beyond all
// sizes has a last digit that is at least its size.
template <int kCount>
struct Digits {
  int of[kCount];

  static __device__ __forceinline__ Digits split(u32 index, const int (&sizes)[kCount]) {
    Digits digits;
#pragma unroll
    for (int i = 0; i + 1 < kCount; ++i) {
      const u32 rest = index / static_cast<u32>(sizes[i]);
      digits.of[i] = static_cast<int>(index - rest * static_cast<u32>(sizes[i]));
      index = rest;
    }
    digits.of[kCount - 1] = static_cast<int>(index);
    return digits;
  }
  __device__ __forceinline__ void add(const Digits& more, const int (&sizes)[kCount]) {
    int carry = 0;
#pragma unroll
    for (int i = 0; i + 1 < kCount; ++i) {
      const int sum = of[i] + more.of[i] + carry;
      carry = sum >= sizes[i] ? 1 : 0;
      of[i] = carry != 0 ? sum - sizes[i] : sum;
    }
    of[kCount - 1] += more.of[kCount - 1] + carry;
  }
};

// Added to the place in a run of what does not exist: the sum is below 0, whatever is added to it.
inline constexpr int kNowhere = -(1 << 30);

// The place of the first element of a chunk, or a share of it.
template <int kDims>
struct alignas(8) GatherPlace {
  i64 offset;  // elements
  int run;
  int at[kDims > 0 ? kDims : 1];  // the place in an image, the width first
};

template <int kDims>
__device__ __forceinline__ GatherPlace<kDims> operator+(const GatherPlace<kDims>& a,
                                                        const GatherPlace<kDims>& b) {
  GatherPlace<kDims> sum;
  sum.offset = a.offset + b.offset;
  sum.run = a.run + b.run;
#pragma unroll
  for (int i = 0; i < (kDims > 0 ? kDims : 1); ++i) sum.at[i] = a.at[i] + b.at[i];
  return sum;
}

// One tile of one product, of the pixels with one residue.
struct GatherTile {
  int product;
  int residue[kSpatialDims];
  int pixels[kSpatialDims + 1];  // sizes of the digits of a pixel: width, height, depth, images
  int steps[kSpatialDims + 1];   // of a tap: its run, x, y, z
  int taps[kSpatialDims];        // how many taps a product has along z, y, x; see ConvTaps
  int filter[kSpatialDims], filter_step[kSpatialDims], shift[kSpatialDims];
  int shift_step[kSpatialDims];
  u32 rows, columns, depth;  // with what fills up runs
  u32 row, column;           // the tile's first ones
};

template <class C>
struct GatherPlaces {
  using View = ConvView<C>;
  static constexpr bool kData = View::kData;
  static constexpr bool kWeight = View::kWeight;
  static constexpr int kDims = C::kNdim;
  static constexpr int kFirst = View::kFirst;
  using Image = typename If<kData, typename C::Y, typename C::X>::Type;
  using Other = typename If<kWeight, typename C::Y, typename C::W>::Type;
  using ImagePlace = GatherPlace<kDims>;
  using OtherPlace = GatherPlace<0>;
  using Index = Digits<kDims + 1>;

  // Along which side an operand's chunks lie, and its lines: the depth or the rows and columns.
  static constexpr bool kImageAlongDepth = C::kChannelsLast != kWeight;
  static constexpr bool kOtherAlongDepth =
      C::kDirection == ConvDirection::forward || (kWeight && !C::kChannelsLast);
  static constexpr int kPerChunk = 16 / static_cast<int>(sizeof(Image));
  // A line of pixels ends with a whole chunk where chunks consist of pixels.
  static constexpr int kPixelUnit = C::kChannelsLast ? 1 : kPerChunk;

  const GatherArguments& a;
  const GatherTile& t;

  static __device__ __forceinline__ int padded(int size, int unit) {
    return (size + unit - 1) / unit * unit;
  }

  // ---- tiles ----

  static __device__ __forceinline__ void find(const GatherArguments& a, u32 index, GatherTile& t) {
    const View view{a.conv};
    t.column = index % static_cast<u32>(a.tiles_right) * C::kTileN;
    index /= static_cast<u32>(a.tiles_right);
    t.row = index % static_cast<u32>(a.tiles_down) * C::kTileM;
    index /= static_cast<u32>(a.tiles_down);
    u32 pixels = static_cast<u32>(a.conv.n);
    u32 taps = static_cast<u32>(a.padded_run);
    t.steps[0] = a.padded_run;
#pragma unroll 1
    for (int dim = kSpatialDims - 1; dim >= kFirst; --dim) {
      const u32 residues = static_cast<u32>(view.residues(dim));
      t.residue[dim] = static_cast<int>(index % residues);
      index /= residues;
      const int along = static_cast<int>(view.pixels_along(dim, t.residue[dim]));
      const bool is_width = dim == kSpatialDims - 1;
      t.pixels[kSpatialDims - 1 - dim] = is_width ? padded(along, kPixelUnit) : along;
      pixels *= static_cast<u32>(t.pixels[kSpatialDims - 1 - dim]);
      const ConvTaps of = view.taps_along(dim, t.residue[dim]);
      t.taps[dim] = is_width && a.taps_in_run != 0 ? 1 : static_cast<int>(of.count);
      t.filter[dim] = static_cast<int>(of.filter);
      t.filter_step[dim] = static_cast<int>(of.filter_step);
      t.shift[dim] = static_cast<int>(of.shift);
      t.shift_step[dim] = static_cast<int>(of.shift_step);
      t.steps[kSpatialDims - dim] = t.taps[dim];
      taps *= static_cast<u32>(t.taps[dim]);
    }
    t.pixels[kDims] = static_cast<int>(a.conv.n);
    t.product = static_cast<int>(index);
    const u32 channels = static_cast<u32>((kData ? a.conv.c : a.conv.k) * a.together);
    t.rows = kWeight ? channels : pixels;
    t.columns = kWeight ? taps : channels;
    t.depth = kWeight ? pixels : taps;
  }

  // The sizes of a pixel's and of a tap's digits, as many as count.
  struct Sizes {
    int of[kDims + 1];
  };
  __device__ __forceinline__ Sizes pixel_sizes() const {
    Sizes sizes;
#pragma unroll
    for (int i = 0; i <= kDims; ++i) sizes.of[i] = t.pixels[i];
    return sizes;
  }
  __device__ __forceinline__ Sizes tap_sizes() const {
    Sizes sizes;
#pragma unroll
    for (int i = 0; i <= kDims; ++i) sizes.of[i] = t.steps[i];
    return sizes;
  }
  __device__ __forceinline__ Sizes depth_sizes() const {
    return kWeight ? pixel_sizes() : tap_sizes();
  }

  // ---- the share of a pixel, and of a tap and its place in the run ----

  // `offset` is in `strides` of the tensor that has an element for each pixel.
  __device__ __forceinline__ bool pixel(const Index& digits, const i64* strides, ImagePlace& place,
                                        i64& offset) const {
    const i64* const image = View{a.conv}.image_stride();
    place.offset = digits.of[kDims] * image[kImageN];
    offset = digits.of[kDims] * strides[kImageN];
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      const int dim = kSpatialDims - 1 - i;
      const int stride = static_cast<int>(a.conv.stride[dim]);
      const int digit = digits.of[i];
      const int at = kData ? digit : digit * stride - static_cast<int>(a.conv.pad[dim]);
      place.offset += at * image[kImageD + dim];
      place.at[i] = i == 0 ? at * a.at_scale : at;
      if (i == 0) place.run = at * a.run_scale;
      offset += (kData ? t.residue[dim] + digit * stride : digit) * strides[kImageD + dim];
    }
    const bool exists = digits.of[kDims] < t.pixels[kDims];
    if (!exists) place.run = kNowhere;
    return exists;
  }

  // `offset` is in the filters, without the channel.
  __device__ __forceinline__ bool tap(const Index& digits, ImagePlace& place, i64& offset) const {
    const i64* const image = View{a.conv}.image_stride();
    const int channel = digits.of[0] - a.lead;
    place.offset = channel * (a.taps_in_run != 0 ? 1 : image[kImageC]);
    offset = 0;
#pragma unroll
    for (int i = 0; i < kDims; ++i) {
      const int dim = kSpatialDims - 1 - i;
      const int digit = digits.of[i + 1];
      const int at = t.shift[dim] + digit * t.shift_step[dim];
      place.offset += at * image[kImageD + dim];
      place.at[i] = i == 0 ? at * a.at_scale : at;
      if (i == 0) place.run = C::kChannelsLast ? channel : at;
      offset += (t.filter[dim] + digit * t.filter_step[dim]) * a.conv.w_stride[kFilterZ + dim];
    }
    const bool exists = digits.of[kDims] < t.steps[kDims] && (C::kChannelsLast || channel < a.run);
    if (!exists) place.run = kNowhere;
    return exists;
  }

  // ---- lines and steps ----

  // Row or column `index` of the product that is a line of the image or the first of a chunk, and
  // its share in the place of a result. Results exist where the groups of a row and of a column are
  // equal; they are 0 where a product's rows belong to all columns.
  __device__ __forceinline__ void image_line(u32 index, ImagePlace& place, i64& result,
                                             int& group) const {
    if constexpr (kWeight) {
      const Index digits = Index::split(index, tap_sizes().of);
      const bool exists = tap(digits, place, result);
      const int channel = digits.of[0] - a.lead;
      const int channels = static_cast<int>(a.conv.c);
      group = a.taps_in_run != 0 ? 0 : channel / channels;
      result += i64{channel - group * channels} * a.conv.w_stride[kFilterC];
      if (!exists || channel < 0 || channel >= a.run) group = -2;
    } else {
      const int width = kSpatialDims - 1;
      const Index digits = Index::split(index, pixel_sizes().of);
      const bool exists =
          pixel(digits, kData ? a.conv.x_stride : a.conv.y_stride, place, result) &&
          (C::kChannelsLast ||
           digits.of[0] < static_cast<int>(View{a.conv}.pixels_along(width, t.residue[width])));
      group = exists ? 0 : -2;
    }
  }

  // The same of the other operand, whose rows or columns are channels: of y in forward and
  // backward_weight, of x in backward_data.
  __device__ __forceinline__ void other_line(u32 index, OtherPlace& place, i64& result,
                                             int& group) const {
    const ConvArguments& g = a.conv;
    const int channels = static_cast<int>(kData ? g.c : g.k);
    const int i = static_cast<int>(index);
    const int of = i / channels;
    const i64 in_group = i - of * channels;
    place.at[0] = 0;
    if constexpr (C::kDirection == ConvDirection::forward) {
      const i64 first = of * g.c;
      place.offset = of * g.w_stride[kFilterG] + in_group * g.w_stride[kFilterK] -
                     first * g.w_stride[kFilterC];
      place.run = -static_cast<int>(first);
      result = i * g.y_stride[kImageC];
    } else if constexpr (kData) {
      place.offset = i * g.w_stride[kFilterC];
      place.run = i;
      result = i * g.x_stride[kImageC];
    } else {
      place.offset = i * g.y_stride[kImageC];
      place.run = C::kChannelsLast ? i : 0;
      result = of * g.w_stride[kFilterG] + in_group * g.w_stride[kFilterK];
    }
    group = kWeight ? of : 0;
    if (of < a.together) return;
    group = -1;
    place.run = kNowhere;
  }

  // A step of the depth.
  __device__ __forceinline__ void step(const Index& digits, ImagePlace& image,
                                       OtherPlace& other) const {
    const ConvArguments& g = a.conv;
    other.at[0] = 0;
    if constexpr (kWeight) {
      const bool exists = pixel(digits, g.y_stride, image, other.offset);
      other.run = !exists ? kNowhere : C::kChannelsLast ? 0 : digits.of[0];
    } else {
      const bool exists = tap(digits, image, other.offset);
      const int channel = digits.of[0] - a.lead;
      if constexpr (kData) {
        const int channels = static_cast<int>(g.k);
        const int group = channel / channels;
        const int first = group * static_cast<int>(g.c);
        other.offset += group * g.w_stride[kFilterG] +
                        (channel - group * channels) * g.w_stride[kFilterK] -
                        first * g.w_stride[kFilterC];
        other.run = exists && channel < a.run ? -first : kNowhere;
      } else {
        other.offset += channel * g.w_stride[kFilterC];
        other.run = exists ? channel : kNowhere;
      }
    }
  }

  // The elements before the first result of the tile's product.
  __device__ __forceinline__ i64 product_result() const {
    return i64{t.product} * a.together * View{a.conv}.result_group();
  }
};

// The places of a tile's rows and columns, and of their results.
template <class C>
struct GatherLines {
  using Places = GatherPlaces<C>;
  static constexpr bool kWeight = Places::kWeight;
  static constexpr int kImageLines = kWeight ? C::kTileN : C::kTileM;
  static constexpr int kOtherLines = kWeight ? C::kTileM : C::kTileN;

  typename Places::ImagePlace image[kImageLines];
  typename Places::OtherPlace other[kOtherLines];
  i64 image_result[kImageLines], other_result[kOtherLines];
  int image_group[kImageLines], other_group[kOtherLines];

  __device__ __forceinline__ void find(const Places& in, int thread, int threads) {
    const u32 first_image = kWeight ? in.t.column : in.t.row;
    const u32 first_other = kWeight ? in.t.row : in.t.column;
#pragma unroll 1
    for (int i = thread; i < kImageLines; i += threads) {
      in.image_line(first_image + i, image[i], image_result[i], image_group[i]);
    }
#pragma unroll 1
    for (int i = thread; i < kOtherLines; i += threads) {
      in.other_line(first_other + i, other[i], other_result[i], other_group[i]);
    }
  }
  __device__ __forceinline__ bool has(u32 row, u32 column) const {
    return image_group[kWeight ? column : row] == other_group[kWeight ? row : column];
  }
  // Elements from the product's first result.
  __device__ __forceinline__ i64 result(u32 row, u32 column) const {
    return image_result[kWeight ? column : row] + other_result[kWeight ? row : column];
  }
};

}  // namespace tessera::device
