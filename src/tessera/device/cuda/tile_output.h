// The way of a tile's accumulators to the output: through shared memory, so that neighbours are
// finished and stored together whatever thread computed them; and the order of tiles.
#pragma once

#include "tessera/device/cuda/epilogue.h"

namespace tessera::device {

// Which tile a block computes. Tiles of `group` rows run down before they run right, so that blocks
// at work at the same time share operands in L2; a negative group exchanges the two.
struct TileCorner {
  i64 batch, row, column;
  int slice = 0;  // of K
};

template <int kTileM, int kTileN>
struct TileOrder {
  u32 tiles_m, tiles_n;
  u64 total;
  int group;

  __device__ __forceinline__ TileOrder(const GemmArguments& g, int raster_group)
      : tiles_m(static_cast<u32>((g.m + kTileM - 1) / kTileM)),
        tiles_n(static_cast<u32>((g.n + kTileN - 1) / kTileN)),
        total(u64{tiles_m} * tiles_n * static_cast<u64>(g.batch)),
        group(raster_group) {}

  __device__ __forceinline__ TileCorner corner(u64 index) const {
    const u64 per_batch = u64{tiles_m} * tiles_n;
    const u64 batch = index / per_batch;
    const u32 in_batch = static_cast<u32>(index - batch * per_batch);
    const bool by_rows = group > 0;
    const u32 down = by_rows ? tiles_m : tiles_n;
    const u32 right = by_rows ? tiles_n : tiles_m;
    const u32 height = min(static_cast<u32>(by_rows ? group : -group), down);
    const u32 band = in_batch / (height * right);
    const u32 in_band = in_batch - band * height * right;
    const u32 rows = min(height, down - band * height);
    const u32 x = in_band / rows;
    const u32 y = band * height + in_band - x * rows;
    const i64 row = i64{by_rows ? y : x} * kTileM;
    const i64 column = i64{by_rows ? x : y} * kTileN;
    return {static_cast<i64>(batch), row, column, 0};
  }
};

// A tile of accumulators in shared memory, one row after the other.
template <class C, int kThreads>
struct TileOutput {
  using Acc = typename C::Acc;
  using Out = typename C::Out;
  static constexpr int kPad = 8;  // rows start 8 banks apart
  static constexpr int kRow = C::kTileN + kPad;
  static constexpr int kBytes = C::kTileM * kRow * 4;
  static constexpr int kPairs = C::kTileN / 2;
  // Pairs of a thread whose loads are in flight together.
  static constexpr int kAtOnce = C::kNumD > 0 ? 4 : 2;

  static __device__ __forceinline__ void put(Acc* tile, u32 row, u32 column, Acc x) {
    tile[row * kRow + column] = x;
  }

  // Finishes and stores the part of the tile that exists.
  static __device__ __forceinline__ void store(const GemmArguments& g, const TileCorner& place,
                                               const Acc* tile, u32 thread) {
    const Finish<C> finish(g, place.batch);
    const i64 rows_left = g.m - place.row;
    const int rows = static_cast<int>(rows_left < C::kTileM ? rows_left : C::kTileM);
    const i64 columns_left = g.n - place.column;
    const int columns = static_cast<int>(columns_left < C::kTileN ? columns_left : C::kTileN);
#pragma unroll 1
    for (u32 first = thread; first < static_cast<u32>(rows) * kPairs; first += kThreads * kAtOnce) {
      PairBits<Out> pairs[kAtOnce];
      Place places[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const u32 index = first + i * kThreads;
        const int row = static_cast<int>(index / kPairs);
        const int column = static_cast<int>(index % kPairs) * 2;
        const int count = row < rows ? columns - column : 0;
        places[i] = {place.row + row, place.column + column, count};
        if (count <= 0) continue;
        const Acc* from = tile + row * kRow + column;
        pairs[i] = finish.finish(places[i], from[0], from[1]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (places[i].count > 0) finish.store(finish.address(places[i]), pairs[i], places[i].count);
      }
    }
  }
};

}  // namespace tessera::device
