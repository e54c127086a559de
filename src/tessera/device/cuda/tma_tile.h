// One operand's tile in shared memory in the layout that wgmma reads, and how the copy engine fills
// it. A tile consists of slabs of 128-byte lines. They are swizzled so that the 16-byte pieces of a
// column lie in different banks for eight lines:
//   k contiguous:     slab = 128 bytes of k for every row; a line is one row
//   rows contiguous:  slab = 64 rows for every k; a line is one k       (16-bit types only)
#pragma once

#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/device/cuda/tma.h"

namespace tessera::device {

inline constexpr int kAtomBytes = 8 * kLineBytes;  // bytes after which the swizzle repeats
inline constexpr int kWgmmaBytesK = 32;

// The place of a tile: its first row and k, and its batch.
struct TilePlace {
  int row, k, batch;
};

// The part of a tile that a block of a cluster fetches for all blocks that share the tile.
struct TileShare {
  int part;
  u16 mask;  // the blocks that share it
};

template <class T, int kRows, int kTileK, bool kKContiguous>
struct OperandTile {
  using Element = T;
  static constexpr int kDepth = kTileK;
  static constexpr bool kAlongK = kKContiguous;
  static constexpr int kPerLine = kLineBytes / static_cast<int>(sizeof(T));
  static_assert(kTileK % (kKContiguous ? kPerLine : 8) == 0,
                "tile_k must be whole lines of 128 bytes, or whole atoms of lines");
  static_assert(kKContiguous || sizeof(T) == 2, "wgmma transposes 16-bit operands only");

  static constexpr int kSlabs =
      kKContiguous ? kTileK / kPerLine : (kRows + kPerLine - 1) / kPerLine;
  static constexpr int kLines = kKContiguous ? kRows : kTileK;  // lines of a slab
  static constexpr int kSlabBytes = kLines * kLineBytes;
  static constexpr int kBytes = operand_bytes(kRows, kTileK, sizeof(T), kKContiguous);
  static_assert(kBytes == kSlabs * kSlabBytes, "slabs make up the tile");

  // The upper bits of a matrix descriptor: a swizzle of 128 bytes, consecutive atoms, and, when
  // rows are contiguous, the distance of a slab to the next 64 rows.
  static constexpr u64 kDescriptor =
      u64{1} << 62 | u64{kAtomBytes >> 4} << 32 | u64{kKContiguous ? 1 : kSlabBytes >> 4} << 16;

  static __device__ __forceinline__ u64 descriptor(u32 tile) {
    return kDescriptor | (tile & 0x3ffff) >> 4;
  }

  // The difference of descriptors between the tile's start and block `block` of 64 rows, step
  // `step` of 32 bytes of k.
  static constexpr int descriptor_offset(int block, int step) {
    constexpr int kSteps = kLineBytes / kWgmmaBytesK;
    constexpr int kStepElements = kWgmmaBytesK / static_cast<int>(sizeof(T));
    const int bytes = kKContiguous ? step / kSteps * kSlabBytes + step % kSteps * kWgmmaBytesK +
                                         block * kWgmmaRows * kLineBytes
                                   : block * kSlabBytes + step * kStepElements * kLineBytes;
    return bytes >> 4;
  }

  // Fetches one of kParts equal parts of the tile: a share of the lines of every slab.
  template <int kParts>
  static __device__ __forceinline__ void load(TmaTarget target, const CudaTensorMap* map,
                                              const TilePlace& place, const TileShare& share) {
    constexpr int kShare = kLines / kParts;
    static_assert(kShare * kParts == kLines && kShare % 8 == 0, "parts must be whole atoms");
    const int first = share.part * kShare;
    target.mask = share.mask;
    target.to += first * kLineBytes;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const int along = slab * kPerLine;
      const int x = kKContiguous ? place.k + along : place.row + along;
      const int y = kKContiguous ? place.row + first : place.k + first;
      tma_load<(kParts > 1)>(target, TmaBox<3>{map, {x, y, place.batch}});
      target.to += kSlabBytes;
    }
  }

  // The same from memory in which tiles have the layout of shared memory.
  template <int kParts>
  static __device__ __forceinline__ void load_packed(TmaTarget target, const char* tile,
                                                     const TileShare& share) {
    constexpr int kShare = kBytes / kParts;
    static_assert(kShare * kParts == kBytes && kShare % 16 == 0, "parts must be whole 16 bytes");
    target.mask = share.mask;
    target.to += share.part * kShare;
    bulk_load<(kParts > 1)>(target, tile + share.part * kShare, kShare);
  }
};

}  // namespace tessera::device
