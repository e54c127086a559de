// The tiles of grouped kernels: which results a block has, the part of the image that they meet,
// and how threads bring it and the filters to shared memory.
#pragma once

#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/conv/grouped_arguments.h"
#include "tessera/device/cuda/cpasync_tile.h"

namespace tessera::device {

// So many bytes or 16 more: an odd number of chunks of 16 bytes. 8 lines that lie so far from each
// other begin in different banks.
constexpr int odd_chunks(int bytes) { return bytes / 16 % 2 != 0 ? bytes : bytes + 16; }

__device__ __forceinline__ int quotient_of(int value, const GroupedDivisor& d) {
  return d.magic == 0 ? value : static_cast<int>(__umulhi(static_cast<u32>(value), d.magic));
}
// Divides, and leaves the rest in `value`.
__device__ __forceinline__ int take_quotient(int& value, const GroupedDivisor& d) {
  const int quotient = quotient_of(value, d);
  value -= quotient * static_cast<int>(d.by);
  return quotient;
}

// Copies the first `elements` of 8 channels; the others become zero. `safe` is any valid address.
template <class T>
__device__ __forceinline__ void copy_channels(u32 to, const T* from, const T* safe, int elements,
                                              int width) {
  const int bytes = elements * static_cast<int>(sizeof(T));
  if (width == 16) {
    copy_async<16>(to, bytes > 0 ? from : safe, bytes);
  } else if (width == 8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int part = min(max(bytes - i * 8, 0), 8);
      copy_async<8>(to + i * 8, part > 0 ? from + i * 4 : safe, part);
    }
  } else if (width == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int part = min(max(bytes - i * 4, 0), 4);
      copy_async<4>(to + i * 4, part > 0 ? from + i * 2 : safe, part);
    }
  } else {
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 first = i * 2 < elements ? from[i * 2].bits : 0;
      const u32 second = i * 2 + 1 < elements ? from[i * 2 + 1].bits : 0;
      words[i] = second << 16 | first;
    }
    store_chunk(to, words);
  }
}

// Where a block's results begin: the first image, the first index along each dimension, the first
// product, and the part of its columns.
struct GroupedAt {
  int image;
  int at[kSpatialDims];
  int product, part;
};

// A result of a tile: its image and its index along each dimension, from the tile's first ones.
struct GroupedPixel {
  int image;
  int at[kSpatialDims];
};

template <class C>
struct GroupedTile {
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  using Image = typename If<kData, typename C::Y, typename C::X>::Type;
  using Filter = typename C::W;
  using Gradient = typename C::Y;
  static_assert(sizeof(Image) == 2 && sizeof(Filter) == 2, "elements have 16 bits");

  static constexpr int kThreads = C::kThreads;
  static constexpr int kProducts = C::kWarpTileK;  // of a block
  static constexpr int kChannels = C::kTileK;      // of the image, in a product, filled up
  static constexpr int kChunks = kChannels / 8;
  static constexpr int kColumns = C::kTileN;  // of a product that a block has
  static constexpr int kPlaceChunks = kProducts * kChunks;
  static constexpr int kPlaceBytes = odd_chunks(kPlaceChunks * 16);
  static_assert(kChannels % 8 == 0 && kColumns % 8 == 0, "channels come in chunks of 16 bytes");

  const GroupedArguments& g;

  // ---- tiles ----

  // The products count fastest: blocks side by side then read the same pixels.
  __device__ __forceinline__ GroupedAt find(int tile, int block) const {
    GroupedAt to;
    to.product = block / g.column_parts;
    to.part = block - to.product * g.column_parts;
    to.product *= kProducts;
#pragma unroll
    for (int dim = kSpatialDims - 1; dim >= 0; --dim) {
      const int next = tile / g.tiles_across[dim];
      to.at[dim] = (tile - next * g.tiles_across[dim]) * g.box[dim];
      tile = next;
    }
    to.image = tile * g.images;
    return to;
  }
  __device__ __forceinline__ int results() const {
    return g.images * g.box[kDepth] * g.box[kHeight] * g.box[kWidth];
  }
  __device__ __forceinline__ GroupedPixel pixel(int index) const {
    GroupedPixel to;
    to.at[kWidth] = index;
    to.at[kHeight] = take_quotient(to.at[kWidth], g.by_box[kWidth]);
    to.at[kDepth] = take_quotient(to.at[kHeight], g.by_box[kHeight]);
    to.image = take_quotient(to.at[kDepth], g.by_box[kDepth]);
    return to;
  }
  // Where a result's place lies in the tile of the image, in bytes; results that the tile lacks
  // have the last one's.
  __device__ __forceinline__ int place(int index) const {
    const GroupedPixel of = pixel(min(index, results() - 1));
    return of.image * g.image_pitch + of.at[kDepth] * g.pitch[kDepth] +
           of.at[kHeight] * g.pitch[kHeight] + of.at[kWidth] * g.pitch[kWidth];
  }

