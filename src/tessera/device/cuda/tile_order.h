// The order in which blocks compute the tiles of an output. A group of `group` tiles along the
// first side (negative: along the second side) runs before the next group, so that neighbours share
// operands in L2.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

// The order of tiles that are counted along P and Q.
struct TileOrder {
  struct Tile {
    int p, q, batch;
  };
  int tiles_p, tiles_q, batches, group;

  __device__ __forceinline__ Tile tile(int index) const {
    const int per_batch = tiles_p * tiles_q;
    int batch = 0;
    if (batches > 1) {
      batch = index / per_batch;
      index -= batch * per_batch;
    }
    const bool along_p = group > 0;
    const int width = abs(group);
    const int per_group = width * (along_p ? tiles_q : tiles_p);
    const int first = index / per_group * width;
    const int size = min(width, (along_p ? tiles_p : tiles_q) - first);
    const int rest = index % per_group;
    const int major = first + rest % size;
    const int minor = rest / size;
    return {along_p ? major : minor, along_p ? minor : major, batch};
  }
};

// The first row and column of a block's tile, in 64 bits.
struct TileCorner {
  i64 batch, row, column;
  int slice = 0;  // slice of K
};

// The same order for matrices of any size, with the corners of tiles in 64 bits.
template <int kTileM, int kTileN>
struct CornerOrder {
  u32 tiles_m, tiles_n;
  u64 total;
  int group;

  template <class Arguments>
  __device__ __forceinline__ CornerOrder(const Arguments& g, int raster_group)
      : tiles_m(static_cast<u32>((rows_of(g) + kTileM - 1) / kTileM)),
        tiles_n(static_cast<u32>((columns_of(g) + kTileN - 1) / kTileN)),
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

}  // namespace tessera::device
