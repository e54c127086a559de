// Grouped convolutions, by w: a row is a channel of x that a tap moves, a column a channel of y,
// and the depth are the pixels of y. Both tiles lie in shared memory as in memory; warps keep their
// sums over all tiles of the block, and warps that share pixels add them up at the end.
#pragma once

#include "tessera/device/cuda/conv/grouped_mma.h"
#include "tessera/device/cuda/conv/grouped_parts.h"

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
  static constexpr int kSums = kBlocks * kEights * 4;                  // of a lane
  static_assert(C::kWarpTileM % 16 == 0 && Tile::kColumns % C::kWarpTileN == 0,
                "warps share the tile");
  using Sums = float[kBlocks][kEights][4];

  const GroupedArguments& g;
  Tile tile;
  GroupedAt at;
  u32 memory;
  int own_block;           // counts the blocks of a part
  int first_unit;          // the block's first part of the sums
  int unit, sharer, lane;  // the warp's part of the sums, and which of its pixels

  __device__ __forceinline__ int buffer_bytes() const { return g.image_bytes + g.other_bytes; }

  // ---- tiles ----

  template <bool kWhole>
  static __device__ __forceinline__ void load_gradient(const GroupedArguments& g,
                                                       const GroupedAt& from, u32 to, int thread) {
    const Tile tile{g};
    const auto* const data = static_cast<const Gradient*>(g.conv.y);
    const int begin = from.part * Tile::kColumns;
    int first[kSpatialDims], size[kSpatialDims];
#pragma unroll
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      first[dim] = from.at[dim];
      size[dim] = static_cast<int>(g.conv.out_size[dim]);
    }
    const auto channels = [&](int chunk, i64& offset) {
      const int product = chunk / (Tile::kColumns / 8);
      const int column = begin + (chunk - product * (Tile::kColumns / 8)) * 8;
      offset = product * g.columns + column;
      return max(tile.channels_left(from.product + product, column, g.columns, g.all_columns), 0);
    };
    const auto at_column = [&](int x, int chunk) { return x * kLineBytes + chunk * 16; };
    const auto at_line = [&](int of, int z, int y) {
      const int plane = C::kNdim == 3 ? of * g.box[kDepth] + z : of;
      return (plane * g.box[kHeight] + y) * g.box[kWidth] * kLineBytes;
    };
    tile.template copy_box<kGradientChunks, C::kThreads, kWhole>(
        typename Tile::template GroupedSource<Gradient>{data, data + i64{from.product} * g.columns,
                                                        g.conv.y_stride, g.box, g.images,
                                                        from.image, g.other_width},
        g.other_lines, first, size, to, thread, channels, at_column, at_line);
    // The places that fill up the last step are zeros.
    constexpr u32 kZeros[4] = {};
    const int results = tile.results();
    const int last = (results + 15) / 16 * 16 * kGradientChunks;
