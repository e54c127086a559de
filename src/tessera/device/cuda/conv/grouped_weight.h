// Grouped convolutions, by w: a row is a channel of x that a tap moves, a column a channel of y,
// and the depth are the pixels of y. Both tiles lie in shared memory as in memory; warps keep their
// sums over all tiles of the block, and warps that share pixels add them up at the end.
#pragma once

#include "tessera/device/cuda/conv/grouped_exact.h"
#include "tessera/device/cuda/conv/grouped_mma.h"

namespace tessera::device {

template <class C>
class GroupedWeight {
  using Tile = GroupedTile<C>;
  using Image = typename Tile::Image;
  using Gradient = typename Tile::Gradient;
  static constexpr int kChunks = Tile::kChunks;
  static constexpr int kBlocks = C::kWarpTileM / 16;  // of 16 rows, that a warp has
  static constexpr int kEights = C::kWarpTileN / 8;
  static constexpr int kColumnUnits = Tile::kColumns / C::kWarpTileN;
  static constexpr int kGradientChunks = Tile::kProducts * Tile::kColumns / 8;
  static constexpr int kLineBytes = odd_chunks(kGradientChunks * 16);  // of a pixel of y
  static constexpr int kSums = kBlocks * kEights * 4;
  static_assert(C::kWarpTileM % 16 == 0 && Tile::kColumns % C::kWarpTileN == 0,
                "warps share the tile");
  using Sums = float[kBlocks][kEights][4];

  const GroupedArguments& g;
  Tile tile;
  GroupedAt at;
  u32 memory;
  int unit, sharer, lane;  // the warp's part of the sums, and which of its pixels

  __device__ __forceinline__ int buffer_bytes() const { return g.image_bytes + g.other_bytes; }

  // ---- tiles ----

  __device__ __forceinline__ void load_gradient(const GroupedAt& from, u32 to, int thread) const {
    const i64* const stride = g.conv.y_stride;
    const int results = tile.results();
    const int count = (results + 15) / 16 * 16 * kGradientChunks;
    const auto* const data = static_cast<const Gradient*>(g.conv.y);
    const int first = from.part * Tile::kColumns;
#pragma unroll 2
    for (int i = thread; i < count; i += C::kThreads) {
      const int index = i / kGradientChunks;
      const int chunk = i - index * kGradientChunks;
      const GroupedPixel pixel = tile.pixel(index);
      const i64 image = from.image + pixel.image;
      bool exists = index < results && image < g.conv.n;
      i64 offset = image * stride[kImageN];
#pragma unroll
      for (int dim = 3 - C::kNdim; dim < kSpatialDims; ++dim) {
        const i64 place = from.at[dim] + pixel.at[dim];
        exists = exists && place < g.conv.out_size[dim];
        offset += place * stride[kImageD + dim];
      }
      const int product = chunk / (Tile::kColumns / 8);
      const int column = first + (chunk - product * (Tile::kColumns / 8)) * 8;
      const int left = tile.channels_left(from.product + product, column, g.columns, g.all_columns);
      copy_channels(to + index * kLineBytes + chunk * 16,
                    data + offset + i64{from.product + product} * g.columns + column, data,
                    exists ? max(left, 0) : 0, g.other_width);
    }
  }
  __device__ __forceinline__ void load(int index, u32 to, int block) const {
    const int thread = static_cast<int>(threadIdx.x);
    const GroupedAt from = tile.find(index, block);
    tile.template load_image<false, C::kThreads>(from, to, thread);
    load_gradient(from, to + g.image_bytes, thread);
  }

  // ---- products ----

  __device__ __forceinline__ int product() const { return unit / (g.row_units * kColumnUnits); }
  __device__ __forceinline__ int row_unit() const { return unit / kColumnUnits % g.row_units; }
  __device__ __forceinline__ int column() const { return unit % kColumnUnits * C::kWarpTileN; }

  // Where the lane's rows lie, from the place of a pixel. A piece is 8 channels of a tap.
  __device__ __forceinline__ void find_rows(int (&rows)[kBlocks]) const {
    const int pieces = g.taps * kChunks;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int piece = min(2 * (row_unit() * kBlocks + i) + (lane >> 3 & 1), pieces - 1);
      const int tap = piece / kChunks;
      rows[i] = g.tap[tap].image + (piece - tap * kChunks) * 16 + product() * Tile::kChannels * 2;
    }
  }

