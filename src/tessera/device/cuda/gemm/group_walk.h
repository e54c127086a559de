// How persistent blocks walk along the tiles of groups of unequal sizes. A block adds up once how
// many tiles of rows the groups have, in shared memory; whole warps then find the tile of any
// number by bisection. All blocks count the tiles alike: group by group, with indexed groups one
// tile of the room after the other, each with as many tiles as it has runs of rows of a group.
// Without groups, the batches of a product count as such.
#pragma once

#include "tessera/device/cuda/tile_order.h"
#include "tessera/device/gemm/groups.h"

namespace tessera::device {

// A tile: the part of rows (or of k) of one group that it belongs to, its first row in that part,
// and its first column.
struct GroupItem {
  GroupPart part;
  int row, column;
};

// A tile has kRows rows and kColumns columns. All kThreads threads of the block make the walk.
template <Grouping kGrouping, int kRows, int kColumns, int kThreads>
struct GroupWalk {
  static constexpr bool kCounts = kGrouping != Grouping::along_k && kGrouping != Grouping::none;
  static constexpr int kWarps = kThreads / 32;
  static constexpr u32 kAll = 0xffffffffU;

  const GroupArguments& x;
  int* sums;    // tiles of rows up to, and including, each group or tile of the room
  int places;   // how many sums there are
  int of_room;  // tiles of rows of the room, or of a group's
  int columns;  // tiles of columns
  int tiles;    // of all groups
  int raster_group;

  // `memory` has room for a sum of each place and kWarps more.
  __device__ __forceinline__ GroupWalk(const GroupArguments& arguments, int raster, int* memory)
      : x(arguments), sums(memory), raster_group(raster) {
    of_room = static_cast<int>((x.gemm.m + kRows - 1) / kRows);
    columns = static_cast<int>((x.gemm.n + kColumns - 1) / kColumns);
    places = kGrouping == Grouping::indexed ? of_room : static_cast<int>(x.groups);
    if constexpr (kCounts) {
      add_up();
      tiles = sums[places - 1] * columns;
    } else {
      tiles = places * of_room * columns;
    }
  }

  // Whole warps call this.
  __device__ __forceinline__ GroupItem find(int index) const {
    if constexpr (!kCounts) {
      const int each = of_room * columns;
      const int group = index / each;
      const TileOrder::Tile at = order_of(of_room).tile(index - group * each);
      return {part_of(group), at.p * kRows, at.q * kColumns};
    } else {
      const int place = place_of(index / columns);
      const int before = place == 0 ? 0 : sums[place - 1];
      const TileOrder::Tile at = order_of(sums[place] - before).tile(index - before * columns);
      if constexpr (kGrouping == Grouping::indexed) {
        return {run_of(place, at.p), 0, at.q * kColumns};
      } else {
        return {part_of(place), at.p * kRows, at.q * kColumns};
      }
    }
  }

 private:
  __device__ __forceinline__ TileOrder order_of(int rows) const {
    return {rows, columns, 1, raster_group};
  }

  __device__ __forceinline__ GroupPart part_of(int group) const {
    const i64 room = group_room(x);
    if constexpr (kGrouping == Grouping::none) {
      return {group, 0, room};
    } else if constexpr (kGrouping == Grouping::masked) {
      return {group, 0, clamped(number_at(x, group), 0, room)};
    } else {
      const i64 begin = group == 0 ? 0 : clamped(number_at(x, group - 1), 0, room);
      return {group, begin, clamped(number_at(x, group), begin, room) - begin};
    }
  }

  __device__ __forceinline__ int tiles_of(int place) const {
    if constexpr (kGrouping == Grouping::indexed) {
      return runs_of(place);
    } else {
      return static_cast<int>((part_of(place).size + kRows - 1) / kRows);
    }
  }

  // Each warp adds up a part of the places, then what the warps before it have.
  __device__ __forceinline__ void add_up() const {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int each = (places + kThreads - 1) / kThreads * 32;
    int* const totals = sums + places;
    int total = 0;
#pragma unroll 1
    for (int at = warp * each; at < (warp + 1) * each && at < places; at += 32) {
      const int place = at + lane;
      int sum = place < places ? tiles_of(place) : 0;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(kAll, sum, distance);
        if (lane >= distance) sum += other;
      }
      if (place < places) sums[place] = total + sum;
      total += __shfl_sync(kAll, sum, 31);
    }
    if (lane == 0) totals[warp] = total;
    __syncthreads();
    int before = 0;
    for (int i = 0; i < warp; ++i) before += totals[i];
    for (int at = warp * each + lane; at < (warp + 1) * each && at < places; at += 32) {
      sums[at] += before;
    }
    __syncthreads();
  }

  // The first place whose sum exceeds `row`.
  __device__ __forceinline__ int place_of(int row) const {
    int low = 0;
    int high = places - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (sums[middle] > row) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // ---- indexed: runs of rows of a group in a tile of the room ----

  __device__ __forceinline__ bool is_group(int index) const {
    return index >= 0 && index < x.groups;
  }
  __device__ __forceinline__ int rows_at(i64 first) const {
    return static_cast<int>(min(x.gemm.m - first, i64{kRows}));
  }

  __device__ __forceinline__ int runs_of(int place) const {
    const i64 first = i64{place} * kRows;
    const int rows = rows_at(first);
    int runs = 0;
    int before = -1;
#pragma unroll 8
    for (int row = 0; row < rows; ++row) {
      const int group = number_at(x, first + row);
      if (is_group(group) && (row == 0 || group != before)) ++runs;
      before = group;
    }
    return runs;
  }

  // Run number `run` of a place, by a whole warp.
  __device__ __forceinline__ GroupPart run_of(int place, int run) const {
    const i64 first = i64{place} * kRows;
    const int rows = rows_at(first);
    const int lane = threadIdx.x % 32;
    int begin = -1;
    int found = 0;
#pragma unroll 1
    for (int at = 0; at < rows; at += 32) {
      const int row = at + lane;
      const int group = row < rows ? number_at(x, first + row) : -1;
      const int before = row > 0 && row < rows ? number_at(x, first + row - 1) : -1;
      if (begin < 0) {
        u32 starts = __ballot_sync(kAll, is_group(group) && (row == 0 || group != before));
        const int count = __popc(starts);
        if (run >= count) {
          run -= count;
          continue;
        }
        for (; run > 0; --run) starts &= starts - 1;
        begin = at + __ffs(static_cast<int>(starts)) - 1;
        found = __shfl_sync(kAll, group, begin - at);
      }
      const u32 ends = __ballot_sync(kAll, row > begin && group != found);
      if (ends == 0) continue;
      const int end = at + __ffs(static_cast<int>(ends)) - 1;
      return {found, first + begin, end - begin};
    }
    return {found, first + max(begin, 0), begin < 0 ? 0 : rows - begin};
  }
};

}  // namespace tessera::device
