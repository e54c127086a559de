// Grouped convolutions, forward and by x: the filters of a block's products and the part of the
// image that its tile meets lie in shared memory, and a tap moves where warps read the image.
#pragma once

#include "tessera/device/cuda/conv/grouped_filters.h"
#include "tessera/device/cuda/conv/grouped_store.h"

namespace tessera::device {

template <class C>
class GroupedImage {
  using Tile = GroupedTile<C>;
  using Filters = GroupedFilters<C>;
  using Image = typename Tile::Image;
  static constexpr bool kData = Tile::kData;
  static constexpr int kChannels = Tile::kChannels;
  static constexpr int kBlocks = C::kWarpTileM / 16;  // of 16 results, that a warp has
  static constexpr int kEights = C::kWarpTileN / 8;   // of columns
  // Two products of 8 columns are a warp's, so that it stores 32 bytes side by side.
  static constexpr int kJoined = Tile::kColumns == 8 && Tile::kProducts % 2 == 0 ? 2 : 1;
  static constexpr int kUnits = Tile::kColumns / C::kWarpTileN;  // of a product
  static constexpr int kUnitProducts = Tile::kProducts / kJoined;
  static constexpr int kLineBytes = odd_chunks(Filters::kLine * 2);
  static constexpr int kProductBytes = Filters::kLines * kLineBytes;
  static constexpr int kTapBytes =
      grouped_tap_bytes(Tile::kProducts * Filters::kLines, kLineBytes, Filters::kLine / 8);
  static constexpr int kRound = C::kWaveM * C::kWarpTileM;  // results of a block at a time
  static_assert(C::kWarpTileM % 16 == 0 && Tile::kColumns % C::kWarpTileN == 0,
                "warps share the tile");
  using Sums = float[kBlocks][kEights * kJoined][4];

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
    u32 b[kEights * kJoined][2];
#pragma unroll
    for (int n = 0; n < kEights; n += 2) {
      const int next = kEights - n >= 2 ? (lane >> 4) * 8 : 0;
      u32 words[4];
      load_matrices<kData>(kJoined == 2 ? filter + (lane >> 4) * kProductBytes
                                        : filter + (n * 8 + next) * (kData ? 2 : kLineBytes),
                           words);
      b[n][0] = words[0];
      b[n][1] = words[1];
      if (n + 1 < kEights * kJoined) {
        b[n + 1][0] = words[2];
        b[n + 1][1] = words[3];
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocks * kJoined; ++i) {
      const int block = i / kJoined;
      const int product = i % kJoined;
      u32 words[4];
      load_matrices<false>(places[block] + image_at + product * kChannels * 2, words);
      const u32 upper[2] = {words[0], words[2]};
      const u32 lower[2] = {words[1], words[3]};
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
        const int n = product * kEights + j;
        if constexpr (kFull) {
          mma<Image>(sums[block][n], upper, lower, b[n]);
        } else {
          mma_half<Image>(sums[block][n], upper[0], lower[0], b[n][0]);
        }
      }
    }
  }

  // The lane's first address of a filter: a full step has 16 channels, which lie along a line or
  // across the lines.
  __device__ __forceinline__ u32 filter_lane(int product, int column, bool full) const {
    const u32 first = filters + product * kProductBytes;
    if constexpr (kData) {
      return first + (lane & (full ? 15 : 7)) * kLineBytes + column * 2;
    } else {
      return first + (column + (lane & 7)) * kLineBytes + (full ? (lane >> 3 & 1) * 16 : 0);
    }
  }

