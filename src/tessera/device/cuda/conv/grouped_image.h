// Grouped convolutions, forward and by x: the filters of a block's products and the part of the
// image that its tile meets lie in shared memory, and a tap moves where warps read the image.
#pragma once

#include "tessera/device/cuda/conv/grouped_store.h"

namespace tessera::device {

template <class C>
class GroupedImage {
  using Tile = GroupedTile<C>;
  using Filters = GroupedFilters<C>;
  using Image = typename Tile::Image;
  static constexpr bool kData = Tile::kData;
  static constexpr int kChannels = Tile::kChannels;
  static constexpr int kBlocks = C::kWarpTileM / 16;             // of 16 results, that a warp has
  static constexpr int kEights = C::kWarpTileN / 8;              // of columns
  static constexpr int kUnits = Tile::kColumns / C::kWarpTileN;  // of a product
  static constexpr int kLineBytes = odd_chunks(Filters::kLine * 2);
  static constexpr int kTapBytes = Tile::kProducts * Filters::kLines * kLineBytes;
  static constexpr int kRound = C::kWaveM * C::kWarpTileM;  // results of a block at a time
  static_assert(C::kWarpTileM % 16 == 0 && Tile::kColumns % C::kWarpTileN == 0,
                "warps share the tile");
  using Sums = float[kBlocks][kEights][4];

  const GroupedArguments& g;
  Tile tile;
  GroupedAt at;
  u32 image, filters;  // in shared memory
  int warp, lane;

  // The products of 16 channels of the image, or 8: one tap's, or with 8 channels those of two
  // taps. `filter` and `image_at` are the lane's own.
  template <bool kFull>
  __device__ __forceinline__ void multiply(u32 filter, const u32 (&places)[kBlocks], int image_at,
                                           Sums& sums) const {
    u32 b[kEights][2];
#pragma unroll
    for (int n = 0; n < kEights; n += 2) {
      const int next = kEights - n >= 2 ? (lane >> 4) * 8 : 0;
      u32 words[4];
      load_matrices<kData>(filter + (n * 8 + next) * (kData ? 2 : kLineBytes), words);
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
      load_matrices<false>(places[i] + image_at, words);
      const u32 upper[2] = {words[0], words[2]};
      const u32 lower[2] = {words[1], words[3]};
#pragma unroll
      for (int n = 0; n < kEights; ++n) {
        if constexpr (kFull) {
          mma<Image>(sums[i][n], upper, lower, b[n]);
        } else {
          mma_half<Image>(sums[i][n], upper[0], lower[0], b[n][0]);
        }
      }
    }
  }

  // The lane's first address of a filter: a full step has 16 channels, which lie along a line or
  // across the lines.
  __device__ __forceinline__ u32 filter_lane(int product, int column, bool full) const {
    const u32 first = filters + product * Filters::kLines * kLineBytes;
    if constexpr (kData) {
      return first + (lane & (full ? 15 : 7)) * kLineBytes + column * 2;
    } else {
      return first + (column + (lane & 7)) * kLineBytes + (full ? (lane >> 3 & 1) * 16 : 0);
    }
  }

  __device__ __forceinline__ void add_class(const GroupedClass& of, int product, int column,
                                            const u32 (&places)[kBlocks], Sums& sums) const {
    const int upper = lane >> 4;
    const u32 half = filter_lane(product, column, false) + of.first_tap * kTapBytes;
    if constexpr (kChannels == 8) {
      const u32 both = half + (lane >> 3 & 1) * kTapBytes;
      int t = 0;
#pragma unroll 1
      for (; t + 1 < of.taps; t += 2) {
        const int first = g.tap[of.first_tap + t].image;
        const int second = g.tap[of.first_tap + t + 1].image;
        multiply<true>(both + t * kTapBytes, places, upper != 0 ? second : first, sums);
      }
      if (t < of.taps) {
        multiply<false>(half + t * kTapBytes, places, g.tap[of.first_tap + t].image, sums);
      }
    } else {
      const u32 full = filter_lane(product, column, true) + of.first_tap * kTapBytes;
      constexpr int kStep = kData ? 16 * kLineBytes : 32;  // of 16 channels
#pragma unroll 1
      for (int t = 0; t < of.taps; ++t) {
        const int moved = g.tap[of.first_tap + t].image;
#pragma unroll
        for (int s = 0; s < kChannels / 16; ++s) {
          multiply<true>(full + t * kTapBytes + s * kStep, places, moved + s * 32 + upper * 16,
                         sums);
        }
        if constexpr (kChannels % 16 != 0) {
          constexpr int kWhole = kChannels / 16;
          multiply<false>(half + t * kTapBytes + kWhole * kStep, places, moved + kWhole * 32, sums);
        }
      }
    }
  }

  // The pixels of a lane's rows, which lie 8 apart.
  struct RowsOfBlocks {
    Tile tile;
    int first, results;
    __device__ __forceinline__ bool operator()(int block, int half, GroupedPixel& pixel) const {
      const int row = first + block * 16 + half * 8;
      pixel = tile.pixel(row);
      return row < results;
    }
  };

  // Units are classes, products and parts of their columns; a warp takes every so manieth.
  __device__ __forceinline__ void run_unit(int index) const {
    const int class_index = index / (Tile::kProducts * kUnits);
    const int unit = index - class_index * (Tile::kProducts * kUnits);
    const int product = unit / kUnits;
    const int column = (unit - product * kUnits) * C::kWarpTileN;
    const GroupedClass& of = g.of_class[class_index];
    const int results = tile.results();
    const GroupedStore<C> store(g, at, of, product, column, C::kWarpTileN, lane);
#pragma unroll 1
    for (int first = warp % C::kWaveM * C::kWarpTileM; first < results; first += kRound) {
      u32 places[kBlocks];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        places[i] = image + tile.place(first + i * 16 + (lane & 15)) + product * kChannels * 2;
      }
      Sums sums = {};
      add_class(of, product, column, places, sums);
      store.template store<kBlocks, kEights, false>(
          [&](int b, int j, int e) { return sums[b][j][e]; },
          RowsOfBlocks{tile, first + lane / 4, results});
    }
  }

  __device__ __forceinline__ GroupedImage(const GroupedArguments& arguments, u32 memory)
      : g(arguments),
        tile{arguments},
        image(memory),
        filters(memory + arguments.image_bytes),
        warp(uniform(static_cast<int>(threadIdx.x) / 32)),
        lane(static_cast<int>(threadIdx.x) % 32) {}

 public:
  static __device__ __forceinline__ void run(const GroupedArguments& arguments) {
    extern __shared__ __align__(128) char memory[];
    GroupedImage block(arguments, shared_address(memory));
    const int blocks = arguments.product_blocks * arguments.column_parts;
    const int tile_index = static_cast<int>(blockIdx.x) / blocks;
    block.at = block.tile.find(tile_index, static_cast<int>(blockIdx.x) - tile_index * blocks);
    const int thread = static_cast<int>(threadIdx.x);
    const Filters of{arguments, block.at};
    of.template load<C::kThreads>(
        block.filters, kTapBytes, thread, [](int product, int line, int chunk) {
          return (product * Filters::kLines + line) * kLineBytes + chunk * 16;
        });
    block.tile.template load_image<false, C::kThreads>(block.at, block.image, thread);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    const int units = arguments.classes * Tile::kProducts * kUnits;
#pragma unroll 1
    for (int unit = block.warp / C::kWaveM; unit < units; unit += C::kWaveN) block.run_unit(unit);
  }
};

}  // namespace tessera::device
