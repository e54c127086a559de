// Which tiles of groups a workgroup computes, found from the numbers in the kernel's memory: a
// workgroup takes every `blocks`-th tile, and finds the group of each by itself. Neighbours in that
// order have the same columns of B.
//
// contiguous: group g has the rows of tiles from floor(begin / kTileM) + g on, up to where those of
//             the next group begin, which are enough for it and sometimes one too many. So the
//             group of a tile is found by bisection over the numbers themselves.
// indexed:    rows are cut into tiles wherever groups lie, and a tile has a product for each run of
//             rows with the same index.
// masked:     the lanes of a wave count the tiles of as many groups at a time.
// lists:      the same.
// along_k:    every group has all tiles.
#pragma once

#include "tessera/device/hip/gemm/grouped_arguments.h"
#include "tessera/device/hip/lanes.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

// A tile of the product of a part; `row` counts from where the part begins.
struct GroupedTile {
  GroupPart part;
  i64 row, column;
};

// A word in scalar registers, since it is the same for all lanes, and so a number of the groups.
__device__ __forceinline__ i64 group_number(const int* words, i64 at) {
  return __builtin_amdgcn_readfirstlane(words[at]);
}
__device__ __forceinline__ i64 group_number(const GroupArguments& x, i64 at) {
  return __builtin_amdgcn_readfirstlane(number_at(x, at));
}
__device__ __forceinline__ i64 uniform_i64(i64 x) {
  return static_cast<i64>(uniform(static_cast<u64>(x)));
}
template <int kTile>
constexpr u64 tiles_of(i64 size) {
  return static_cast<u64>(size + kTile - 1) / kTile;
}

template <class C>
struct GroupedWalk {
  static constexpr Grouping kKind = C::kGrouping;
  static constexpr bool kCounted = kKind == Grouping::masked || kKind == Grouping::lists;
  u64 index;   // of the next tile
  u64 before;  // masked: the tiles of the groups before `first`
  i64 first;   // masked: groups that have been passed; indexed: rows of the tile

  __device__ __forceinline__ GroupedWalk()
      : index(__builtin_amdgcn_workgroup_id_x()), before(0), first(0) {}

  // Whether there is one more; all lanes of a wave must ask.
  __device__ __forceinline__ bool next(GroupedTile& tile) {
    const HipGroupedArguments& arguments = fresh_arguments<HipGroupedArguments>();
    const GroupArguments& x = arguments.groups;
    const u64 across = tiles_of<C::kTileN>(x.gemm.n);
    const u64 blocks = static_cast<u64>(arguments.blocks);
    if (across == 0 || x.gemm.m == 0) return false;
    if constexpr (kKind == Grouping::contiguous) return next_by_ends(x, across, blocks, tile);
    if constexpr (kKind == Grouping::indexed) return next_run(x, across, blocks, tile);
    if constexpr (kCounted) return next_counted(x, across, blocks, tile);
    if constexpr (kKind == Grouping::along_k) return next_cut(x, across, blocks, tile);
  }

 private:
  // Columns of tiles go one after the other, `down` tiles each.
  static __device__ __forceinline__ GroupedTile tile_at(const GroupPart& part, u64 down,
                                                        u64 place) {
    const u64 right = place / down;
    return {part, uniform_i64(static_cast<i64>(place - right * down) * C::kTileM),
            uniform_i64(static_cast<i64>(right) * C::kTileN)};
  }
  static __device__ __forceinline__ i64 begin_of(const GroupArguments& x, i64 group) {
    return group == 0 ? 0 : clamped(group_number(x, group - 1), 0, group_room(x));
  }
  static __device__ __forceinline__ GroupPart part_by_ends(const GroupArguments& x, i64 group) {
    const i64 begin = begin_of(x, group);
    const i64 end = clamped(group_number(x, group), begin, group_room(x));
    return {group, begin, end - begin};
  }
  static __device__ __forceinline__ u64 rows_before(i64 group, i64 begin) {
    return static_cast<u64>(begin) / C::kTileM + static_cast<u64>(group);
  }

  __device__ __forceinline__ bool next_by_ends(const GroupArguments& x, u64 across, u64 blocks,
                                               GroupedTile& tile) {
    const u64 total = rows_before(x.groups, x.groups == 0 ? 0 : begin_of(x, x.groups)) * across;
#pragma unroll 1
    while (index < total) {
      const u64 at = index;
      index += blocks;
      i64 low = 0, high = x.groups;
#pragma unroll 1
      while (high - low > 1) {
        const i64 middle = low + (high - low) / 2;
        const bool begins = rows_before(middle, begin_of(x, middle)) * across <= at;
        (begins ? low : high) = middle;
      }
      const GroupPart part = part_by_ends(x, low);
      const u64 down = tiles_of<C::kTileM>(part.size);
      const u64 place = at - rows_before(low, part.begin) * across;
      if (place >= down * across) continue;  // the one too many
      tile = tile_at(part, down, place);
      return true;
    }
    return false;
  }