  // ---- the image ----

  __device__ __forceinline__ const i64* image_stride() const {
    return kData ? g.conv.y_stride : g.conv.x_stride;
  }
  __device__ __forceinline__ const Image* image() const {
    return static_cast<const Image*>(kData ? g.conv.y : g.conv.x);
  }
  __device__ __forceinline__ int image_size(int dim) const {
    return static_cast<int>(kData ? g.conv.out_size[dim] : g.conv.size[dim]);
  }
  // Channels that exist of 8 from `first` on, of a product.
  __device__ __forceinline__ int channels_left(int product, int first, int depth, int all) const {
    return min(min(depth - first, all - product * depth - first), 8);
  }

  // Copies the places of a tile. `kPlanes`: each chunk of channels has a plane of its own.
  template <bool kPlanes, int kCopyThreads>
  __device__ __forceinline__ void load_image(const GroupedAt& from, u32 to, int thread) const {
    if (g.image_width == 16) {
      copy_places<kPlanes, kCopyThreads, true>(from, to, thread);
    } else {
      copy_places<kPlanes, kCopyThreads, false>(from, to, thread);
    }
  }

 private:
  template <bool kPlanes, int kCopyThreads, bool kWhole>
  __device__ __forceinline__ void copy_places(const GroupedAt& from, u32 to, int thread) const {
    const i64* const stride = image_stride();
    int first[kSpatialDims];
#pragma unroll
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      first[dim] = from.at[dim] * g.image_step[dim] + g.origin[dim];
    }
    const Image* const base = image() + from.image * stride[kImageN] +
                              first[kDepth] * stride[kImageD] + first[kHeight] * stride[kImageH] +
                              first[kWidth] * stride[kImageW] + i64{from.product} * g.depth;
    const int images = static_cast<int>(g.conv.n) - from.image;
    const int count = g.places * kPlaceChunks;
    // The warpgroup that only copies has few registers.
#pragma unroll kWhole ? (kPlanes ? 2 : 4) : 1
    for (int i = thread; i < count; i += kCopyThreads) {
      int x = i / kPlaceChunks;
      const int chunk = i - x * kPlaceChunks;
      int y = take_quotient(x, g.by_halo[kWidth]);
      int z = take_quotient(y, g.by_halo[kHeight]);
      int of = 0;
      if constexpr (C::kNdim == 3) {
        of = take_quotient(z, g.by_halo[kDepth]);
      } else {
        of = z;
        z = 0;
      }
      bool exists = of < images &&
                    static_cast<u32>(first[kHeight] + y) < static_cast<u32>(image_size(kHeight)) &&
                    static_cast<u32>(first[kWidth] + x) < static_cast<u32>(image_size(kWidth));
      i64 offset = of * stride[kImageN] + y * stride[kImageH] + x * stride[kImageW];
      int place = of * g.image_pitch;
      if constexpr (C::kNdim == 3) {
        exists =
            exists && static_cast<u32>(first[kDepth] + z) < static_cast<u32>(image_size(kDepth));
        offset += z * stride[kImageD];
        place += take_quotient(z, g.by_step[kDepth]) * g.pitch[kDepth];
        place += z * g.residue[kDepth];
      }
      place += take_quotient(y, g.by_step[kHeight]) * g.pitch[kHeight];
      place += y * g.residue[kHeight];
      place += take_quotient(x, g.by_step[kWidth]) * g.pitch[kWidth];
      place += x * g.residue[kWidth];
      const int product = chunk / kChunks;
      const int channel = (chunk - product * kChunks) * 8;
      const int left = channels_left(from.product + product, channel, g.depth, g.all_depth);
      copy_channels(to + place + (kPlanes ? chunk * g.plane : chunk * 16),
                    base + offset + product * g.depth + channel, image(), exists ? max(left, 0) : 0,
                    kWhole ? 16 : g.image_width);
    }
  }
};

