// One operand's tile in shared memory as wgmma reads it, and how the copy engine brings it there.
// A tile is made of slabs of 128-byte lines, swizzled so that eight lines of a column of 16-byte
// pieces lie in different banks:
//   k contiguous:     slab = 128 bytes of k for every row; a line is one row
//   rows contiguous:  slab = 64 rows for every k; a line is one k       (16-bit types only)
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

inline constexpr int kLineBytes = 128;
inline constexpr int kAtomBytes = 8 * kLineBytes;  // after this the swizzle repeats
inline constexpr int kWgmmaRows = 64;
inline constexpr int kWgmmaBytesK = 32;

// Where a block fetches from: the tile's first row and k, its batch.
struct TilePlace {
  int row, k, batch;
};

// What part of a tile a block of a cluster fetches for all that share it.
struct TileShare {
  int part;
  u16 mask;  // the blocks that share it
};

template <class T, int kRows, int kTileK, bool kKContiguous>
struct OperandTile {
  static constexpr int kPerLine = kLineBytes / static_cast<int>(sizeof(T));
  static_assert(kTileK % kPerLine == 0, "tile_k must be whole lines of 128 bytes");
  static_assert(kKContiguous || sizeof(T) == 2, "wgmma transposes 16-bit operands only");

  static constexpr int kSlabs =
      kKContiguous ? kTileK / kPerLine : (kRows + kPerLine - 1) / kPerLine;
  static constexpr int kLines = kKContiguous ? kRows : kTileK;  // of a slab
  static constexpr int kSlabBytes = kLines * kLineBytes;
  static constexpr int kBytes = kSlabs * kSlabBytes;

  // The upper bits of a matrix descriptor: swizzle of 128 bytes; atoms follow each other; where
  // rows are contiguous, the next 64 of them are a slab away.
  static constexpr u64 kDescriptor =
      u64{1} << 62 | u64{kAtomBytes >> 4} << 32 | u64{kKContiguous ? 1 : kSlabBytes >> 4} << 16;

  static __device__ __forceinline__ u64 descriptor(u32 tile) {
    return kDescriptor | (tile & 0x3ffff) >> 4;
  }

  // From one descriptor to that of the `block`th 64 rows and the `step`th 32 bytes of k.
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
      tma_load<(kParts > 1)>(target, {map, x, y, place.batch});
      target.to += kSlabBytes;
    }
  }

  // The same from memory where tiles lie as they will in shared memory.
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

// The stage of a ring that comes next, and the parity of its barriers' phase.
template <int kStages>
struct Ring {
  u32 stage = 0, phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ void skip(u32 count) {
    const u32 to = stage + count;
    phase ^= to / kStages & 1;
    stage = to % kStages;
  }
};

// Tells the producers that fill a stage that it is empty: one thread each of some warps, one for
// each block that fills it.
template <bool kRemote>
struct Release {
  u32 barrier;  // of stage 0
  bool chosen;
  __device__ __forceinline__ void operator()(u32 stage) const {
    if (!chosen) return;
    if constexpr (kRemote) {
      barrier_arrive_remote(barrier + stage * 8);
    } else {
      barrier_arrive(barrier + stage * 8);
    }
  }
};

// In which order tiles are taken. Neighbours share operands that L2 then holds: groups of `group`
// tiles along P (negative: along Q) run before the next ones.
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

}  // namespace tessera::device
