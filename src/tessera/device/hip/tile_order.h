// The order in which workgroups compute the tiles of an output. Neighbours in the grid run on
// different compute dies (XCDs), each with an L2 of its own, so each die gets a run of neighbouring
// tiles instead. Within that order, a group of `group` tiles along m (negative: along n) runs
// before the next group. There are less than 2^31 tiles, slices included.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

struct HipTile {
  int row, column;  // of the tile's first element
  int batch, slice;
  int index;  // without slices
};

template <class C>
struct HipTileOrder {
  u32 tiles_m, tiles_n, total;
  int group;

  template <class Arguments>
  __device__ __forceinline__ HipTileOrder(const Arguments& g, int raster_group)
      : tiles_m((static_cast<u32>(rows_of(g)) + C::kTileM - 1) / C::kTileM),
        tiles_n((static_cast<u32>(columns_of(g)) + C::kTileN - 1) / C::kTileN),
        total(tiles_m * tiles_n * static_cast<u32>(g.batch) * C::kSlices),
        group(raster_group) {}

  __device__ __forceinline__ HipTile tile(u32 index) const {
    if constexpr (C::kXcds > 1) {
      const u32 die = index % C::kXcds, each = total / C::kXcds, left = total % C::kXcds;
      index = die * each + (die < left ? die : left) + index / C::kXcds;
    }
    const u32 whole = index / C::kSlices;
    const u32 batch = whole / (tiles_m * tiles_n);
    const u32 in_batch = whole - batch * (tiles_m * tiles_n);
    const bool by_rows = group > 0;
    const u32 down = by_rows ? tiles_m : tiles_n;
    const u32 right = by_rows ? tiles_n : tiles_m;
    const u32 asked = static_cast<u32>(by_rows ? group : -group);
    const u32 height = asked < down ? asked : down;
    const u32 band = in_batch / (height * right);
    const u32 in_band = in_batch - band * height * right;
    const u32 rows = height < down - band * height ? height : down - band * height;
    const u32 x = in_band / rows;
    const u32 y = band * height + in_band - x * rows;
    return {static_cast<int>((by_rows ? y : x) * C::kTileM),
            static_cast<int>((by_rows ? x : y) * C::kTileN), static_cast<int>(batch),
            static_cast<int>(index % C::kSlices), static_cast<int>(whole)};
  }
};

}  // namespace tessera::device