// How a block keeps the filters of its products for forward and backward_data:
// [tap][product][line]. A line holds what lies side by side in memory: forward, the channels of the
// image for a column; backward_data, the columns for a channel of the image.
template <class C>
struct GroupedFilters {
  using Tile = GroupedTile<C>;
  using Filter = typename Tile::Filter;
  static constexpr bool kData = Tile::kData;
  static constexpr int kLines = kData ? Tile::kChannels : Tile::kColumns;
  static constexpr int kLine = kData ? Tile::kColumns : Tile::kChannels;

  const GroupedArguments& g;
  const GroupedAt& from;

  // Channels c of x and k of y that a product has.
  __device__ __forceinline__ int c_of_product() const { return kData ? g.columns : g.depth; }
  __device__ __forceinline__ int k_of_product() const { return kData ? g.depth : g.columns; }

  // Element (k, c) of a product's filter, which is a zero where it belongs to two groups.
  __device__ __forceinline__ u32 element(int product, int k, int c, int tap) const {
    if (k >= k_of_product() || c >= c_of_product()) return 0;
    const int own_k = static_cast<int>(g.conv.k);
    const int own_c = static_cast<int>(g.conv.c);
    const int of_k = k / own_k;
    const int of_c = c / own_c;
    const i64 group = i64{product} * g.together + of_k;
    if (of_k != of_c || group >= g.conv.groups) return 0;
    const i64* const stride = g.conv.w_stride;
    return static_cast<const Filter*>(
               g.conv.w)[group * stride[kFilterG] + (k - of_k * own_k) * stride[kFilterK] +
                         (c - of_c * own_c) * stride[kFilterC] + tap]
        .bits;
  }
  // 8 elements of a line; kWhole: they lie at a multiple of 16 bytes and belong to one group.
  template <bool kWhole>
  __device__ __forceinline__ void copy_chunk(int product, int line, int first, int tap,
                                             u32 to) const {
    const int columns = from.part * Tile::kColumns;  // that other blocks have
    const int k = kData ? line : line + columns;
    const int c = kData ? first + columns : first;
    if constexpr (kWhole) {
      const i64* const stride = g.conv.w_stride;
      const bool exists = product < g.products && k < k_of_product() && c < c_of_product();
      const auto* const filter = static_cast<const Filter*>(g.conv.w);
      copy_async<16>(
          to,
          exists ? filter + product * stride[kFilterG] + k * stride[kFilterK] + c + tap : filter,
          exists ? 16 : 0);
    } else {
      u32 words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = element(product, k, c + i * 2, tap) | element(product, k, c + i * 2 + 1, tap)
                                                             << 16;
      }
      store_chunk(to, words);
    }
  }

  template <bool kWhole, int kCopyThreads, class Place>
  __device__ __forceinline__ void copy_lines(u32 to, int tap_bytes, int thread,
                                             const Place& place) const {
    constexpr int kLineChunks = kLine / 8;
    const int count = Tile::kProducts * kLines * kLineChunks * g.taps;
#pragma unroll kWhole ? 4 : 1
    for (int i = thread; i < count; i += kCopyThreads) {
      int tap = i / kLineChunks;
      const int chunk = i - tap * kLineChunks;
      int line = take_quotient(tap, g.by_taps);
      const int product = line / kLines;
      line -= product * kLines;
      copy_chunk<kWhole>(from.product + product, line, chunk * 8, g.tap[tap].filter,
                         to + tap * tap_bytes + place(product, line, chunk));
    }
  }

  // `place(product, line, chunk)` is where a chunk goes, in bytes from its tap's first one.
  template <int kCopyThreads, class Place>
  __device__ __forceinline__ void load(u32 to, int tap_bytes, int thread, Place place) const {
    if (g.filter_width == 16) {
      copy_lines<true, kCopyThreads>(to, tap_bytes, thread, place);
    } else {
      copy_lines<false, kCopyThreads>(to, tap_bytes, thread, place);
    }
  }
};

}  // namespace tessera::device