  __device__ __forceinline__ bool next_run(const GroupArguments& x, u64 across, u64 blocks,
                                           GroupedTile& tile) {
    const u64 down = tiles_of<C::kTileM>(x.gemm.m);
#pragma unroll 1
    while (index < down * across) {
      const GroupedTile at = tile_at({}, down, index);
      const i64 left = x.gemm.m - at.row;
      const i64 rows = left < C::kTileM ? left : C::kTileM;
      const i64 begin = at.row + first;
      const i64 group = group_number(x, begin);
      const i64 size = run_length(x, begin, at.row + rows, static_cast<int>(group));
      first += size;
      if (first >= rows) index += blocks, first = 0;
      if (group < 0 || group >= x.groups) continue;
      tile = {{group, begin, size}, 0, at.column};
      return true;
    }
    return false;
  }
  // How many rows from `begin` on have the same index as the first one.
  static __device__ __forceinline__ i64 run_length(const GroupArguments& x, i64 begin, i64 end,
                                                   int group) {
    i64 length = 0;
#pragma unroll 1
    while (begin + length < end) {
      const i64 at = begin + length + lane_of_wave();
      const bool is_same = at < end && number_at(x, at < end ? at : end - 1) == group;
      const u64 others = ~lanes_with(is_same);
      const int same = others == 0 ? 64 : __builtin_ctzll(others);
      length += same < kLanes ? same : kLanes;
      if (same < kLanes) break;
    }
    return uniform_i64(length);
  }

  // What the lanes before have and this one.
  static __device__ __forceinline__ u64 word_pair(u64 x, int lane) {
    const u32 low = from_lane(static_cast<u32>(x), lane);
    return u64{from_lane(static_cast<u32>(x >> 32), lane)} << 32 | low;
  }
  static __device__ __forceinline__ u64 sum_up_to(u64 x) {
    const int lane = lane_of_wave();
#pragma unroll 1
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const u64 other = word_pair(x, lane - distance);
      x += lane >= distance ? other : 0;
    }
    return x;
  }

  // The tiles of a group across; lists have columns of their own.
  static __device__ __forceinline__ u64 columns_of_group(const GroupArguments& x, i64 group,
                                                         u64 across) {
    if constexpr (kKind != Grouping::lists) return across;
    return tiles_of<C::kTileN>(clamped(x.sizes[1][group], 0, x.gemm.n));
  }
  static __device__ __forceinline__ u64 count_tiles(const GroupArguments& x, i64 group,
                                                    u64 across) {
    const i64 rows = clamped(number_at(x, group), 0, x.gemm.m);
    return tiles_of<C::kTileM>(rows) * columns_of_group(x, group, across);
  }

  __device__ __forceinline__ bool next_counted(const GroupArguments& x, u64 across, u64 blocks,
                                               GroupedTile& tile) {
#pragma unroll 1
    while (first < x.groups) {
      const i64 own = first + lane_of_wave();
      const u64 sum = sum_up_to(own < x.groups ? count_tiles(x, own, across) : 0);
      const u64 total = uniform(word_pair(sum, kLanes - 1));
      if (index - before >= total) {
        before += total;
        first += kLanes;
        continue;
      }
      const u64 local = index - before;
      const int passed = __builtin_popcountll(lanes_with(sum <= local));
      const u64 skipped = passed == 0 ? 0 : uniform(word_pair(sum, passed - 1));
      const i64 group = first + passed;
      const i64 size = clamped(group_number(x, group), 0, x.gemm.m);
      tile = tile_at({group, 0, size}, tiles_of<C::kTileM>(size), local - skipped);
      index += blocks;
      return true;
    }
    return false;
  }

  __device__ __forceinline__ bool next_cut(const GroupArguments& x, u64 across, u64 blocks,
                                           GroupedTile& tile) {
    const u64 down = tiles_of<C::kTileM>(x.gemm.m);
    if (index >= down * across * static_cast<u64>(x.groups)) return false;
    const i64 group = uniform_i64(static_cast<i64>(index / (down * across)));
    tile = tile_at(part_by_ends(x, group), down, index - static_cast<u64>(group) * (down * across));
    index += blocks;
    return true;
  }
};

}  // namespace tessera::device
