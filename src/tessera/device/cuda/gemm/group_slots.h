// Tiles of groups of unequal sizes, found without a table: every group has a fixed number of slots
// that follows from its place alone, at least one for each of its tiles of rows.
//   contiguous:  from row begin / kTileM + group on, as many as there can be at most
//   indexed:     a slot is kTileM rows, in which each run of rows of a group is a tile
//   masked, along_k:  as many for each group as its room has tiles
#pragma once

#include "tessera/device/cuda/types.h"
#include "tessera/device/gemm/groups.h"

namespace tessera::device {

// A part of rows of one group, or the group itself, and a tile's first row in it.
struct GroupTile {
  GroupPart part;
  i64 row;
};

// All is computed anew where it is needed, because the kernels have no registers left for it.
template <Grouping kGrouping, int kTileM>
struct GroupSlots {
  const GroupArguments& x;

  __device__ __forceinline__ u64 total() const {
    if constexpr (kGrouping == Grouping::contiguous) {
      return static_cast<u64>(x.gemm.m / kTileM + x.groups);
    } else {
      return static_cast<u64>(kGrouping == Grouping::indexed ? of_room() : of_room() * x.groups);
    }
  }

  // Calls visit(tile) for each tile of a slot; all threads of the block get the same ones.
  template <class Visit>
  __device__ __forceinline__ void for_each_tile(u64 slot, const Visit& visit) const {
    GroupTile tile;
    i64 next = 0;
    while (find(slot, next, tile)) visit(tile);
  }

 private:
  // Tiles of the room, or of each group's.
  __device__ __forceinline__ i64 of_room() const { return (x.gemm.m + kTileM - 1) / kTileM; }

  // Sets the next tile of the slot. `next` begins at 0 and says where to look on.
  __device__ __forceinline__ bool find(u64 slot, i64& next, GroupTile& tile) const {
    if constexpr (kGrouping == Grouping::indexed) {
      return find_run(static_cast<i64>(slot), next, tile);
    } else {
      if (next != 0) return false;
      next = 1;
      return kGrouping == Grouping::contiguous ? find_contiguous(static_cast<i64>(slot), tile)
                                               : find_in_matrix(static_cast<i64>(slot), tile);
    }
  }

  __device__ __forceinline__ i64 begin_of(i64 group) const {
    return group == 0 ? 0 : clamped(number_at(x, group - 1), 0, group_room(x));
  }
  __device__ __forceinline__ GroupPart part_of(i64 group) const {
    const i64 begin = begin_of(group);
    return {group, begin, clamped(number_at(x, group), begin, group_room(x)) - begin};
  }

  // The last group whose slots do not begin behind this one.
  __device__ __forceinline__ bool find_contiguous(i64 slot, GroupTile& tile) const {
    i64 low = 0;
    i64 high = x.groups - 1;
    while (low < high) {
      const i64 middle = (low + high + 1) / 2;
      if (begin_of(middle) / kTileM + middle <= slot) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    tile.part = part_of(low);
    tile.row = (slot - tile.part.begin / kTileM - low) * kTileM;
    return tile.row >= 0 && tile.row < tile.part.size;
  }

  __device__ __forceinline__ bool find_in_matrix(i64 slot, GroupTile& tile) const {
    const i64 group = slot / of_room();
    tile.row = (slot - group * of_room()) * kTileM;
    if constexpr (kGrouping == Grouping::along_k) {
      tile.part = part_of(group);
      return true;
    } else {
      tile.part = {group, 0, clamped(number_at(x, group), 0, x.gemm.m)};
      return tile.row < tile.part.size;
    }
  }

  // `next` is the row behind the last run, counted from the slot's first row.
  __device__ __forceinline__ bool find_run(i64 slot, i64& next, GroupTile& tile) const {
    const i64 first = slot * kTileM;
    const i64 rows = min(x.gemm.m - first, i64{kTileM});
    while (next < rows) {
      const i64 begin = next;
      const int group = number_at(x, first + begin);
      do ++next;
      while (next < rows && number_at(x, first + next) == group);
      if (group < 0 || group >= x.groups) continue;
      tile = {{group, first + begin, next - begin}, 0};
      return true;
    }
    return false;
  }
};

}  // namespace tessera::device