  __device__ __forceinline__ void multiply(u32 buffer, const int (&rows)[kBlocks],
                                           Sums& sums) const {
    const int steps = (tile.results() + 15) / 16;
    const u32 gradient = buffer + g.image_bytes + (product() * Tile::kColumns + column()) * 2;
#pragma unroll 1
    for (int s = sharer; s < steps; s += C::kWaveN) {
      const u32 x = buffer + tile.place(s * 16 + (lane & 7) + (lane >> 4) * 8);
      const u32 y = gradient + (s * 16 + (lane & 15)) * kLineBytes;
      u32 b[kEights][2];
#pragma unroll
      for (int n = 0; n < kEights; n += 2) {
        const int next = kEights - n >= 2 ? lane >> 4 : 0;
        u32 words[4];
        load_matrices<true>(y + (n + next) * 16, words);
        b[n][0] = words[0];
        b[n][1] = words[1];
        if (n + 1 < kEights) {
          b[n + 1][0] = words[2];
          b[n + 1][1] = words[3];
        }
      }
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        u32 words[4];
        load_matrices<true>(x + rows[i], words);
        const u32 upper[2] = {words[0], words[2]};
        const u32 lower[2] = {words[1], words[3]};
#pragma unroll
        for (int n = 0; n < kEights; ++n) mma<Image>(sums[i][n], upper, lower, b[n]);
      }
    }
  }

  // Adds up the sums of warps that share pixels, in their order; the first of them has them then.
  __device__ __forceinline__ void add_sharers(Sums& sums) const {
    const int own = (static_cast<int>(threadIdx.x) / 32 % C::kWaveM) * 32 + lane;
#pragma unroll 1
    for (int from = 1; from < C::kWaveN; ++from) {
      __syncthreads();
#pragma unroll
      for (int e = 0; e < kSums; ++e) {
        const u32 to = memory + (e * C::kWaveM * 32 + own) * 4;
        if (sharer == from) store_shared(to, sums[e / (kEights * 4)][e / 4 % kEights][e % 4]);
      }
      __syncthreads();
#pragma unroll
      for (int e = 0; e < kSums; ++e) {
        const u32 to = memory + (e * C::kWaveM * 32 + own) * 4;
        if (sharer == 0) {
          sums[e / (kEights * 4)][e / 4 % kEights][e % 4] += __uint_as_float(load_word(to));
        }
      }
    }
  }

  // ---- results ----

  struct Element {
    i64 group, k, c;
    int tap;
    bool exists;
  };
  // Element e of the lane's sums [block][eight][4].
  __device__ __forceinline__ Element element(int block, int eight, int e) const {
    const int piece = 2 * (row_unit() * kBlocks + block) + e / 2;
    const int tap = piece / kChunks;
    const int row = (piece - tap * kChunks) * 8 + lane / 4;
    const int in_product = at.part * Tile::kColumns + column() + eight * 8 + (lane & 3) * 2 + e % 2;
    const int own_c = static_cast<int>(g.conv.c);
    const int own_k = static_cast<int>(g.conv.k);
    const int of_c = row / own_c;
    const int of_k = in_product / own_k;
    const i64 group = i64{at.product + product()} * g.together + of_c;
    const bool exists = tap < g.taps && row < g.depth && in_product < g.columns && of_c == of_k &&
                        group < g.conv.groups && product() < Tile::kProducts;
    return {group, in_product - of_k * own_k, row - of_c * own_c, tap, exists};
  }
  static __device__ __forceinline__ float* partial(const GroupedArguments& g) {
    return reinterpret_cast<float*>(static_cast<char*>(g.workspace) + g.partial_sums);
  }
  static __device__ __forceinline__ i64 elements(const GroupedArguments& g) {
    return g.conv.groups * g.conv.k * g.taps * g.conv.c;
  }
  static __device__ __forceinline__ void finish(const GroupedArguments& g, const Element& of,
                                                float sum) {
    const i64* const stride = g.conv.w_stride;
    if (sum != sum) sum = GroupedExact<C>{g.conv}.filter_sum(of.group, of.k, of.c, of.tap);
    const ConvResultArguments arguments = conv_result_arguments(g.conv);
    ConvResult<C>(arguments, 0)
        .store(of.group * stride[kFilterG] + of.k * stride[kFilterK] + of.c * stride[kFilterC] +
                   g.tap[of.tap].filter,
               0, sum);
  }
  // Parts lie in the workspace as [part][group][k][tap][c].
  __device__ __forceinline__ void put(int part, const Element& of, float sum) const {
    if (!of.exists) return;
    if (g.parts == 1) {
      finish(g, of, sum);
      return;
    }
    const i64 place = ((of.group * g.conv.k + of.k) * g.taps + of.tap) * g.conv.c + of.c;
    partial(g)[part * elements(g) + place] = sum;
  }

  __device__ __forceinline__ void run_part(int part, int block) {
    const int first = static_cast<int>(i64{g.tiles} * part / g.parts);
    const int last = static_cast<int>(i64{g.tiles} * (part + 1) / g.parts);
    at = tile.find(0, block);
    int rows[kBlocks];
    find_rows(rows);
    Sums sums = {};
    const bool active = product() < Tile::kProducts;
    const bool two = g.buffers == 2;
    if (first < last) load(first, memory, block);
    copies_commit();
#pragma unroll 1
    for (int index = first; index < last; ++index) {
      const u32 buffer = memory + (two && ((index - first) & 1) != 0 ? buffer_bytes() : 0);
      if (two) {
        const u32 next = memory + ((index - first) & 1 ? 0 : buffer_bytes());
        if (index + 1 < last) load(index + 1, next, block);
        copies_commit();
        copies_wait<1>();
      } else {
        copies_wait<0>();
      }
      __syncthreads();
      if (active) multiply(buffer, rows, sums);
      __syncthreads();
      if (!two && index + 1 < last) {
        load(index + 1, memory, block);
        copies_commit();
      }
    }
    copies_wait<0>();
    if constexpr (C::kWaveN > 1) add_sharers(sums);
    if (sharer != 0 || !active) return;
    // Each lane reads back what it wrote: the loop is short, and its elements are found once.
    const u32 own = memory + (unit % C::kWaveM * 32 + lane) * 4;
    constexpr int kDistance = C::kWaveM * 32 * 4;
#pragma unroll
    for (int e = 0; e < kSums; ++e) {
      store_shared(own + e * kDistance, sums[e / (kEights * 4)][e / 4 % kEights][e % 4]);
    }
#pragma unroll 1
    for (int e = 0; e < kSums; ++e) {
      const float sum = __uint_as_float(load_word(own + e * kDistance));
      put(part, element(e / (kEights * 4), e / 4 % kEights, e % 4), sum);
    }
  }

  __device__ __forceinline__ GroupedWeight(const GroupedArguments& arguments, u32 shared)
      : g(arguments), tile{arguments}, memory(shared) {
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
    sharer = warp / C::kWaveM;
    unit = warp % C::kWaveM;
    lane = static_cast<int>(threadIdx.x) % 32;
  }

 public:
  static __device__ __forceinline__ void run(const GroupedArguments& arguments) {
    extern __shared__ __align__(128) char shared[];
    GroupedWeight block(arguments, shared_address(shared));
    int index = static_cast<int>(blockIdx.x);
    const int part =
        index / (arguments.unit_blocks * arguments.product_blocks * arguments.column_parts);
    index -= part * (arguments.unit_blocks * arguments.product_blocks * arguments.column_parts);
    const int own = index / arguments.unit_blocks;
    block.unit += (index - own * arguments.unit_blocks) * C::kWaveM;
    block.run_part(part, own);
  }

  // The second step: some threads add up every so manieth part of an element, and the first of them
  // what these found, in their order.
  static __device__ __forceinline__ void run_sum(const GroupedArguments& g) {
    __shared__ float found[C::kThreads];
    constexpr int kElements = C::kThreads / kGroupedLanes;
    const int thread = static_cast<int>(threadIdx.x);
    const int first = thread / kElements;
    const i64 count = elements(g);
    const i64 index = i64{blockIdx.x} * kElements + thread % kElements;
    float sum = 0;
    if (index < count) {
#pragma unroll 4
      for (int part = first; part < g.parts; part += kGroupedLanes) {
        sum += partial(g)[part * count + index];
      }
    }
    found[thread] = sum;
    __syncthreads();
    if (first != 0 || index >= count) return;
#pragma unroll
    for (int i = 1; i < kGroupedLanes; ++i) sum += found[thread + i * kElements];
    Element of;
    i64 rest = index / g.conv.c;
    of.c = index - rest * g.conv.c;
    of.tap = static_cast<int>(rest % g.taps);
    rest /= g.taps;
    of.group = rest / g.conv.k;
    of.k = rest - of.group * g.conv.k;
    finish(g, of, sum);
  }
};

}  // namespace tessera::device
