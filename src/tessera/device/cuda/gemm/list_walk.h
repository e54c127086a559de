// Tiles of lists, whose groups have sizes of their own, found without a table. The lanes of a warp
// count the tiles of eight groups each and add them up, and then those of the eight groups among
// which the block's next tile lies. Every warp of a block finds that tile by itself. What was
// passed is remembered, so that a block reads each size a few times at most.
//
// types.h is left out, because a test runs the lanes on a host (tests/host/gemm/list_walk_test.cc).
#pragma once

#include "tessera/device/gemm/groups.h"

namespace tessera::device {

// The group of a tile, and its corner.
struct ListTile {
  i64 group, row, column;
};

// Numbers that are the same for all lanes of a warp, each in a register of another lane: beside the
// sums of a tile there is no room for more than one. All lanes of a warp must read and write.
class WarpWords {
 public:
  using Word = unsigned;

  __device__ __forceinline__ Word word(Word place) const {
    return __shfl_sync(0xffffffff, own, static_cast<int>(place));
  }
  __device__ __forceinline__ void put(Word place, Word x) {
    if (threadIdx.x % 32 == place) own = x;
  }

 private:
  Word own = 0;
};

template <int kTileM, int kTileN>
class ListWalk {
 public:
  using Word = unsigned;
  using Count = unsigned long long;

  __device__ __forceinline__ ListWalk() { put_ahead(blockIdx.x); }

  // Finds the block's next tile, or returns false when there is none. All lanes of a warp must ask.
  // Tiles of a group go down first, so that neighbours in time read the same columns of B.
  __device__ __forceinline__ bool next(const GroupArguments& x) {
    Count ahead = Count{words.word(kAheadHigh)} << 32 | words.word(kAheadLow);
    for (Word first = words.word(kFirst); first < x.groups; first += kLanes * kEach) {
      Count place = ahead;
      const Word part = find<kEach>(x, first, place);
      if (part == kLanes) {
        ahead = place;
        continue;
      }
      words.put(kFirst, first);
      put_ahead(ahead + gridDim.x);
      const Word eight = first + part * kEach;
      const Word group = eight + find<1>(x, eight, place);
      put_tile(x, group, place);
      return true;
    }
    return false;
  }

  // All lanes of a warp must ask.
  __device__ __forceinline__ ListTile tile() const {
    return {words.word(kGroup), i64{words.word(kDown)} * kTileM, i64{words.word(kRight)} * kTileN};
  }

 private:
  static constexpr Word kLanes = 32;
  static constexpr Word kEach = 8;
  static constexpr Word kAllLanes = 0xffffffff;
  // The words: groups that have been passed; how many tiles lie between the first one behind them
  // and the next one of the block; the tile that was found last.
  enum Place : Word { kFirst, kAheadLow, kAheadHigh, kGroup, kDown, kRight };

  __device__ __forceinline__ void put_ahead(Count ahead) {
    words.put(kAheadLow, static_cast<Word>(ahead));
    words.put(kAheadHigh, static_cast<Word>(ahead >> 32));
  }
  __device__ __forceinline__ void put_tile(const GroupArguments& x, Word group, Count place) {
    const Count rows = rows_of_tiles(x, group);
    const Count right = place / rows;
    words.put(kGroup, group);
    words.put(kDown, static_cast<Word>(place - right * rows));
    words.put(kRight, static_cast<Word>(right));
  }

  // Which of 32 parts, of kGroups groups each from `from` on, holds the tile at `place` behind
  // those of earlier groups; 32: none of them. Takes the tiles before that part off `place`.
  template <Word kGroups>
  static __device__ __forceinline__ Word find(const GroupArguments& x, Word from, Count& place) {
    const Word lane = threadIdx.x % kLanes;
    Count own = 0;
    for (Word i = 0; i < kGroups; ++i) own += tiles_of(x, from + lane * kGroups + i);
    Count sum = own;
    for (Word distance = 1; distance < kLanes; distance *= 2) {
      const Count other = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += other;
    }
    const Word holders = __ballot_sync(kAllLanes, sum > place);
    if (holders == 0) {
      place -= __shfl_sync(kAllLanes, sum, kLanes - 1);
      return kLanes;
    }
    const Word part = __ffs(static_cast<int>(holders)) - 1;
    place -= __shfl_sync(kAllLanes, sum - own, static_cast<int>(part));
    return part;
  }

  // Groups behind the last one have none. The last one's sizes are read for them, so that no branch
  // stands between the reads of a lane.
  static __device__ __forceinline__ Count tiles_of(const GroupArguments& x, Word group) {
    const i64 read = group < x.groups ? group : x.groups - 1;
    const auto columns = static_cast<Word>(clamped(x.sizes[1][read], 0, x.gemm.n));
    const Count tiles = rows_of_tiles(x, read) * ((columns + kTileN - 1) / kTileN);
    return group < x.groups ? tiles : 0;
  }
  static __device__ __forceinline__ Count rows_of_tiles(const GroupArguments& x, i64 group) {
    const auto rows = static_cast<Word>(clamped(x.sizes[0][group], 0, x.gemm.m));
    return (rows + kTileM - 1) / kTileM;
  }

  WarpWords words;
};

}  // namespace tessera::device
