// The filters of grouped kernels for forward and backward_data in shared memory.
#pragma once

#include "tessera/device/cuda/conv/grouped_tile.h"

namespace tessera::device {

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
#pragma unroll 1
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

  // A chunk of the tap number `tap` of the filter, where rows lie side by side without gaps.
  __device__ __forceinline__ void copy_row_chunk(int product, int line, int tap, int chunk,
                                                 u32 to) const {
    const int columns = from.part * Tile::kColumns;  // that other blocks have
    const int k = kData ? line : line + columns;
    const int c = kData ? chunk * 8 + columns : chunk * 8;
    const bool exists =
        from.product + product < g.products && k < k_of_product() && (!kData || c < c_of_product());
    const auto* const filter = static_cast<const Filter*>(g.conv.w);
    const i64 row = i64{from.product + product} * k_of_product() + k;
    copy_async<16>(to, exists ? filter + row * g.row_elements + tap * c_of_product() + c : filter,
                   exists ? 16 : 0);
  }
  // Lines lie `kPitch` bytes from each other. A thread copies the same chunk of every so manieth
  // row.
  template <int kCopyThreads, int kPitch>
  __device__ __forceinline__ void copy_rows(u32 to, int tap_bytes, int thread) const {
    constexpr int kLineChunks = kLine / 8;
    const GroupedLines& lines = g.filter_lines;
    int column = thread;
    const int first = take_quotient(column, lines.by_columns);
    if (first >= lines.at_once) return;
    const int columns = from.part * Tile::kColumns;  // that other blocks have
    const int k_count = k_of_product();
    const int lines_left = kData ? k_count : k_count - columns;
    const int products_left = g.products - from.product;
    const auto* const filter =
        static_cast<const Filter*>(g.conv.w) +
        (i64{from.product} * k_count + (kData ? 0 : columns)) * g.row_elements +
        (kData ? columns : 0);
    const int more = (k_count - kLines) * g.row_elements;  // from one product to the next
    const int at_once = lines.at_once;
    const int row_elements = g.row_elements;
#pragma unroll 1
    for (; column < lines.columns; column += kCopyThreads) {
      const int tap = column / kLineChunks;
      const int chunk = column - tap * kLineChunks;
      const int bytes = !kData || columns + chunk * 8 < c_of_product() ? 16 : 0;
      const auto* const of_column = filter + tap * c_of_product() + chunk * 8;
      const u32 to_column = to + g.slot[tap] * tap_bytes + chunk * 16;
#pragma unroll 4
      for (int row = first; row < Tile::kProducts * kLines; row += at_once) {
        const int product = row / kLines;
        const bool exists = row - product * kLines < lines_left && product < products_left;
        const int offset = row * row_elements + product * more;
        copy_async<16>(to_column + row * kPitch, exists ? of_column + offset : filter,
                       exists ? bytes : 0);
      }
    }
  }

  // Filters that lie in any other way. `place(product, line, chunk)` is where a chunk goes, in
  // bytes from its tap's first one.
  template <int kCopyThreads, class Place>
  static __device__ __noinline__ void load_slowly(const GroupedArguments& arguments, GroupedAt at,
                                                  u32 to, int tap_bytes, int thread, Place place) {
    const GroupedFilters of{arguments, at};
    if (arguments.filter_width == 16) {
      of.copy_lines<true, kCopyThreads>(to, tap_bytes, thread, place);
    } else {
      of.copy_lines<false, kCopyThreads>(to, tap_bytes, thread, place);
    }
  }
};

}  // namespace tessera::device
