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
  return static_cast<int>(__umulhi(static_cast<u32>(value) * 2, d.magic) >> d.shift);
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
    to.part = block;
    to.product = take_quotient(to.part, g.by_parts) * kProducts;
    to.at[kDepth] = 0;
#pragma unroll
    for (int dim = kSpatialDims - 1; dim >= 3 - C::kNdim; --dim) {
      const int next = take_quotient(tile, g.by_tiles_across[dim]);
      to.at[dim] = tile * g.box[dim];
      tile = next;
    }
    if constexpr (C::kNdim == 1) to.at[kHeight] = 0;
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
    to.image = take_quotient(to.at[kHeight], g.by_box[kHeight]);
    to.at[kDepth] = 0;
    if constexpr (C::kNdim == 3) {
      to.at[kDepth] = to.image;
      to.image = take_quotient(to.at[kDepth], g.by_box[kDepth]);
    }
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
      load_places<kPlanes, kCopyThreads, true>(from, to, thread);
    } else if constexpr (kPlanes) {
      // A function of its own would not know how few registers a copying warpgroup has.
      load_places<kPlanes, kCopyThreads, false>(from, to, thread);
    } else {
      load_places_slowly<kPlanes, kCopyThreads>(g, from, to, thread);
    }
  }
  template <bool kPlanes, int kCopyThreads>
  static __device__ __noinline__ void load_places_slowly(const GroupedArguments& arguments,
                                                         GroupedAt from, u32 to, int thread) {
    GroupedTile{arguments}.template load_places<kPlanes, kCopyThreads, false>(from, to, thread);
  }
  template <bool kPlanes, int kCopyThreads, bool kWhole>
  __device__ __forceinline__ void load_places(const GroupedAt& from, u32 to, int thread) const {
    int first[kSpatialDims], size[kSpatialDims];
#pragma unroll
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      first[dim] = from.at[dim] * g.image_step[dim] + g.origin[dim];
      size[dim] = image_size(dim);
    }
    const auto channels = [&](int chunk, i64& offset) {
      const int product = chunk / kChunks;
      const int channel = (chunk - product * kChunks) * 8;
      offset = product * g.depth + channel;
      return max(channels_left(from.product + product, channel, g.depth, g.all_depth), 0);
    };
    const auto at_column = [&](int x, int chunk) {
      const int step = take_quotient(x, g.by_step[kWidth]);
      return step * g.pitch[kWidth] + x * g.residue[kWidth] +
             (kPlanes ? chunk * g.plane : chunk * 16);
    };
    // Without planes the lines of a tile lie one after the other.
    const auto at_line = [&](int of, int z, int y) {
      int place = of * g.image_pitch;
      if constexpr (kPlanes) {
        if constexpr (C::kNdim == 3) place += take_quotient(z, g.by_step[kDepth]) * g.pitch[kDepth];
        place += take_quotient(y, g.by_step[kHeight]) * g.pitch[kHeight];
      }
      if constexpr (C::kNdim == 3) place += z * g.residue[kDepth];
      return place + y * g.residue[kHeight];
    };
    const Image* const base = image() + i64{from.product} * g.depth;
    copy_box<kPlaceChunks, kCopyThreads, kWhole>(
        GroupedSource<Image>{image(), base, image_stride(), g.halo, g.images, from.image,
                             g.image_width},
        g.image_lines, first, size, to, thread, channels, at_column, at_line);
  }

  // A box of places of an image in memory.
  template <class T>
  struct GroupedSource {
    const T* safe;  // any valid address
    const T* data;  // of the block's first channel
    const i64* stride;
    const int* count;  // places along each dimension
    int images;        // of the box
    int image;         // its first one
    int width;         // bytes that are copied at once
  };

  // Copies a box that begins at the places `first` of an image with `size` places.
  // `channels(chunk, offset)` says how many of 8 channels exist, and where they lie.
  template <int kChunksOfPlace, int kCopyThreads, bool kIsWhole, class T, class Channels,
            class AtColumn, class AtLine>
  __device__ __forceinline__ void copy_box(const GroupedSource<T>& from, const GroupedLines& lines,
                                           const int (&first)[kSpatialDims],
                                           const int (&size)[kSpatialDims], u32 to, int thread,
                                           const Channels& channels, const AtColumn& at_column,
                                           const AtLine& at_line) const {
    int column = thread;
    const int line = take_quotient(column, lines.by_columns);
    if (line >= lines.at_once) return;
    const int images = min(from.images, static_cast<int>(g.conv.n) - from.image);
    const int planes = C::kNdim == 3 ? from.count[kDepth] : 1;
    const int height = from.count[kHeight];
    const int at_once = lines.at_once;
    const i64 next = at_once * from.stride[kImageH];
    const int begin_line = first[kHeight];
    const auto lines_there = static_cast<u32>(size[kHeight]);
    const T* const begin =
        from.data + from.image * from.stride[kImageN] + first[kDepth] * from.stride[kImageD] +
        (first[kHeight] + line) * from.stride[kImageH] + first[kWidth] * from.stride[kImageW];
#pragma unroll 1
    for (; column < lines.columns; column += kCopyThreads) {
      const int x = column / kChunksOfPlace;
      const int chunk = column - x * kChunksOfPlace;
      i64 offset;
      int elements = channels(chunk, offset);
      if (static_cast<u32>(first[kWidth] + x) >= static_cast<u32>(size[kWidth])) elements = 0;
      const u32 of_column = to + at_column(x, chunk);
      const T* const column_data = begin + x * from.stride[kImageW] + offset;
#pragma unroll 1
      for (int plane = 0; plane < from.images * planes; ++plane) {
        const int of = C::kNdim == 3 ? plane / planes : plane;
        const int z = C::kNdim == 3 ? plane - of * planes : 0;
        int own = of < images ? elements : 0;
        if (static_cast<u32>(first[kDepth] + z) >= static_cast<u32>(size[kDepth])) own = 0;
        const T* data = column_data + of * from.stride[kImageN] + z * from.stride[kImageD];
#pragma unroll kIsWhole ? 4 : 1
        for (int y = line; y < height; y += at_once) {
          const bool exists = static_cast<u32>(begin_line + y) < lines_there;
          const u32 place = of_column + at_line(of, z, y);
          if constexpr (kIsWhole) {
            // Nothing is read where nothing exists.
            copy_async<16>(place, data, exists && own > 0 ? 16 : 0);
          } else {
            copy_channels(place, data, from.safe, exists ? own : 0, from.width);
          }
          data += next;
        }
      }
    }
  }
};

}  // namespace tessera::device
