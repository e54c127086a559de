// Stores a tile's accumulators to the output through shared memory, so that neighbours are finished
// and stored together, whichever threads computed them.
#pragma once

#include "tessera/device/cuda/epilogue.h"
#include "tessera/device/cuda/tile_order.h"
#include "tessera/device/cuda/tile_sizes.h"

namespace tessera::device {

// A tile of accumulators in shared memory, one row after the other.
template <class C, int kThreads>
struct TileOutput {
  using Acc = typename C::Acc;
  using Out = typename C::Out;
  static constexpr int kRow = C::kTileN + kStagingPad;
  static constexpr int kPairs = C::kTileN / 2;
  // How many pairs of a thread are loaded at a time.
  static constexpr int kAtOnce = C::kNumD > 0 ? 4 : 2;

  static __device__ __forceinline__ void put(Acc* tile, u32 row, u32 column, Acc x) {
    tile[row * kRow + column] = x;
  }

  // Finishes and stores the part of the tile that exists.
  template <class Arguments>
  static __device__ __forceinline__ void store(const Arguments& g, const TileCorner& place,
                                               const Acc* tile, u32 thread) {
    const Finish<C, Arguments> finish(g, place.batch);
    const i64 rows_left = rows_of(g) - place.row;
    const int rows = static_cast<int>(rows_left < C::kTileM ? rows_left : C::kTileM);
    const i64 columns_left = columns_of(g) - place.column;
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