  // kTaps: how many the class has, where text is to be unrolled; 0: any number.
  template <int kTaps>
  __device__ __forceinline__ void add_taps(const GroupedClass& of, int product, int column,
                                           const u32 (&places)[kBlocks], Sums& sums) const {
    // Without residues there is one class.
    const int first = kData ? of.first_tap : 0;
    const int taps = kTaps > 0 ? kTaps : of.taps;
    const int upper = lane >> 4;
    const u32 half = filter_lane(product, column, false) + first * kTapBytes;
    if constexpr (kChannels == 8) {
      const u32 both = half + (lane >> 3 & 1) * kTapBytes;
#pragma unroll kTaps> 0 ? kTaps : 1
      for (int t = 0; t < taps; t += 2) {
        const int here = g.tap[first + t].image;
        if (t + 1 < taps) {
          const int next = g.tap[first + t + 1].image;
          multiply<true>(both + t * kTapBytes, places, upper != 0 ? next : here, sums);
        } else {
          multiply<false>(half + t * kTapBytes, places, here, sums);
        }
      }
    } else {
      const u32 full = filter_lane(product, column, true) + first * kTapBytes;
      constexpr int kStep = kData ? 16 * kLineBytes : 32;  // of 16 channels
#pragma unroll kTaps> 0 ? kTaps : 1
      for (int t = 0; t < taps; ++t) {
        const int moved = g.tap[first + t].image;
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
  __device__ __forceinline__ void add_class(const GroupedClass& of, int product, int column,
                                            const u32 (&places)[kBlocks], Sums& sums) const {
    // Text of many channels would not fit into the cache of instructions.
    constexpr bool kFew = kChannels <= 32;
    if (kFew && of.taps == 9) {
      add_taps<kFew ? 9 : 0>(of, product, column, places, sums);
    } else if (kFew && kData && of.taps == 4) {
      add_taps<kFew && kData ? 4 : 0>(of, product, column, places, sums);
    } else if (kFew && kData && of.taps == 2) {
      add_taps<kFew && kData ? 2 : 0>(of, product, column, places, sums);
    } else {
      add_taps<0>(of, product, column, places, sums);
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
    const int class_index = index / (kUnitProducts * kUnits);
    const int unit = index - class_index * (kUnitProducts * kUnits);
    const int product = unit / kUnits * kJoined;
    const int column = unit % kUnits * C::kWarpTileN;
    const GroupedClass& of = g.of_class[class_index];
    const int results = tile.results();
#pragma unroll 1
    for (int first = warp % C::kWaveM * C::kWarpTileM; first < results; first += kRound) {
      u32 places[kBlocks];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        places[i] = image + tile.place(first + i * 16 + (lane & 15)) + product * kChannels * 2;
      }
      Sums sums = {};
      add_class(of, product, column, places, sums);
      const GroupedStore<C, kJoined> store(g, at, of, product, column, lane);
      store.template store<kBlocks, kEights * kJoined, false>(
          [&](int b, int j, int e) { return sums[b][j][e]; },
          RowsOfBlocks{tile, first + lane / 4, results});
    }
  }

  __device__ __forceinline__ GroupedImage(const GroupedArguments& arguments, u32 memory)
      : g(arguments),
        tile{arguments},
        image(memory),
        filters(memory + arguments.buffers * arguments.image_bytes),
        warp(uniform(static_cast<int>(threadIdx.x) / 32)),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  __device__ __forceinline__ void load_filters(int thread) const {
    const Filters of{g, at};
    if (g.row_elements > 0) {
      of.template copy_rows<C::kThreads, kLineBytes>(filters, kTapBytes, thread);
    } else {
      Filters::template load_slowly<C::kThreads>(
          g, at, filters, kTapBytes, thread, [](int product, int line, int chunk) {
            return product * kProductBytes + line * kLineBytes + chunk * 16;
          });
    }
  }

 public:
  // A block keeps its filters and walks over tiles. With two buffers the next tile is on its way
  // while warps multiply one.
  static __device__ __forceinline__ void run(const GroupedArguments& arguments) {
    extern __shared__ __align__(128) char memory[];
    const u32 ring = shared_address(memory);
    GroupedImage block(arguments, ring);
    const int thread = static_cast<int>(threadIdx.x);
    int own = static_cast<int>(blockIdx.x);
    const int walker = take_quotient(own, arguments.by_blocks);
    const int ahead = arguments.buffers - 1;
    const int units = arguments.classes * kUnitProducts * kUnits;
    int turn = -ahead;
#pragma unroll 1
    for (int index = walker - ahead * arguments.walkers; index < arguments.tiles;
         index += arguments.walkers, ++turn) {
      const int next = index + ahead * arguments.walkers;
      if (next < arguments.tiles) {
        block.tile.template load_image<false, C::kThreads>(
            block.tile.find(next, own), ring + ((turn + ahead) & ahead) * arguments.image_bytes,
            thread);
      }
      if (turn == -ahead) {
        block.at = block.tile.find(walker, own);
        block.load_filters(thread);
      }
      copies_commit();
      if (turn < 0) continue;
      if (ahead > 0) {
        copies_wait<1>();
      } else {
        copies_wait<0>();
      }
      __syncthreads();
      block.at = block.tile.find(index, own);
      block.image = ring + (turn & ahead) * arguments.image_bytes;
#pragma unroll 1
      for (int unit = block.warp / C::kWaveM; unit < units; unit += C::kWaveN) block.run_unit(unit);
      if (index + arguments.walkers < arguments.tiles) __syncthreads();
    }
  }
};

}  // namespace tessera::device
