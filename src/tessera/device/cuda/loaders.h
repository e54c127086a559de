// Loaders of an operand's tiles. A loader stands for one row of tiles along k. fetch(target, step)
// requests this block's part of tile number `step`; the blocks that share the tile fetch it
// together.
#pragma once

#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

// A matrix that a tensor map describes.
template <class OperandTile, int kParts, u64 kPolicy = kEvictNormal>
struct MatrixLoader {
  using Tile = OperandTile;
  static constexpr u64 kHint = kPolicy;  // for L2

  const CudaTensorMap* map;
  int row, batch;
  TileShare share;

  __device__ __forceinline__ void fetch(const TmaTarget& target, int step) const {
    Tile::template load<kParts>(target, map, {row, step * Tile::kDepth, batch}, share);
  }
};

// Tiles that lie in memory one after the other, each with the layout of shared memory.
template <class OperandTile, int kParts, u64 kPolicy = kEvictNormal>
struct PackedLoader {
  using Tile = OperandTile;
  static constexpr u64 kHint = kPolicy;  // for L2

  const char* tiles;  // address of the row's first tile
  TileShare share;

  __device__ __forceinline__ void fetch(const TmaTarget& target, int step) const {
    Tile::template load_packed<kParts>(target, tiles + i64{step} * Tile::kBytes, share);
  }
};

}  // namespace tessera::device