#pragma unroll 1
    for (int i = results * kGradientChunks + thread; i < last; i += C::kThreads) {
      store_chunk(to + i / kGradientChunks * kLineBytes + i % kGradientChunks * 16, kZeros);
    }
  }
  static __device__ __noinline__ void load_gradient_slowly(const GroupedArguments& arguments,
                                                           GroupedAt from, u32 to, int thread) {
    load_gradient<false>(arguments, from, to, thread);
  }
  __device__ __forceinline__ void load(int index, u32 to, int block) const {
    const int thread = static_cast<int>(threadIdx.x);
    const GroupedAt from = tile.find(index, block);
    tile.template load_image<false, C::kThreads>(from, to, thread);
    if (g.other_width == 16) {
      load_gradient<true>(g, from, to + g.image_bytes, thread);
    } else {
      load_gradient_slowly(g, from, to + g.image_bytes, thread);
    }
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

  static constexpr int kVectors = kBlocks * kEights;  // of a warp
  using Parts = GroupedParts<C, C::kThreads, C::kWaveM * kVectors>;

  // The vectors count through the block's warps.
  __device__ __forceinline__ int first_vector() const { return unit % C::kWaveM * kVectors; }

  // Finishes the lane's four sums of a vector: two rows, which are channels of x that a tap moves,
  // of two neighbouring columns each.
  __device__ __forceinline__ void finish(int vector, const float (&sums)[4]) const {
    const int warp = vector / kVectors;
    const int of_warp = vector - warp * kVectors;
    const int block = of_warp / kEights;
    const int of_unit = first_unit + warp;
    const int product = of_unit / (g.row_units * kColumnUnits);
    const int row_unit = of_unit / kColumnUnits % g.row_units;
    const int column = at.part * Tile::kColumns + of_unit % kColumnUnits * C::kWarpTileN +
                       (of_warp - block * kEights) * 8 + (lane & 3) * 2;
    if (product >= Tile::kProducts) return;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int piece = 2 * (row_unit * kBlocks + block) + half;
      const int tap = piece / kChunks;
      const int row = (piece - tap * kChunks) * 8 + lane / 4;
      if (tap >= g.taps || row >= g.depth) continue;
      const float pair[2] = {half == 0 ? sums[0] : sums[2], half == 0 ? sums[1] : sums[3]};
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (column + e < g.columns)
          Parts::finish(g, at.product + product, tap, row, column + e, pair[e]);
      }
    }
  }
  __device__ __forceinline__ void run_part(int part, int block) {
    const int first = min(part * g.tiles_of_part, g.tiles);
    const int last = min(first + g.tiles_of_part, g.tiles);
    at = tile.find(0, block);
    int rows[kBlocks];
    find_rows(rows);
    Sums sums = {};
    const bool active = product() < Tile::kProducts;
    // With two buffers a tile is on its way while the one before is multiplied.
    const int ahead = g.buffers - 1;
#pragma unroll 1
    for (int index = first - ahead; index < last; ++index) {
      const int next = index + ahead;
      if (next < last) load(next, memory + ((next - first) & ahead) * buffer_bytes(), block);
      copies_commit();
      if (index < first) continue;
      if (ahead > 0) {
        copies_wait<1>();
      } else {
        copies_wait<0>();
      }
      __syncthreads();
      if (active) multiply(memory + ((index - first) & ahead) * buffer_bytes(), rows, sums);
      __syncthreads();
    }
    copies_wait<0>();
    if constexpr (C::kWaveN > 1) add_sharers(sums);
    const bool has_sums = sharer == 0 && active;
    if (g.parts > 1) {
      const Parts parts{g, own_block, part, static_cast<int>(threadIdx.x)};
      if (has_sums) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          parts.leave(first_vector() + v, sums[v / kEights][v % kEights]);
        }
      }
      parts.add([&](int vector, const float(&all)[4]) { finish(vector, all); });
      return;
    }
    // All warps finish what those with sums leave in shared memory.
    constexpr int kLane = 16;  // bytes of a lane's vector
    const int warp = static_cast<int>(threadIdx.x) / 32;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kSums; ++e) {
      const u32 to = memory + ((first_vector() + e / 4) * 32 + lane) * kLane + e % 4 * 4;
      if (has_sums) store_shared(to, sums[e / (kEights * 4)][e / 4 % kEights][e % 4]);
    }
    __syncthreads();
#pragma unroll 1
    for (int v = warp; v < C::kWaveM * kVectors; v += C::kThreads / 32) {
      float vector[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        vector[e] = __uint_as_float(load_word(memory + (v * 32 + lane) * kLane + e * 4));
      }
      finish(v, vector);
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
    const int part = take_quotient(index, arguments.by_blocks);
    block.own_block = index;
    const int own = index / arguments.unit_blocks;
    block.first_unit = (index - own * arguments.unit_blocks) * C::kWaveM;
    block.unit += block.first_unit;
    block.run_part(part, own);
  }
};

}  // namespace tessera::device
